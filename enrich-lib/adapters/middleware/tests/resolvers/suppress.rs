use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::ports::Resolver;
use enrich_lib::refusal::PortError;
use enrich_middleware::{EmailHash, EmailHasher, HashedOptOuts, OptOuts, Suppress};

use crate::scripted::{Told, Vendor, ada, ask, drop_at_each_ms, finds, found, query};

fn without_ada(vendor: &Arc<Vendor>) -> Suppress {
    let hasher = EmailHasher::new([7; 32]);
    let stored = *hasher.hash(&ada().email).as_bytes();
    Suppress::new(vendor.clone(), Arc::new(HashedOptOuts::new(hasher, [EmailHash::from_bytes(stored)])))
}

#[tokio::test(start_paused = true)]
async fn who_opted_out_is_not_found_and_no_vendor_learns_of_the_lookup() {
    let vendor = Vendor::that(finds("ada"));
    let suppress = without_ada(&vendor);
    assert_eq!(ask(&suppress).await, Told::Nobody);
    let same_mailbox = suppress.find(&query("AdaMarlowe+shop@googlemail.com")).await;
    assert_eq!((Told::from(&same_mailbox), vendor.asks()), (Told::Nobody, 0));
}

#[tokio::test(start_paused = true)]
async fn everybody_else_is_looked_up() {
    let vendor = Vendor::that(finds("bob"));
    let bob = without_ada(&vendor).find(&query("bob@gmail.com")).await;
    assert_eq!((Told::from(&bob), vendor.asks()), (found("bob"), 1));
}

#[tokio::test(start_paused = true)]
async fn opt_outs_of_another_key_are_nobodys() {
    let hash = EmailHasher::new([8; 32]).hash(&ada().email);
    let opt_outs = HashedOptOuts::new(EmailHasher::new([7; 32]), [hash]);
    assert_eq!(ask(&Suppress::new(Vendor::that(finds("ada")), Arc::new(opt_outs))).await, found("ada"));
}

struct Unreadable;

#[async_trait]
impl OptOuts for Unreadable {
    async fn contain(&self, _: &Email) -> Result<bool, PortError> {
        Err(PortError::new("the disk is gone"))
    }
}

#[tokio::test(start_paused = true)]
async fn if_the_opt_outs_cant_be_read_nobody_is_looked_up() {
    let vendor = Vendor::that(finds("ada"));
    let suppress = Suppress::new(vendor.clone(), Arc::new(Unreadable));
    assert_eq!(ask(&suppress).await, Told::Error("the disk is gone".to_owned()));
    assert_eq!(vendor.asks(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_it_leaves_nothing() {
    let vendor = Vendor::that(finds("bob").after(20));
    let nobody = HashedOptOuts::new(EmailHasher::new([7; 32]), []);
    let suppress = Suppress::new(vendor.clone(), Arc::new(nobody));
    drop_at_each_ms(&suppress, 25, |ms| assert_eq!(vendor.under_way(), 0, "{ms}")).await;
}
