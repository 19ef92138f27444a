//! Removal of old spends, with `credits.keep_spends_days`.

use std::thread;
use std::time::Duration;

use enrich_host::SystemArrivals;
use enrich_store::usage::Day;
use tracing::{info, warn};

use crate::accounts::StoreLocation;
use crate::{credits, date};

/// Interval between two removals. Spends of one day expire together.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Removes spends that are older than `keep` until the process ends, on a thread of its own: commands block.
pub fn watch(accounts: StoreLocation, keep: Duration) {
    thread::spawn(move || {
        loop {
            let before = Day::of(SystemArrivals::now() - keep);
            match credits::remove_spends(accounts.clone(), before) {
                Ok(0) => {}
                Ok(removed) => info!(removed, before = date::format(before), "removed old spends"),
                Err(failure) => {
                    warn!(error = failure.what, "old spends cannot be removed; trying again in an hour")
                }
            }
            thread::sleep(INTERVAL);
        }
    });
}
