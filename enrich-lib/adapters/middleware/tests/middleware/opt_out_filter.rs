use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::OptOuts;
use enrich_middleware::{EmailHash, EmailHasher, HashedOptOuts, OptOutFilter};

use crate::scripted::{LookupResult, Vendor, ada, drop_at_each_ms, finds, found, look_up, query};

fn without_ada(vendor: &Arc<Vendor>) -> OptOutFilter {
    let hasher = EmailHasher::new([7; 32]);
    let stored = *hasher.opt_out_hash(&ada().email).as_bytes();
    OptOutFilter::new(vendor.clone(), Arc::new(HashedOptOuts::new(hasher, [EmailHash::from_bytes(stored)])))
}

#[tokio::test(start_paused = true)]
async fn hides_opted_out_person_without_calling_vendor() {
    let vendor = Vendor::new(finds("ada"));
    let filter = without_ada(&vendor);
    assert_eq!(look_up(&filter).await, LookupResult::NoMatch);
    let same_mailbox = filter.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((LookupResult::from(&same_mailbox), vendor.calls()), (LookupResult::NoMatch, 0));
}

#[tokio::test(start_paused = true)]
async fn opt_out_applies_to_other_addresses_of_the_person() {
    let hasher = EmailHasher::new([7; 32]);
    for (opted_out, other) in [
        ("bea@company.com", "Bea+news@company.com"),
        ("bea+news@company.com", "bea@company.com"),
        ("bea@protonmail.com", "bea@proton.me"),
        ("bea@icloud.com", "bea+x@me.com"),
    ] {
        let hash = hasher.opt_out_hash(&Email::parse(opted_out).unwrap());
        let (vendor, opt_outs) = (Vendor::new(finds("bea")), HashedOptOuts::new(hasher.clone(), [hash]));
        let filter = OptOutFilter::new(vendor.clone(), Arc::new(opt_outs));
        let answer = filter.find(&query(other)).await;
        assert_eq!((LookupResult::from(&answer), vendor.calls()), (LookupResult::NoMatch, 0), "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn looks_up_everyone_else() {
    let vendor = Vendor::new(finds("bob"));
    let bob = without_ada(&vendor).find(&query("bob@gmail.com")).await;
    assert_eq!((LookupResult::from(&bob), vendor.calls()), (found("bob"), 1));
}

#[tokio::test(start_paused = true)]
async fn opt_outs_hashed_with_another_key_do_not_match() {
    let hash = EmailHasher::new([8; 32]).opt_out_hash(&ada().email);
    let opt_outs = HashedOptOuts::new(EmailHasher::new([7; 32]), [hash]);
    assert_eq!(
        look_up(&OptOutFilter::new(Vendor::new(finds("ada")), Arc::new(opt_outs))).await,
        found("ada")
    );
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

#[tokio::test(start_paused = true)]
async fn dropped_lookup_leaves_no_call_in_flight() {
    let vendor = Vendor::new(finds("bob").after(20));
    let no_opt_outs = HashedOptOuts::new(EmailHasher::new([7; 32]), []);
    let filter = OptOutFilter::new(vendor.clone(), Arc::new(no_opt_outs));
    drop_at_each_ms(&filter, 25, |ms| assert_eq!(vendor.in_flight(), 0, "{ms}")).await;
}
