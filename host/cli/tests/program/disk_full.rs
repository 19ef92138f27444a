//! A disk that fills up under a running server and later has free space again. No lookup is free, no failed
//! lookup is charged, and no restart is needed.
#![cfg(target_os = "linux")]

use std::ops::Range;

use crate::enrich::admin::{ADMIN, Scrape, wait_until_failed, wait_until_ready};
use crate::enrich::disk::{Disk, lasting_locks, with_mounts};
use crate::enrich::{Client, EMAIL, Enrich, Reply, Server, eventually};
use serde_json::json;

const CLIENTS: usize = 16;
const GRANTED: u64 = 1_000;
#[test]
fn full_disk_fails_lookups_for_free_until_it_has_space() {
    with_mounts("disk_full::full_disk_fails_lookups_for_free_until_it_has_space", || {
        let shop = Shop::new();
        let server = shop.enrich.serve(&[ADMIN]);
        let admin = server.admin();
        wait_until_ready(admin);
        assert_all(&ask_at_once(&server, &shop.key), 200);
        assert_eq!(shop.spent(), CLIENTS as u64);
        let locks = lasting_locks(server.pid());
        assert!(!locks.is_empty(), "SQLite locks the files that it has open");

        shop.disk.fill();
        let reason = wait_until_failed(admin, "disk");
        assert!(reason.contains("No space left on device") && reason.contains("data"), "{reason}");
        let refused = std::thread::scope(|scope| {
            let refused = scope.spawn(|| ask_at_once(&server, &shop.key));
            shop.what_costs_nothing_is_answered(&server);
            refused.join().unwrap()
        });
        assert_all(&refused, 500);
        for reply in &refused {
            assert_eq!(reply.body, json!({"error": "server_error"}));
        }
        assert_eq!(shop.spent(), CLIENTS as u64, "the accounts can be read, and nothing was charged");
        shop.what_costs_nothing_is_answered(&server);
        let scrape = Scrape::of(admin);
        assert!(scrape.value("enrich_commit_failures_total").unwrap() >= 1.0);
        assert_eq!(scrape.value(r#"enrich_port_failures_total{port="settle"}"#), Some(CLIENTS as f64));

        shop.disk.make_room();
        wait_until_ready(admin);
        assert_all(&ask_at_once(&server, &shop.key), 200);
        for round in 2..=3 {
            shop.disk.fill();
            assert_all(&ask_at_once(&server, &shop.key), 500);
            shop.disk.make_room();
            assert_all(&ask_at_once(&server, &shop.key), 200);
            assert_eq!(lasting_locks(server.pid()), locks, "round {round}");
        }
        // Without its lock, the server would end at one of these commands: the next process would truncate the
        // shared memory.
        for _ in 0..20 {
            shop.enrich.ok(&["credits", "grant", "poor", "1"]);
            assert_all(&ask_at_once(&server, &shop.key), 200);
        }
        let spent = 24 * CLIENTS as u64;
        assert_eq!(shop.spent(), spent, "as many as were answered with 200");

        let log = server.stop();
        assert!(log.contains("full"), "the log names the reason: {log}");
        assert_eq!(shop.credits()["held"], 0);
        assert_eq!(shop.spent(), spent);
        assert_eq!(shop.credits()["available"], GRANTED - spent);
    });
}

#[test]
fn import_larger_than_the_disk_changes_nothing() {
    with_mounts("disk_full::import_larger_than_the_disk_changes_nothing", || {
        let shop = Shop::new();
        let server = shop.enrich.serve(&[]);
        assert_all(&ask_at_once(&server, &shop.key), 200);
        // After an import, lookups read from the write-ahead log, so it cannot be truncated while they run.
        shop.enrich.ok(&["people", "import", &shop.people("few.csv", 1..2)]);
        let is_found = || server.connect().enrich(&shop.key, "user1@gmail.com").unwrap().status == 200;
        eventually("the import is seen", || is_found().then_some(()));
        let spent = shop.spent();

        let output = shop.enrich.err(&["people", "import", &shop.people("many.csv", 2..60_000)]);
        for expected in ["full; free space on the disk of the data directory", "run the same command again"] {
            assert!(output.contains(expected), "{output}");
        }
        assert_eq!(shop.enrich.json(&["people", "stats", "--json"])["people"], 2);

        assert_all(&ask_at_once(&server, &shop.key), 200);
        assert_eq!(shop.spent(), spent + CLIENTS as u64);
    });
}

/// A data directory on its own disk, with a workspace with credits, one without, and one person.
struct Shop {
    // Field order matters: the disk must be unmounted before the directory below it is removed.
    disk: Disk,
    enrich: Enrich,
    key: String,
    key_without_credits: String,
    key_revoked: String,
}

impl Shop {
    fn new() -> Self {
        let enrich = Enrich::new();
        let disk = Disk::mount(enrich.data());
        enrich.ok(&["workspace", "create", "demo", "--credits", &GRANTED.to_string(), "--limit", "1000000"]);
        enrich.ok(&["workspace", "create", "poor"]);
        let create = |name| enrich.ok(&["key", "create", name, "test"]);
        let (key, key_revoked) = (create("demo"), create("poor"));
        enrich.ok(&["key", "revoke", &enrich.key_id("poor", 0)]);
        let key_without_credits = create("poor");
        enrich.import_ada();
        Self { disk, enrich, key, key_without_credits, key_revoked }
    }

    /// Writes a file with these people and returns its path.
    fn people(&self, file: &str, numbers: Range<u32>) -> String {
        let rows: String = numbers.map(|n| format!("user{n}@gmail.com,linkedin.com/in/user-{n}\n")).collect();
        self.enrich.file(file, format!("email,linkedin_url\n{rows}")).to_str().unwrap().to_owned()
    }

    fn what_costs_nothing_is_answered(&self, server: &Server) {
        for (key, email, status) in [
            (&self.key, "bea@gmail.com", 404),
            (&self.key, "bea", 400),
            (&self.key, "info@gmail.com", 400),
            (&self.key_revoked, EMAIL, 401),
            (&self.key_without_credits, EMAIL, 402),
        ] {
            let reply = server.connect().enrich(key, email).unwrap();
            assert_eq!(reply.status, status, "{email}: {}", reply.body);
        }
    }

    fn credits(&self) -> serde_json::Value {
        self.enrich.credits("demo")
    }

    fn spent(&self) -> u64 {
        let credits = self.credits();
        let [granted, available, held, spent] =
            ["granted", "available", "held", "spent"].map(|name| credits[name].as_u64().unwrap());
        assert_eq!((granted, GRANTED), (GRANTED, available + held + spent), "{credits}");
        spent
    }
}

fn ask_at_once(server: &Server, key: &str) -> Vec<Reply> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    let ask = |mut client: Client| client.enrich(key, EMAIL).unwrap();
    std::thread::scope(|scope| {
        let requests: Vec<_> = clients.into_iter().map(|client| scope.spawn(move || ask(client))).collect();
        requests.into_iter().map(|requests| requests.join().unwrap()).collect()
    })
}

fn assert_all(replies: &[Reply], status: u16) {
    for reply in replies {
        assert_eq!(reply.status, status, "{}", reply.body);
    }
}
