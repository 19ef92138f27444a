//! A disk whose syncs fail, or whose reads hang. A 5xx promises that nothing was billed, also across a crash of
//! the server: after a restart, the spends are those of the lookups that were answered with 200, and of some that
//! had no answer.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::enrich::admin::{ADMIN, wait_until_failed, wait_until_ready};
use crate::enrich::{Client, EMAIL, Enrich, Ran, Server, eventually, preload};

const CLIENTS: usize = 16;

const UNKNOWN_KEY: &str = "enr_k6faH4HGSo4DEJ05kMZqZGZbFQEyfAdK41tVZc";

#[test]
fn failed_sync_ends_the_server_without_an_answer() {
    let shop = Shop::new();
    let server = shop.serve(&[]);
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

/// After a crash, such a commit can be recovered.
#[test]
fn command_whose_sync_fails_says_that_its_change_may_have_been_made() {
    let shop = Shop::new();
    shop.set_sync("fail");
    for args in [&["credits", "grant", "demo", "10"][..], &["key", "create", "demo", "till"]] {
        let ran = Ran::of(shop.enrich.command(args).envs(shop.preload()).output().unwrap());
        assert!(!ran.success && ran.stderr.contains("the disk failed to store a commit"), "{}", ran.stderr);
        assert!(ran.stderr.contains("the change may have been made; "), "{}", ran.stderr);
    }
}

/// While one lookup, or the server itself, waits for the disk, the others do not use what may have changed.
#[test]
fn read_that_hangs_delays_neither_opt_outs_nor_revocations() {
    let shop = Shop::new();
    let id = shop.enrich.key_id("demo", 0);
    let opt_out = |email: &str| drop(shop.enrich.ok(&["people", "opt-out", email]));
    for (mode, email, served) in [("people", EMAIL, 200), ("accounts", "bea@gmail.com", 404)] {
        let server = shop.serve(&[]);
        let (replies, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for (n, mut client) in (0..CLIENTS).map(|n| (n, server.connect())) {
                let (shop, replies, is_over) = (&shop, &replies, &is_over);
                // A few send a key that is unknown, and must be read.
                let is_unknown = n % 4 == 0;
                scope.spawn(move || {
                    let given_up = Instant::now() + Duration::from_secs(60);
                    while !is_over.load(Ordering::SeqCst) && Instant::now() < given_up {
                        let begun = Instant::now();
                        let key = if is_unknown { UNKNOWN_KEY } else { &shop.key };
                        let status = client.enrich(key, email).unwrap().status;
                        if !is_unknown {
                            replies.lock().unwrap().push((begun, status));
                        }
                    }
                });
            }
            let late = |from: Instant| -> Vec<_> {
                let replies = replies.lock().unwrap();
                replies.iter().filter(|(begun, _)| *begun > from).map(|(_, status)| *status).collect()
            };
            let started = Instant::now();
            eventually("it serves", || late(started).contains(&served).then_some(()));
            shop.set_sync(mode);
            if mode == "people" {
                opt_out("cat@gmail.com");
                shop.wait_until_a_read_hangs();
                opt_out(EMAIL);
            } else {
                shop.enrich.ok(&["key", "revoke", &id]);
                shop.wait_until_a_read_hangs();
            }
            let from = Instant::now() + Duration::from_millis(1_300);
            let statuses = eventually("others are answered", || Some(late(from)).filter(|it| it.len() > 20));
            shop.set_sync("ok");
            is_over.store(true, Ordering::SeqCst);
            assert!(!statuses.contains(&served), "{mode}: {statuses:?}");
        });
        server.stop();
    }
}

/// Separate threads wait for the disk, so the server accepts connections and reports the check that fails.
#[test]
fn disk_that_hangs_blocks_no_connection_and_is_reported() {
    let shop = Shop::new();
    shop.enrich.ok(&["workspace", "create", "new"]);
    let new = shop.enrich.ok(&["key", "create", "new", "till"]);
    let server = shop.serve(&[ADMIN]);
    let reply = |key: &str, email: &str| server.connect().enrich(key, email).unwrap().status;
    let create_key = &["key", "create", "demo", "new"][..];
    let opt_out = &["people", "opt-out", "cat@gmail.com"][..];
    let grant = &["credits", "grant", "new", "10"][..];
    // In the third case, the key is in memory, and its workspace is not.
    assert_eq!(reply(&new, "invalid"), 400);
    for (mode, key, change, check) in [
        ("keys", &shop.key, create_key, "accounts"),
        ("people", &shop.key, opt_out, "people"),
        ("accounts", &new, grant, "accounts"),
        ("sync", &shop.key, &[], "accounts"),
    ] {
        let status = || reply(key, EMAIL);
        wait_until_ready(server.admin());
        assert_eq!(reply(&shop.key, EMAIL), 200, "{mode}");
        shop.set_sync(mode);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if !change.is_empty() {
                shop.enrich.ok(change);
            }
            if mode != "keys" {
                // Lookups that wait for their reads and commits.
                scope.spawn(|| {
                    let started = Instant::now();
                    while !is_over.load(Ordering::SeqCst) && started.elapsed() < Duration::from_secs(60) {
                        status();
                    }
                });
            }
            wait_until_failed(server.admin(), check);
            assert!(!matches!(mode, "keys" | "accounts") || status() == 500, "{mode}");
            shop.set_sync("ok");
            is_over.store(true, Ordering::SeqCst);
        });
    }
    wait_until_ready(server.admin());
    let log = server.stop();
    for (check, least) in [("accounts", 3), ("people", 1)] {
        let lines = |result: &str| {
            let of_check = |line: &&str| line.contains(result) && line.contains(&format!("check={check:?}"));
            log.lines().filter(of_check).count()
        };
        let failures = lines("a check of /readyz fails");
        assert!(failures >= least && failures == lines("a check of /readyz succeeds again"), "{log}");
    }
}

/// A shop whose server runs with the preloaded library.
struct Shop {
    enrich: Enrich,
    key: String,
    library: PathBuf,
}

impl Shop {
    fn new() -> Self {
        let (enrich, key) = Enrich::with_ada(1_000_000, 1_000_000);
        let library = preload::library(&enrich, "failing_sync");
        let shop = Self { enrich, key, library };
        shop.set_sync("ok");
        shop
    }

    fn preload(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("FAILING_SYNC", self.mode())]
    }

    fn serve(&self, args: &[&str]) -> Server {
        let preload = self.preload().map(|(name, path)| format!("{name}={}", path.display()));
        self.enrich.serve(&[&preload.each_ref().map(String::as_str), args].concat())
    }

    fn wait_until_a_read_hangs(&self) {
        eventually("a read hangs", || self.enrich.path("sync.hangs").exists().then_some(()));
    }

    fn mode(&self) -> PathBuf {
        self.enrich.path("sync")
    }

    /// Replaces the mode at once, so that the server reads no half of it.
    fn set_sync(&self, mode: &str) {
        let _ = fs::remove_file(self.enrich.path("sync.hangs"));
        let new = self.enrich.file("sync.new", mode);
        fs::rename(new, self.mode()).unwrap();
    }

    /// Compares the spends after a restart on a healthy disk with the answers.
    fn check(&self, results: &Results) {
        self.set_sync("ok");
        let server = self.serve(&[]);
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
