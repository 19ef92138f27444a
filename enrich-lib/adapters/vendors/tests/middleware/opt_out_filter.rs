//! The filter for people who opted out, also during a call, and with opt-outs that cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_vendors::middleware::OptOutFilter;

use crate::scripted::{LookupResult, OptOutsBy, Vendor, finds, look_up, opted_out, query};

#[tokio::test(start_paused = true)]
async fn hides_opted_out_person_without_calling_vendor() {
    let vendor = Vendor::new(finds("ada"));
    let filter = OptOutFilter::new(vendor.clone(), opted_out(&["ada.marlowe@gmail.com"]));
    assert_eq!(look_up(&filter).await, LookupResult::NoMatch);
    let same_mailbox = filter.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((LookupResult::from(&same_mailbox), vendor.calls()), (LookupResult::NoMatch, 0));
}

#[tokio::test(start_paused = true)]
async fn hides_person_who_opts_out_while_the_vendor_answers() {
    let vendor = Vendor::new(finds("ada").after(20));
    let is_checked = AtomicBool::new(false);
    let after_first_check = OptOutsBy(move |_: &Email| Ok(is_checked.swap(true, Ordering::Relaxed)));
    let filter = OptOutFilter::new(vendor.clone(), Arc::new(after_first_check));
    assert_eq!((look_up(&filter).await, vendor.calls()), (LookupResult::NoMatch, 1));
}

#[tokio::test(start_paused = true)]
async fn fails_when_opt_outs_are_unreadable() {
    // The list fails before the call of the vendor, or after it.
    for reads_before in [0, 1] {
        let (vendor, reads) = (Vendor::new(finds("ada")), AtomicUsize::new(0));
        let unreadable = OptOutsBy(move |_: &Email| match reads.fetch_add(1, Ordering::Relaxed) {
            read if read < reads_before => Ok(false),
            _ => Err(PortError::new("the disk is gone")),
        });
        let filter = OptOutFilter::new(vendor.clone(), Arc::new(unreadable));
        assert_eq!(look_up(&filter).await, LookupResult::OtherError("the disk is gone".to_owned()));
        assert_eq!(vendor.calls(), reads_before);
    }
}
