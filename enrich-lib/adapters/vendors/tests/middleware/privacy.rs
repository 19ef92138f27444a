//! Checks that no error contains an email, however deeply nested.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use enrich_lib::ports::Resolver;
use enrich_lib::resolver::VendorErrorKind;
use enrich_vendors::middleware::{Coalesce, EmailHasher, Waterfall};

use crate::scripted::{Vendor, ada, fails};

#[tokio::test(start_paused = true)]
async fn errors_contain_no_email() {
    let hasher = EmailHasher::new([7; 16]);
    let vendor = Vendor::new(fails(VendorErrorKind::InvalidResponse));
    let waterfall = Waterfall::new(Duration::from_secs(8), |_, _, _| {});
    let waterfall = waterfall.then("alpha", vendor.clone()).then("beta", vendor);
    let error = Coalesce::new(Arc::new(waterfall), hasher).find(&ada()).await.unwrap_err();
    let text = format!("{error} {error:?}").to_lowercase();
    assert!(["marlowe", "@", "gmail"].iter().all(|part| !text.contains(part)), "{text}");
    assert!(error.source().is_none(), "its text is complete");
}
