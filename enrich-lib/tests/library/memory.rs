//! The in-memory ports.

use std::time::Duration;

use enrich_lib::credit::{Balance, Hold, HoldOutcome, Settlement, Shortage};
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, KeyTable, WindowTable};
use enrich_lib::model::{LookupId, Timestamp};
use enrich_lib::ports::{Credits, Keys, Windows};
use enrich_lib::window::{Quota, Workspace};
use futures_executor::block_on;

fn workspace(name: &str) -> Workspace {
    Workspace::new(name.parse().expect("a name"), Quota::default())
}

/// A workspace without credits, or an invalid key, must not make the tables grow.
#[test]
fn reads_and_refusals_create_no_state() {
    let (accounts, keys) = (AccountTable::default(), KeyTable::default());
    accounts.advance(Duration::from_secs(1));
    let empty = format!("{accounts:?} {keys:?}");
    for n in 0..100_u8 {
        let workspace = workspace(&format!("workspace-{n}")).id;
        let hold = Hold::new(LookupId::from_bytes([n; 16]), workspace.clone(), 1);
        assert_eq!(accounts.balance(&workspace), Balance::default());
        assert_eq!(block_on(accounts.hold(&hold)).unwrap(), HoldOutcome::Insufficient(Shortage::Exhausted));
        assert!(block_on(accounts.settle(&hold, Settlement::Spend(1))).is_err());
        assert!(block_on(accounts.settle(&hold, Settlement::Release)).is_ok());
        assert_eq!(block_on(keys.find(&ApiKey::generate(|| n).digest())).unwrap(), None);
    }
    assert_eq!(format!("{accounts:?} {keys:?}"), empty);
}

#[test]
fn removes_window_exactly_at_its_expiry() {
    let quota = Quota::new(1, 1).unwrap();
    let opening = |name: &str, ms| quota.window(&name.parse().unwrap(), Timestamp::from_unix_ms(ms));
    let opens_at = opening("early-0", 1_000_000).opens_at().unix_ms();
    // Windows of different workspaces open at different times. These open together.
    let names = |group: &str, count: usize| {
        let all = (0_u32..).map(|n| format!("{group}-{n}"));
        let together = all.filter(|name| opening(name, opens_at).opens_at().unix_ms() == opens_at);
        together.take(count).collect::<Vec<_>>()
    };
    let (early, late) = (names("early", 100), names("late", 1_000));
    let expires_at = opening("early-0", opens_at).expires_at().unix_ms();
    for (last, is_kept) in [(expires_at - 1_000, true), (expires_at, false)] {
        let table = WindowTable::default();
        // The first counter of each workspace expires before the second one.
        for ms in [opens_at - 1_000, opens_at] {
            early.iter().for_each(|name| assert_eq!(block_on(table.count(&opening(name, ms))).unwrap(), 1));
        }
        late.iter().for_each(|name| assert_eq!(block_on(table.count(&opening(name, last))).unwrap(), 1));
        assert_eq!(format!("{table:?}").contains("early-"), is_kept, "{last}");
    }
}

#[test]
fn keeps_only_windows_of_late_requests() {
    let table = WindowTable::default();
    for minute in 0..100 {
        let now = Timestamp::from_unix_ms(minute * 60_000);
        let window = Quota::default().window(&workspace("demo").id, now);
        assert_eq!(block_on(table.count(&window)).unwrap(), 1);
    }
    assert_eq!(format!("{table:?}").matches("window: ").count(), 2, "the current one and the one before");
}
