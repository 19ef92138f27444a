//! The clients and the replies that they received.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::cluster::Cluster;
use super::enrich::{Client, EMAIL, Reply, URL};

const CLIENTS: usize = 8;

/// Clients that send sequential requests to the balancer until they are stopped.
pub struct Clients {
    threads: Vec<JoinHandle<Seen>>,
    is_over: Arc<AtomicBool>,
}

/// The replies that clients received.
#[derive(Debug, Default)]
pub struct Seen {
    /// Number of lookups with a reply of 200.
    pub found: usize,
    /// The ids of those lookups that are not yet compared with the ledger.
    pub acknowledged: BTreeSet<String>,
    /// Number of replies with an error that a store failure explains.
    pub refused: u64,
    /// Number of requests whose connection ended before a reply. Some of them may be spent.
    pub unanswered: usize,
    /// The same, since the start of the test.
    pub broken: usize,
}

impl Clients {
    pub fn start(cluster: &Cluster) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ask = |_| {
            let (balancer, key, is_over) = (cluster.balancer(), cluster.key.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut seen = Seen::default();
                while !is_over.load(Ordering::SeqCst) {
                    seen.ask_on_one_connection(balancer, &key, &is_over);
                }
                seen
            })
        };
        Self { threads: (0..CLIENTS).map(ask).collect(), is_over }
    }

    /// Stops the clients after their pending requests.
    pub fn stop(self) -> Seen {
        self.is_over.store(true, Ordering::SeqCst);
        let mut all = Seen::default();
        self.threads.into_iter().for_each(|thread| all.add(thread.join().unwrap()));
        all
    }
}

impl Seen {
    pub fn add(&mut self, more: Self) {
        self.found += more.found;
        self.acknowledged.extend(more.acknowledged);
        self.refused += more.refused;
        self.unanswered += more.unanswered;
        self.broken += more.broken;
    }

    fn ask_on_one_connection(&mut self, server: SocketAddr, key: &str, is_over: &AtomicBool) {
        let Ok(mut client) = Client::connect(server) else { return };
        while !is_over.load(Ordering::SeqCst) {
            match client.enrich(key, EMAIL) {
                Ok(reply) => drop(self.note(&reply)),
                Err(_) => {
                    self.lose();
                    return;
                }
            }
        }
    }

    /// Records a request without a reply. Returns false.
    pub fn lose(&mut self) -> bool {
        self.unanswered += 1;
        self.broken += 1;
        false
    }

    /// Records a reply. Returns whether the person was found.
    pub fn note(&mut self, reply: &Reply) -> bool {
        match reply.status {
            200 => {
                self.found += 1;
                assert_eq!(reply.body["profile"]["linkedin_url"], URL);
                assert!(self.acknowledged.insert(reply.body["lookup_id"].as_str().unwrap().to_owned()));
            }
            500 | 502 | 503 => self.refused += 1, // 502: the opt-outs could not be read
            other => panic!("{other}: {}", reply.body),
        }
        reply.status == 200
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} found, {} refused, {} broken", self.found, self.refused, self.broken)
    }
}
