//! A server with a low limit on open files: connections never use the descriptors that stores and vendors
//! need.
#![cfg(target_os = "linux")]

use std::fs;

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

fn open_files(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

#[test]
fn vendors_stay_reachable_when_clients_use_every_connection() {
    let vendor = Vendor::that(Behavior::Matches("ada"));
    let (enrich, key, config) = world(&vendor);
    let server = enrich.try_serve_with_open_files(128, &["ENRICH_WORKERS=1", "--config", &config]).unwrap();
    let before = open_files(&server);
    let mut customers: Vec<_> = (0..3).map(|_| server.connect()).collect();
    // Only connections with a valid key are kept open at the limit.
    assert_all_are_answered(&mut customers, &key, "before the clients connect");
    let clients: Vec<_> = (0..CLIENTS).map(|_| dial(server.address()).unwrap()).collect();
    eventually("clients are accepted", || (open_files(&server) > before + customers.len()).then_some(()));
    assert_all_are_answered(&mut customers, &key, "while clients are connected");
    drop(clients);
    assert_all_are_answered(&mut customers, &key, "after they left");
    assert_all_are_answered(&mut [server.connect()], &key, "on a new connection");
    let log = server.stop();
    let warning = "the limit on open files allows fewer connections than `connections.max`";
    assert!(log.contains(warning) && log.contains("limit=128"), "{log}");
    assert!(!log.contains("cannot accept connections"), "{log}");
}
