//! A wall clock that jumps by an hour in both directions: no window exceeds its limit, no credit is lost or
//! charged without a result, and every reply conforms to the specification.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::enrich::{Client, Reply, eventually};
use async_trait::async_trait;
use enrich_host::{Arrivals, Services, run};
use enrich_lib::drive::Service;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::Quota;
use enrich_sqlite::{Admin, DataDir, Ledger, run_on_thread};
use enrich_store::records::NewKey;
use enrich_store::{Actor, Clocks};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

const HOUR_MS: i64 = 3_600_000;
const START_MS: u64 = 1_700_000_000_000;
const WINDOW_SECONDS: u32 = 60;
const GRANTED: u64 = 1_000_000;
const EMAIL: &str = "ada.marlowe@gmail.com";

#[test]
fn no_window_exceeds_its_limit_when_the_clock_returns_to_it() {
    const LIMIT: u32 = 5;
    let world = World::new(LIMIT);
    let quota = Quota::new(LIMIT, WINDOW_SECONDS).unwrap();
    let mut admitted = BTreeMap::new();
    world.door.open();
    let mut client = world.connect();
    for hours in [0, 1, 0, -1, 0] {
        world.set_clock(hours * HOUR_MS);
        let window = quota.window(&demo(), world.clock.now()).number();
        for _ in 0..LIMIT + 3 {
            let reply = world.ask(&mut client);
            *admitted.entry(window).or_insert(0) += u32::from(reply.status != 429);
        }
    }
    let admitted: Vec<_> = admitted.into_values().collect();
    assert_eq!(admitted, [LIMIT; 3], "an hour back, at the start, an hour ahead");
}

#[test]
fn jumps_keep_holds_of_lookups_in_flight() {
    for jump_ms in [HOUR_MS, -HOUR_MS] {
        let world = World::new(1_000);
        let replies = world.jump_amid_lookups(4, jump_ms, |world| {
            assert_eq!(world.totals(), [GRANTED - 4, 4, 0]);
        });
        assert!(replies.iter().all(|reply| reply.status == 200));
        assert_eq!(world.totals(), [GRANTED - 4, 0, 4]);
        assert_eq!(world.ask(&mut world.connect()).status, 200, "those who come later notice nothing");
        assert_eq!(world.totals(), [GRANTED - 5, 0, 5]);
    }
}

#[test]
fn balances_reconcile_after_clock_jumps_under_load() {
    let world = World::new(1_000_000_000);
    world.door.open();
    let (is_over, answered, found) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = world.connect();
                while !is_over.load(Ordering::SeqCst) {
                    let is_found = world.ask(&mut client).status == 200;
                    found.fetch_add(u64::from(is_found), Ordering::SeqCst);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for (nth, hours) in [1, 0, -1, 1, 0, 1, -1, 0].into_iter().cycle().take(40).enumerate() {
            world.set_clock(hours * HOUR_MS + nth as i64 * 1_000);
            let [_, held, spent] = world.totals();
            assert!(held + spent <= answered.load(Ordering::SeqCst) + 8, "one credit a lookup at most");
            let before = answered.load(Ordering::SeqCst);
            eventually("answers", || (answered.load(Ordering::SeqCst) >= before + 16).then_some(()));
        }
        is_over.store(true, Ordering::SeqCst);
    });
    let found = found.load(Ordering::SeqCst);
    assert!(found > 0, "the test shows nothing");
    assert_eq!(world.totals(), [GRANTED - found, 0, found]);
    assert_eq!(Admin::open(&world.dir).unwrap().balance(&demo()).unwrap().spent, found, "on the disk too");
}

/// A server on SQLite without timeouts of ports, whose clock jumps and whose resolver is closed at first.
struct World {
    address: SocketAddr,
    clock: Arc<JumpyClock>,
    started_at: Instant,
    ledger: Arc<Ledger>,
    door: Arc<Door>,
    runtime: Runtime,
    key: String,
    dir: DataDir,
    _tmp: TempDir,
}

impl World {
    fn new(limit: u32) -> Self {
        let tmp = TempDir::new().unwrap();
        let dir = DataDir::create(tmp.path().join("data")).unwrap();
        let clock = Arc::new(JumpyClock::default());
        let key = ApiKey::generate(|| 7);
        let mut admin = Admin::open(&dir).unwrap();
        let quota = Quota::new(limit, WINDOW_SECONDS).unwrap();
        admin.create_workspace(&demo(), quota, GRANTED, clock.now()).unwrap();
        admin.create_key(&NewKey::new(&demo(), "test", &key), &Actor::operator(clock.now())).unwrap();

        let now = Clocks { wall: clock.now(), elapsed: Duration::ZERO };
        let ledger = Arc::new(Ledger::open(&dir, now, run_on_thread).unwrap());
        let door = Arc::new(Door { lock: Semaphore::new(0), came: AtomicU64::new(0) });
        let service = Service {
            policy: Arc::new(Policy::default()),
            keys: ledger.clone(),
            windows: Arc::new(WindowTable::default()),
            credits: ledger.clone(),
            resolver: door.clone(),
        };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let services = Services { arrivals: clock.clone(), ..Services::new(service) };
        runtime.spawn(run(listener, services, std::future::pending()));
        let key = key.reveal().to_owned();
        Self { address, clock, started_at: Instant::now(), ledger, door, runtime, key, dir, _tmp: tmp }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    fn ask(&self, client: &mut Client) -> Reply {
        checked(client.enrich(&self.key, EMAIL).unwrap())
    }

    /// Sets the clock to this offset from the start and advances the ledger.
    fn set_clock(&self, ms: i64) {
        self.clock.offset_ms.store(ms as u64, Ordering::SeqCst);
        let now = Clocks { wall: self.clock.now(), elapsed: self.started_at.elapsed() };
        self.runtime.block_on(self.ledger.tick(now)).unwrap();
    }

    /// Moves the clock while this number of lookups wait for the resolver. Returns their replies.
    fn jump_amid_lookups(&self, lookups: u32, ms: i64, check: impl FnOnce(&Self)) -> Vec<Reply> {
        std::thread::scope(|scope| {
            let requests: Vec<_> = (0..lookups)
                .map(|_| {
                    let mut client = self.connect();
                    scope.spawn(move || self.ask(&mut client))
                })
                .collect();
            let all_wait = || self.door.came.load(Ordering::SeqCst) == u64::from(lookups);
            eventually("lookups in flight", || all_wait().then_some(()));
            self.set_clock(ms);
            check(self);
            self.door.open();
            requests.into_iter().map(|requests| requests.join().unwrap()).collect()
        })
    }

    /// Returns the available, held and spent credits.
    fn totals(&self) -> [u64; 3] {
        let balance = self.ledger.balance(&demo()).unwrap();
        assert_eq!(balance.granted, GRANTED);
        assert_eq!(balance.granted, balance.available + balance.held + balance.spent, "{balance:?}");
        [balance.available, balance.held, balance.spent]
    }
}

/// Checks that a reply to a valid request with a valid key conforms to the specification, including the
/// headers of 8.2.
fn checked(reply: Reply) -> Reply {
    let header = |name: &str| -> Option<u32> {
        let lines = reply.head.lines();
        let named =
            lines.filter_map(|line| line.split_once(": ")).find(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.parse().unwrap())
    };
    let reset = header("ratelimit-reset").unwrap();
    assert!((1..=WINDOW_SECONDS).contains(&reset), "{}", reply.head);
    assert!(header("ratelimit-remaining").unwrap() < header("ratelimit-limit").unwrap(), "{}", reply.head);
    match reply.status {
        200 => assert_eq!(reply.body["status"], "found"),
        429 => {
            assert_eq!(reply.body, json!({"error": "rate_limited"}));
            assert_eq!(header("retry-after"), Some(reset));
        }
        500 => assert_eq!(reply.body, json!({"error": "server_error"})),
        other => panic!("{other}: {}", reply.body),
    }
    reply
}

/// A clock with an adjustable offset from a fixed start time.
#[derive(Default)]
struct JumpyClock {
    /// Offset from the start in milliseconds, in two's complement.
    offset_ms: AtomicU64,
    arrivals: AtomicU64,
}

impl JumpyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(START_MS.wrapping_add(self.offset_ms.load(Ordering::SeqCst)))
    }
}

impl Arrivals for JumpyClock {
    fn arrive(&self) -> Arrival {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.arrivals.fetch_add(1, Ordering::SeqCst).to_be_bytes());
        Arrival::new(self.now(), random)
    }
}

/// A resolver that matches every email once it is open.
struct Door {
    lock: Semaphore,
    came: AtomicU64,
}

impl Door {
    /// Opens the resolver permanently: each call returns its permit.
    fn open(&self) {
        self.lock.add_permits(1);
    }
}

#[async_trait]
impl Resolver for Door {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        self.came.fetch_add(1, Ordering::SeqCst);
        let _permit = self.lock.acquire().await.unwrap();
        Ok(ProfileUrl::from_name("ada").unwrap().into())
    }
}

fn demo() -> WorkspaceId {
    "demo".parse().unwrap()
}
