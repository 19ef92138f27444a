//! Limits of the system on files. With a low limit on open files, connections never use the descriptors that
//! stores and vendors need.
#![cfg(target_os = "linux")]

use std::process::Stdio;

use crate::enrich::admin::ADMIN;
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Client, Enrich, Server, dial, eventually};

const CLIENTS: usize = 100;

/// Creates a workspace and a configuration with one vendor that sends one request per lookup.
fn world(vendor: &Vendor) -> (Enrich, String, String) {
    let (enrich, key) = Enrich::with_key(1_000_000, 1_000_000);
    let config = vendor.configure(&enrich, "").to_str().unwrap().to_owned();
    (enrich, key, config)
}

/// Checks that concurrent lookups of all clients succeed.
fn assert_all_are_answered(clients: &mut [Client], key: &str, when: &str) {
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || {
                for nth in 0..5 {
                    let reply = client.enrich(key, &format!("ada{nth}@gmail.com")).unwrap();
                    assert_eq!(reply.status, 200, "{when}: {}", reply.body);
                }
            });
        }
    });
}

#[test]
fn vendors_stay_reachable_when_clients_use_every_connection() {
    let vendor = Vendor::that(Behavior::Matches("ada"));
    let (enrich, key, config) = world(&vendor);
    let server = enrich.try_serve_with_open_files(128, &["ENRICH_WORKERS=1", "--config", &config]).unwrap();
    let pages = ["ENRICH_CONSOLE_LISTEN=127.0.0.1:0", ADMIN];
    for (limit, listeners, needed) in [(48, &[][..], 88), (662, &pages, 664)] {
        let args = [&["ENRICH_WORKERS=1"], listeners].concat();
        let refused = enrich.try_serve_with_open_files(limit, &args).err().unwrap();
        let advice = format!("raise it to {needed} ");
        assert!(refused.contains(&format!("{limit}, is too low")) && refused.contains(&advice), "{refused}");
    }
    let before = server.open_files();
    let mut customers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    // Only connections with a valid key are kept open at the limit.
    assert_all_are_answered(&mut customers, &key, "before the clients connect");
    let clients: Vec<_> = (0..CLIENTS).map(|_| dial(server.address()).unwrap()).collect();
    eventually("clients are accepted", || {
        (server.open_files() > before + customers.len() as u64).then_some(())
    });
    assert_all_are_answered(&mut customers, &key, "while clients are connected");
    drop(clients);
    assert_all_are_answered(&mut customers, &key, "after they left");
    assert_all_are_answered(&mut [server.connect()], &key, "on a new connection");
    let log = server.stop();
    let warning = "the limit on open files allows fewer connections than `connections.max`";
    assert!(log.contains(warning) && log.contains("limit=128"), "{log}");
    assert!(!log.contains("cannot accept connections"), "{log}");
}

/// The shell counts blocks of 512 bytes.
#[test]
fn limit_on_the_size_of_a_file_is_like_a_full_disk() {
    const SCRIPT: &str = "ulimit -f 512 && exec \"$0\" \"$@\"";
    let (enrich, key) = Enrich::with_key(100_000, 1_000_000);
    let people = |count: u32| {
        let rows = (0..count).map(|n| format!("user{n}@gmail.com,linkedin.com/in/user-{n}\n"));
        format!("email,linkedin_url\n{}", rows.collect::<String>())
    };
    let few = enrich.file("few.csv", people(1));
    enrich.ok(&["people", "import", few.to_str().unwrap()]);

    let many = enrich.file("many.csv", people(20_000));
    let import = enrich.shell(SCRIPT, &["people", "import", many.to_str().unwrap()]).output().unwrap();
    assert_eq!(import.status.code(), Some(1), "{import:?}");
    assert_eq!(enrich.json(&["people", "stats", "--json"])["people"], 1);

    let mut serve = enrich.shell(SCRIPT, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::start(serve.env("ENRICH_LOG", "info").stdin(Stdio::null())).unwrap();
    let ask = |email: &str| server.connect().enrich(&key, email).unwrap().status;
    let spent = (0..5_000).take_while(|_| ask("user0@gmail.com") == 200).count();
    assert_eq!((ask("user0@gmail.com"), ask("user1@gmail.com")), (500, 404), "after {spent} lookups");
    server.terminate();
    let (code, log) = server.end();
    assert!(code.is_some(), "no signal ends it: {log}");
    assert_eq!(enrich.spent(), spent as u64);
}
