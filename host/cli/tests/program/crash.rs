//! `kill -9` of the real process under load, 50 times. Every acknowledged lookup is billed, and nothing else
//! except lookups in flight.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::enrich::{Client, Enrich, eventually};

const KILLS: u64 = 50;
const CLIENTS: u64 = 16;
const GRANTED: u64 = 1_000_000;
const EMAIL: &str = "ada.marlowe@gmail.com";

/// The results of all clients in all rounds.
#[derive(Default)]
struct Seen {
    /// Number of lookups with a reply of 200.
    acknowledged: AtomicU64,
    /// Number of lookups without a reply.
    in_flight: AtomicU64,
}

#[test]
fn acknowledged_lookups_survive_kills() {
    let (enrich, key) = shop();
    let seen = Seen::default();

    for round in 0..KILLS {
        let server = enrich.serve(&[]);
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        let before = seen.acknowledged.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            for client in clients {
                scope.spawn(|| ask_until_it_dies(client, &key, &seen));
            }
            // Kills at a different point in each round, from the first commits to a warm server.
            let enough = before + round * round % 97 * 20 + 1;
            eventually("answers", || (seen.acknowledged.load(Ordering::SeqCst) >= enough).then_some(()));
            server.kill();
        });
        check(&enrich, &seen, round);
    }
    assert!(
        seen.in_flight.load(Ordering::SeqCst) > 0,
        "no kill met a lookup in flight: the test shows nothing"
    );
}

/// Creates a workspace with a key, and one person in the directory.
fn shop() -> (Enrich, String) {
    let (enrich, key) = Enrich::with_key(GRANTED, 1_000_000_000);
    let people = enrich.file("people.csv", format!("email,linkedin_url\n{EMAIL},linkedin.com/in/ada\n"));
    enrich.ok(&["people", "import", people.to_str().unwrap()]);
    (enrich, key)
}

fn ask_until_it_dies(mut client: Client, key: &str, seen: &Seen) {
    loop {
        match client.enrich(key, EMAIL) {
            Ok(reply) => {
                assert_eq!(reply.status, 200, "{}", reply.body);
                seen.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(_) => {
                seen.in_flight.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

fn check(enrich: &Enrich, seen: &Seen, round: u64) {
    let credits = enrich.credits("demo");
    let [granted, available, held, spent] =
        ["granted", "available", "held", "spent"].map(|name| credits[name].as_u64().unwrap());
    let acknowledged = seen.acknowledged.load(Ordering::SeqCst);
    let in_flight = seen.in_flight.load(Ordering::SeqCst);
    assert!(acknowledged <= spent, "round {round}: {acknowledged} were answered, {spent} are spent");
    assert!(spent <= acknowledged + in_flight, "round {round}: {spent} > {acknowledged} + {in_flight}");
    assert_eq!(granted, GRANTED);
    assert_eq!(granted, available + held + spent, "round {round}");
    assert_eq!(held, 0, "round {round}: holds end with their process");
}
