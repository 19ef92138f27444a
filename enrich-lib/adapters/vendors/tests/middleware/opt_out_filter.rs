use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::OptOuts;
use enrich_vendors::middleware::OptOutFilter;

use crate::scripted::{LookupResult, OptedOut, Vendor, finds, look_up, query};

fn without_ada(vendor: &Arc<Vendor>) -> OptOutFilter {
    OptOutFilter::new(vendor.clone(), Arc::new(OptedOut(&["ada.marlowe@gmail.com"])))
}

#[tokio::test(start_paused = true)]
async fn hides_opted_out_person_without_calling_vendor() {
    let vendor = Vendor::new(finds("ada"));
    let filter = without_ada(&vendor);
    assert_eq!(look_up(&filter).await, LookupResult::NoMatch);
    let same_mailbox = filter.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((LookupResult::from(&same_mailbox), vendor.calls()), (LookupResult::NoMatch, 0));
}

/// Opts the person out after the first check.
#[derive(Default)]
struct AfterFirstCheck(AtomicBool);

#[async_trait]
impl OptOuts for AfterFirstCheck {
    async fn contains(&self, _: &Email) -> Result<bool, PortError> {
        Ok(self.0.swap(true, Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn hides_person_who_opts_out_while_the_vendor_answers() {
    let vendor = Vendor::new(finds("ada").after(20));
    let filter = OptOutFilter::new(vendor.clone(), Arc::new(AfterFirstCheck::default()));
    assert_eq!((look_up(&filter).await, vendor.calls()), (LookupResult::NoMatch, 1));
}

struct Unreadable;

#[async_trait]
impl OptOuts for Unreadable {
    async fn contains(&self, _: &Email) -> Result<bool, PortError> {
        Err(PortError::new("the disk is gone"))
    }
}

#[tokio::test(start_paused = true)]
async fn fails_when_opt_outs_are_unreadable() {
    let vendor = Vendor::new(finds("ada"));
    let filter = OptOutFilter::new(vendor.clone(), Arc::new(Unreadable));
    assert_eq!(look_up(&filter).await, LookupResult::OtherError("the disk is gone".to_owned()));
    assert_eq!(vendor.calls(), 0);
}
