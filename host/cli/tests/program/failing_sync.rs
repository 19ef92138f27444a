//! A disk whose syncs fail. A 5xx promises that nothing was billed, also across a crash of the server: after a
//! restart, the spends are those of the lookups that were answered with 200, and of some that had no answer.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::enrich::{Client, EMAIL, Enrich, Server, preload};

const CLIENTS: usize = 16;

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
