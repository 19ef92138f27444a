//! Operators make changes while another process serves. The server applies them at its next tick, and those of keys at its next refresh.

use std::fs;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::thread;

use enrich_lib::key::{ApiKey, KeyId};
use enrich_lib::ports::Keys;
use enrich_lib::window::Quota;
use enrich_sqlite::{SqliteError, accounts, complete};
use enrich_store::records::NewKey;
use enrich_store::usage::Day;
use enrich_store::users::{Link, LinkPurpose, Role};
use enrich_store::workspace::WorkspaceChange;
use enrich_store::{Actor, Clocks, Ledger as _, TokenDigest};

use crate::world::{Files, START, World, after_seconds, key, open_ledger, poll, totals, workspace};

const OPERATOR: Actor<'_> = Actor::operator(START);

#[test]
fn dropped_ledger_with_queued_spends_keeps_lock() {
    let files = Files::with_credits(10);
    let mut work = None;
    drop(open_ledger(&files.dir, |writer| work = Some(writer)).unwrap());
    assert!(matches!(open_ledger(&files.dir, drop), Err(SqliteError::Served(_))));
    drop(work);
    assert!(open_ledger(&files.dir, drop).is_ok());
}

/// The web application commits with each request of a session.
#[test]
fn rejects_revoked_key_while_the_writer_waits_for_the_disk() {
    let world = World::with_credits(10);
    let id = create_key(&world, 1);
    assert!(world.finds(&key(1)));
    complete(world.admin().revoke_key(id, &OPERATOR)).unwrap();
    let mut tick = pin!(world.ledger.tick(Clocks::simulated(after_seconds(1))));
    assert!(poll(tick.as_mut()).is_pending(), "the writer does not run");
    world.ledger.refresh_keys().unwrap();
    assert!(!world.finds(&key(1)));
}

#[test]
fn rejects_revoked_key_after_a_second_without_a_refresh() {
    let world = World::with_credits(10);
    let id = create_key(&world, 1);
    assert!(world.finds(&key(1)));
    complete(world.admin().revoke_key(id, &OPERATOR)).unwrap();
    let finds_at = |ms| {
        world.elapsed_ms.store(ms, Ordering::Relaxed);
        world.finds(&key(1))
    };
    assert_eq!([999, 1_000].map(finds_at), [true, false]);
}

#[test]
fn commit_of_another_process_reads_only_changed_keys_again() {
    let world = World::with_credits(10);
    create_key(&world, 1);
    let mut admin = world.admin();
    complete(admin.create_workspace(&workspace("other"), Quota::default(), 0, START)).unwrap();
    let other =
        complete(admin.create_key(&NewKey::new(&workspace("other"), "first", &key(2)), &OPERATOR)).unwrap();
    world.tick(START);
    let quota_of_demo = || world.drive(world.ledger.find(&key(1).digest())).unwrap().unwrap().quota;
    let cached = quota_of_demo();
    assert!(world.finds(&key(2)));
    // Without an audit event, so that only a query would find it.
    world.sql().execute("UPDATE workspace SET quota_limit = quota_limit + 1 WHERE id = 'demo'", []).unwrap();
    // Events that change no key.
    complete(admin.grant(&workspace("demo"), 1, START)).unwrap();
    let invitation = Link {
        digest: TokenDigest::from_token(b"token"),
        workspace: workspace("demo"),
        purpose: LinkPurpose::Join(Role::Member),
        email: "ada@example.com".parse().unwrap(),
        created_by: "operator".to_owned(),
        created_at: START,
        expires_at: after_seconds(60),
    };
    world.drive(admin.create_link(&invitation, &OPERATOR)).unwrap();
    let ada = world.drive(admin.use_link(&invitation.digest, "$hash", &OPERATOR)).unwrap().unwrap();
    world.drive(admin.record_attempt(ada, false, &OPERATOR)).unwrap();
    complete(admin.revoke_key(other, &OPERATOR)).unwrap();
    world.tick(START);
    assert!(!world.finds(&key(2)));
    assert_eq!(quota_of_demo(), cached, "from the cache");
    let lower = WorkspaceChange::Quota { limit: Some(7), window_seconds: None };
    world.drive(admin.change_workspace(&workspace("demo"), &[lower], &OPERATOR)).unwrap();
    world.tick(START);
    assert_eq!(quota_of_demo().limit(), 7);
}

#[test]
fn key_list_shows_last_use_and_no_plaintext() {
    let world = World::with_credits(10);
    create_key(&world, 1);
    create_key(&world, 2);
    world.tick(after_seconds(5));
    assert!(world.finds(&key(1)) && world.finds(&key(1)));
    world.tick(after_seconds(6));
    let keys = complete(world.admin().keys(&workspace("demo"), Day::from_timestamp(START))).unwrap();
    let used: Vec<_> = keys.iter().map(|key| key.last_used_at).collect();
    assert_eq!(used, [Some(after_seconds(5)), None]);
    let used_key = key(1);
    assert!(!format!("{keys:?}").contains(&used_key.reveal()[8..]), "{keys:?}");

    for (used_at, shown) in [(7, 5), (64, 5), (65, 65)] {
        world.tick(after_seconds(used_at));
        assert!(world.finds(&key(1)));
        world.tick(after_seconds(used_at + 1));
        let keys = complete(world.admin().keys(&workspace("demo"), Day::from_timestamp(START))).unwrap();
        assert_eq!(keys[0].last_used_at, Some(after_seconds(shown)), "use is noted once a minute");
    }
}

#[test]
fn statistics_show_held_credits_and_the_database_does_not() {
    let world = World::with_credits(10);
    let (held, settled) = (world.hold(1), world.hold(2));
    let held_and_on_disk = || (world.ledger.statistics().credits_held, totals(world.on_disk()));
    world.tick(START);
    assert_eq!(held_and_on_disk(), (2, (10, 0, 0)));
    world.spend(&settled).unwrap();
    // Also if nothing uses the workspace between two ticks.
    world.tick(START);
    world.tick(START);
    assert_eq!(held_and_on_disk(), (1, (9, 0, 1)));
    world.tick(START + held.ttl);
    assert_eq!(held_and_on_disk(), (0, (9, 0, 1)));
}

#[test]
fn tick_without_changes_writes_nothing() {
    let world = World::with_credits(10);
    world.hold(1);
    world.tick(START);
    let log = || fs::read(world.path("accounts.db-wal")).unwrap();
    let before = log();
    world.tick(after_seconds(1));
    assert!(log() == before);
}

/// SQLite reports the lock at once when a new file is switched to the write-ahead log.
#[test]
fn open_waits_for_another_process_that_creates_the_accounts() {
    let files = Files::new();
    let other = files.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    thread::scope(|scope| {
        let opening = scope.spawn(|| accounts(&files.dir).map(drop));
        // Gives the thread the time to fail.
        (0..100_000).take_while(|_| !opening.is_finished()).for_each(|_| thread::yield_now());
        other.execute_batch("ROLLBACK").unwrap();
        opening.join().unwrap().unwrap();
    });
}

#[test]
fn concurrent_creation_makes_one_set_of_accounts() {
    let files = Files::new();
    thread::scope(|scope| {
        for n in 0..8 {
            let dir = &files.dir;
            scope.spawn(move || {
                let mut admin = accounts(dir).unwrap();
                complete(admin.create_workspace(&workspace(&format!("w{n}")), Default::default(), 1, START))
                    .unwrap();
            });
        }
    });
    assert_eq!(complete(files.admin().workspaces()).unwrap().len(), 8);
}

fn create_key(files: &Files, seed: u8) -> KeyId {
    let key: ApiKey = key(seed);
    complete(files.admin().create_key(&NewKey::new(&workspace("demo"), "test", &key), &OPERATOR)).unwrap()
}
