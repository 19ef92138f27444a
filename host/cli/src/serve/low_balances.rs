//! Warnings about workspaces with few credits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use enrich_lib::model::WorkspaceId;
use enrich_store::records::WorkspaceRow;
use tracing::warn;

use crate::accounts::{Accounts, StoreLocation};
use crate::failure::Failure;

/// Interval between two checks of the balances.
const INTERVAL: Duration = Duration::from_secs(10);

/// Checks the balances until the process ends, on a thread of its own: commands block. Stores the number of workspaces with few
/// credits in `count`.
pub fn watch(accounts: StoreLocation, count: Arc<AtomicU64>) {
    thread::spawn(move || {
        let (mut crossings, mut opened, mut is_failing) = (Crossings::default(), None, false);
        loop {
            let read = read(&accounts, &mut opened);
            match &read {
                Ok(low) => {
                    count.store(low.len() as u64, Ordering::Relaxed);
                    crossings.of(low).for_each(|row| {
                        warn!(
                            workspace = %row.id,
                            available = row.balance.available,
                            low_balance = row.properties.low_balance,
                            "the workspace has few credits left; grant more with `enrich credits grant`"
                        );
                    });
                }
                Err(failure) if !is_failing => {
                    warn!(error = failure.what, "the balances cannot be checked");
                }
                Err(_) => {}
            }
            is_failing = read.is_err();
            thread::sleep(INTERVAL);
        }
    });
}

/// Reads the low balances. After an error, the next call opens the accounts again.
fn read(location: &StoreLocation, opened: &mut Option<Accounts>) -> Result<Vec<WorkspaceRow>, Failure> {
    let mut accounts = match opened.take() {
        Some(accounts) => accounts,
        None => location.clone().open()?,
    };
    let low = accounts.run(async |admin| admin.low_balances().await)?;
    *opened = Some(accounts);
    Ok(low)
}

/// The workspaces whose balance was low at the last check.
#[derive(Default)]
struct Crossings(BTreeSet<WorkspaceId>);

impl Crossings {
    /// Returns those of the `low` balances that were not low before.
    fn of<'a>(&mut self, low: &'a [WorkspaceRow]) -> impl Iterator<Item = &'a WorkspaceRow> {
        let before = std::mem::replace(&mut self.0, low.iter().map(|row| row.id.clone()).collect());
        low.iter().filter(move |row| !before.contains(&row.id))
    }
}

#[cfg(test)]
mod tests {
    use enrich_lib::credit::Balance;
    use enrich_lib::model::Timestamp;
    use enrich_lib::window::Quota;
    use enrich_store::workspace::WorkspaceProperties;

    use super::*;

    #[test]
    fn reports_each_crossing_once() {
        let mut crossings = Crossings::default();
        let mut report = |names: &[&str]| {
            let row = |name: &&str| WorkspaceRow {
                id: name.parse().unwrap(),
                properties: WorkspaceProperties::new(Quota::default()),
                balance: Balance::default(),
                created_at: Timestamp::default(),
            };
            let rows: Vec<_> = names.iter().map(row).collect();
            crossings.of(&rows).map(|row| row.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(report(&["acme"]), ["acme"]);
        assert_eq!(report(&["acme", "bolt"]), ["bolt"]);
        assert!(report(&["bolt"]).is_empty());
        assert_eq!(report(&["acme", "bolt"]), ["acme"]);
    }
}
