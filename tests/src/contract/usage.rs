//! Rules for usage by day, key and outcome.

use std::sync::Arc;
use std::time::Duration;

use enrich_lib::key::KeyId;
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::observe::{Ending, LookupEvent};
use enrich_lib::refusal::Refusal;
use enrich_store::StoreError;
use enrich_store::records::SpendPage;
use enrich_store::usage::{BILLED, Day, UsageRow};

use super::operator::{Operator, admin_at, after_seconds, key, today};
use super::{Administered, START};

/// Generates the tests of the rules for usage. `$open` returns a fresh store (`Arc<impl Administered>`).
#[macro_export]
macro_rules! usage_contract {
    ($open:expr) => {
        $crate::rules! { usage, $open,
            usage_counts_billed_lookups_by_day_and_key
            billed_lookups_count_on_the_day_of_their_arrival
            usage_counts_free_lookups_by_outcome
            usage_ignores_events_without_a_key_and_billed_ones
            usage_is_restricted_to_workspace_and_days
            late_spend_is_counted_once
            repeated_spend_is_counted_once
            key_list_counts_uses_of_30_days
            audit_reconciles_with_usage
            spends_are_listed_by_lookup_id
            spends_are_listed_in_pages
        }
    };
}

const DAY: Duration = Duration::from_secs(86_400);

pub async fn usage_counts_billed_lookups_by_day_and_key<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let (one, two) = (KeyId::from_number(1), KeyId::from_number(u32::MAX));
    for (key, credits) in [(one, 1), (one, 2), (two, 1)] {
        operator.bill(key, credits, START).await;
    }
    operator.store.tick(START).await;
    assert_eq!(usage(&mut operator).await, [billed(today(), one, 2, 3), billed(today(), two, 1, 1)]);
    operator.bill(two, 1, after_seconds(1)).await;
    let tomorrow = START + DAY;
    operator.store.tick(tomorrow).await;
    operator.bill(one, 1, tomorrow).await;
    operator.store.tick(tomorrow).await;
    let expected = [
        billed(today(), one, 2, 3),
        billed(today(), two, 2, 2),
        billed(Day::from_number(today().number() + 1), one, 1, 1),
    ];
    assert_eq!(usage(&mut operator).await, expected);
}

pub async fn billed_lookups_count_on_the_day_of_their_arrival<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let midnight = Day::from_number(today().number() + 1).starts_at();
    let before = Timestamp::from_unix_ms(midnight.unix_ms() - 1);
    operator.store.tick(before).await;
    let key = KeyId::from_number(1);
    operator.bill(key, 1, before).await;
    operator.store.tick(midnight).await;
    operator.bill(key, 1, midnight).await;
    operator.store.tick(midnight).await;
    let expected = [billed(today(), key, 1, 1), billed(Day::from_timestamp(midnight), key, 1, 1)];
    assert_eq!(usage(&mut operator).await, expected);
}

pub async fn usage_counts_free_lookups_by_outcome<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let key = KeyId::from_number(1);
    operator.bill(key, 1, START).await;
    for ending in [Ending::NotFound, Ending::Refused(Refusal::RateLimited), Ending::NotFound] {
        operator.store.usage().record(&event(&operator.workspace, Some(key), ending, 0));
    }
    operator.store.tick(START).await;
    operator.store.usage().record(&event(&operator.workspace, Some(key), Ending::NotFound, 0));
    operator.store.tick(START).await;
    let free =
        |outcome: &str, lookups| UsageRow { outcome: outcome.to_owned(), ..billed(today(), key, lookups, 0) };
    let expected = [billed(today(), key, 1, 1), free("not_found", 3), free("rate_limited", 1)];
    assert_eq!(usage(&mut operator).await, expected);
}

pub async fn usage_ignores_events_without_a_key_and_billed_ones<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let key = KeyId::from_number(1);
    operator.store.usage().record(&event(&operator.workspace, None, Ending::NotFound, 0));
    operator.store.usage().record(&event(&operator.workspace, Some(key), Ending::Found, 1));
    operator.store.tick(START).await;
    assert_eq!(usage(&mut operator).await, []);
}

pub async fn usage_is_restricted_to_workspace_and_days<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let other = operator.create_workspace("other").await;
    let key = KeyId::from_number(1);
    operator.bill(key, 1, START).await;
    operator.bill_in(&other, key, 2, START).await;
    operator.store.tick(START).await;
    for (workspace, credits) in [(&operator.workspace, 1), (&other, 2)] {
        let row = billed(today(), key, 1, credits);
        for (first, last, expected) in [
            (today(), today(), vec![row.clone()]),
            (today().minus(30), Day::from_number(u32::MAX), vec![row]),
            (today().minus(30), today().minus(1), vec![]),
            (Day::from_number(today().number() + 1), Day::from_number(today().number() + 9), vec![]),
            (today(), today().minus(1), vec![]),
        ] {
            assert_eq!(operator.accounts.usage(workspace, first, last).await.unwrap(), expected);
        }
    }
}

pub async fn late_spend_is_counted_once<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let key = KeyId::from_number(1);
    operator.store.tick(after_seconds(2)).await;
    for seconds in [2, 1, 0, 1, 2] {
        // Its id sorts before those of spends that usage includes already.
        operator.bill(key, 1, after_seconds(seconds)).await;
        operator.store.tick(after_seconds(2)).await;
    }
    assert_eq!(usage(&mut operator).await, [billed(today(), key, 5, 5)]);
}

pub async fn repeated_spend_is_counted_once<S: Administered>(store: Arc<S>) {
    use enrich_lib::credit::{Hold, Settlement};

    let mut operator = Operator::open(store).await;
    let key = KeyId::from_number(1);
    let mut hold = Hold::new(LookupId::new(START, [1; 10]), operator.workspace.clone(), 1);
    hold.key = key;
    operator.store.credits().hold(&hold).await.unwrap();
    for _ in 0..2 {
        operator.store.credits().settle(&hold, Settlement::Spend(1)).await.unwrap();
        operator.store.tick(START).await;
    }
    assert_eq!(usage(&mut operator).await, [billed(today(), key, 1, 1)]);
}

pub async fn key_list_counts_uses_of_30_days<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    operator.create_key(&key(2), None).await;
    operator.bill(id, 2, START).await;
    operator.store.usage().record(&event(&operator.workspace, Some(id), Ending::NotFound, 0));
    operator.store.tick(START).await;
    for (days_later, uses) in [(0, 2), (29, 2), (30, 0)] {
        let today = Day::from_number(today().number() + days_later);
        let keys = operator.accounts.keys(&operator.workspace, today).await.unwrap();
        assert_eq!(keys.iter().map(|key| key.uses).collect::<Vec<_>>(), [uses, 0], "{days_later} days later");
    }
}

pub async fn audit_reconciles_with_usage<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    for n in 0..3 {
        operator.bill(KeyId::from_number(n), 1, START).await;
        let audit = operator.accounts.audit().await.unwrap();
        assert!(audit.reconciles(), "{audit:?}");
        operator.store.tick(START).await;
        let audit = operator.accounts.audit().await.unwrap();
        assert!(audit.reconciles(), "{audit:?}");
    }
}

fn billed(day: Day, key: KeyId, lookups: u64, credits: u64) -> UsageRow {
    UsageRow { day, key, outcome: BILLED.to_owned(), lookups, credits }
}

fn event(workspace: &WorkspaceId, key: Option<KeyId>, ending: Ending, credits_spent: u64) -> LookupEvent<'_> {
    let mut event = LookupEvent::new(LookupId::new(START, [9; 10]), ending);
    (event.workspace, event.key, event.credits_spent) = (Some(workspace), key, credits_spent);
    event
}

/// Returns all usage of the workspace.
async fn usage<S: Administered>(operator: &mut Operator<S>) -> Vec<UsageRow> {
    let last = Day::from_number(u32::MAX);
    operator.accounts.usage(&operator.workspace, Day::default(), last).await.unwrap()
}

pub async fn spends_are_listed_by_lookup_id<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let other = operator.create_workspace("other").await;
    for (credits, at) in [(1, START - DAY), (2, START), (3, after_seconds(1)), (4, START + DAY)] {
        operator.bill(id, credits, at).await;
    }
    operator.bill_in(&other, id, 9, START).await;
    operator.store.tick(START).await; // commits what was acknowledged early
    let (first, end) = (today().first_lookup(), today().next().first_lookup());
    let page = operator.accounts.spends(&operator.workspace, first, end).await.unwrap();
    let credits: Vec<_> =
        page.rows.iter().map(|row| (row.credits, row.at, row.key, row.refunded_at)).collect();
    assert_eq!(credits, [(2, START, id, None), (3, after_seconds(1), id, None)]);
    assert_eq!(page.next, None);
    let refunded = page.rows[0].lookup_id;
    operator.accounts.refund(refunded, "", &admin_at(after_seconds(5))).await.unwrap();
    let page = operator.accounts.spends(&operator.workspace, first, end).await.unwrap();
    let refunds: Vec<_> = page.rows.iter().map(|row| row.refunded_at).collect();
    assert_eq!(refunds, [Some(after_seconds(5)), None]);
    let unknown = "unknown".parse().unwrap();
    let page = operator.accounts.spends(&unknown, first, end).await;
    assert!(matches!(page, Err(StoreError::UnknownWorkspace(_))), "{page:?}");
}

pub async fn spends_are_listed_in_pages<S: Administered>(store: Arc<S>) {
    let mut operator = Operator::open(store).await;
    let id = operator.create_key(&key(1), None).await;
    let other = operator.create_workspace("other").await;
    operator.accounts.grant(&other, 20_000, START).await.unwrap();
    operator.store.tick(START).await;
    operator.bill(id, 1, START).await;
    for _ in 0..SpendPage::SPENDS_READ_MAX / 1_000 {
        operator.bill_many(&other, id, 1_000).await;
    }
    operator.bill(id, 1, START + Duration::from_millis(1)).await;
    operator.store.tick(START).await; // commits what was acknowledged early
    let (mut next, end, mut pages) =
        (Some(today().first_lookup()), today().next().first_lookup(), Vec::new());
    while let Some(first) = next {
        let page = operator.accounts.spends(&operator.workspace, first, end).await.unwrap();
        next = page.next;
        pages.push(page.rows.len());
    }
    assert_eq!(pages, [1, 1]);
}
