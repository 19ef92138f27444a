//! A disk whose syncs hang or fail. A 5xx promises that nothing was billed, also across a crash of the
//! server: after a restart, the spends are those of the lookups that were answered with 200, and of some that
//! had no answer.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::enrich::{Client, EMAIL, Enrich, Server, Signal, eventually, preload};

const CLIENTS: usize = 16;
#[test]
fn hanging_sync_then_kill_bills_no_lookup_that_failed() {
    let shop = Shop::new();
    let server = shop.serve();
    let results = Results::default();
    shop.set_sync("ok");
    results.look_up(server.connect(), &shop.key);
    assert_eq!(results.found.load(Ordering::SeqCst), 1);

    shop.fail_behind_a_commit(&server, &results, || server.signal(Signal::KILL));
    drop(server);
    assert_eq!(results.found.load(Ordering::SeqCst), 1);
    let ended = results.failed.load(Ordering::SeqCst) + results.unanswered.load(Ordering::SeqCst);
    assert_eq!(ended, CLIENTS as u64);
    shop.check(&results);
}

#[test]
fn failed_sync_ends_the_server_without_an_answer() {
    let shop = Shop::new();
    let server = shop.serve();
    let results = Results::default();
    results.look_up(server.connect(), &shop.key);
    // A tick may end the server before the first lookup.
    let clients = [(); CLIENTS].map(|()| server.connect());
    shop.set_sync("fail");
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| results.look_up(client, &shop.key));
        }
    });
    let (status, log) = server.end();
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("the disk failed to store a commit"), "{log}");
    assert!(results.unanswered.load(Ordering::SeqCst) > 0);
    shop.check(&results);
}

#[test]
fn sync_that_fails_during_a_shutdown_ends_it_without_an_answer() {
    // A tick writes the use of the key. If its commit is the one that hangs, that of the lookup has not
    // begun, and the lookup fails.
    let was_lookup = (0..10).any(|_| fail_a_sync_during_a_shutdown().unanswered.load(Ordering::SeqCst) == 1);
    assert!(was_lookup, "each lookup was answered");
}

/// Fails the sync of a commit while the server stops.
fn fail_a_sync_during_a_shutdown() -> Results {
    let shop = Shop::new();
    let server = shop.serve();
    let results = Results::default();
    shop.during_a_commit(&server, &results, || {
        server.terminate();
        server.wait_for_log("SIGTERM: stopping", 1);
        shop.set_sync("fail");
    });
    assert_eq!(results.found.load(Ordering::SeqCst), 0);
    let (status, log) = server.end();
    assert_eq!(status, Some(1), "{log}");
    shop.check(&results);
    results
}

/// A shop whose server runs with the preloaded library.
struct Shop {
    enrich: Enrich,
    key: String,
    library: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let (enrich, key) = Enrich::with_key(1_000, 1_000_000);
        enrich.import_ada();
        let library = preload::library(&enrich, "failing_sync");
        let shop = Self { enrich, key, library };
        shop.set_sync("ok");
        shop
    }

    fn serve(&self) -> Server {
        let (library, mode) = (self.library.display(), self.mode());
        self.enrich.serve(&[&format!("LD_PRELOAD={library}"), &format!("FAILING_SYNC={}", mode.display())])
    }

    fn mode(&self) -> PathBuf {
        self.enrich.path("sync")
    }

    /// Replaces the mode at once, so that the server reads no half of it.
    fn set_sync(&self, mode: &str) {
        let new = self.enrich.file("sync.new", mode);
        fs::rename(new, self.mode()).unwrap();
    }

    /// Sends a lookup whose commit hangs, runs `step` meanwhile, and waits for the end of the lookup.
    fn during_a_commit(&self, server: &Server, results: &Results, step: impl FnOnce()) {
        self.set_sync("hang");
        std::thread::scope(|scope| {
            let client = server.connect();
            scope.spawn(|| results.look_up(client, &self.key));
            eventually("a commit", || self.is_committing().then_some(()));
            step();
        });
    }

    /// Sends lookups of which the first hangs in its commit, and runs `step` when the others have failed.
    fn fail_behind_a_commit(&self, server: &Server, results: &Results, step: impl FnOnce()) {
        std::thread::scope(|scope| {
            self.during_a_commit(server, results, || {
                for _ in 1..CLIENTS {
                    let client = server.connect();
                    scope.spawn(|| results.look_up(client, &self.key));
                }
                // All of them, if the commit is that of a tick.
                let failed = || results.failed.load(Ordering::SeqCst) >= CLIENTS as u64 - 1;
                eventually("the others fail", || failed().then_some(()));
                step();
            });
        });
    }

    /// Returns whether the writer hangs in a sync, which the library reports with a file.
    fn is_committing(&self) -> bool {
        self.enrich.path("sync.hangs").exists()
    }

    /// Compares the spends after a restart on a healthy disk with the answers.
    fn check(&self, results: &Results) {
        self.set_sync("ok");
        let server = self.serve();
        let [found, unanswered] =
            [&results.found, &results.unanswered].map(|count| count.load(Ordering::SeqCst));
        let spent = self.enrich.spent();
        assert!(
            (found..=found + unanswered).contains(&spent),
            "{spent} spent, {found} found, {unanswered} unanswered"
        );
        self.enrich.ok(&["check"]);
        server.stop();
    }
}

/// The answers of lookups.
#[derive(Default)]
struct Results {
    found: AtomicU64,
    failed: AtomicU64,
    unanswered: AtomicU64,
}

impl Results {
    fn look_up(&self, mut client: Client, key: &str) {
        let count = match client.enrich(key, EMAIL) {
            Ok(reply) if reply.status == 200 => &self.found,
            Ok(reply) => {
                assert_eq!(reply.status, 500, "{}", reply.body);
                &self.failed
            }
            Err(_) => &self.unanswered,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}
