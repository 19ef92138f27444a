//! The inputs of a run, drawn from a seed or written by hand for a test.

use std::time::Duration;

use enrich_lib::credit::Price;
use enrich_lib::model::ProfileUrl;
use enrich_lib::window::Quota;
use enrich_postgres::Sizes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::clock::Clock;
use crate::fault::{Fault, FaultKind};
use crate::operator::{Operation, PlannedOperation};
use crate::request::{HttpVersion, PlannedRequest, RequestKind, TEST_ADDRESSES};
use crate::topology::{PROBES_MAX, StoreKind};

/// Coarse enough for fast runs, fine enough for all timeouts of the host.
const TICK: Duration = Duration::from_millis(10);

/// The prices of a match and of no match. Half of the worlds have those by default.
const PRICES: [[u64; 2]; 10] =
    [[1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [2, 0], [3, 1], [1, 2], [0, 1], [0, 0]];

/// Everything that a run depends on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Seeds the values drawn during the run: latencies, lookup ids and which port calls fail.
    pub seed: u64,
    /// The time that passes on every machine in one step of the simulation.
    pub tick: Duration,
    /// The stores of keys and credits.
    pub stores: StoreKind,
    /// The workspace's credits.
    pub credits: u64,
    /// The price of a lookup.
    pub price: Price,
    /// The workspace's rate limit.
    pub quota: Quota,
    /// The clocks of the nodes, which may be wrong.
    pub clocks: Vec<Clock>,
    /// The requests of each client, in order.
    pub clients: Vec<Vec<PlannedRequest>>,
    /// A client that sends all its requests at once, each on a connection of its own, if there is one.
    pub crowd: Option<usize>,
    /// True if every second client belongs to a second workspace.
    pub has_two_workspaces: bool,
    /// The faults to inject.
    pub faults: Vec<Fault>,
    /// The changes of operators. With [`StoreKind::Servers`], replacing imports, deletions of the workspace and
    /// removals of spends have no effect.
    pub operations: Vec<PlannedOperation>,
    /// True if the nodes have two contracts with the vendor, each with low limits, and a cache.
    pub has_middleware: bool,
    /// The HTTP version of the vendor. Over HTTP/2, all requests of a node share a connection.
    pub vendor_http: HttpVersion,
    /// True if every second person is in PostgreSQL, where nodes look first, and unknown to the vendor. Only
    /// used with [`StoreKind::Servers`].
    pub has_imported_people: bool,
    /// The settings of Redis and PostgreSQL. Only used with [`StoreKind::Servers`].
    pub servers: ServerSettings,
}

/// Settings of Redis and PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The clock of the Redis machine.
    pub redis: Clock,
    /// The clock of the PostgreSQL machine.
    pub postgres: Clock,
    /// The maximum time that a transaction of PostgreSQL takes to become durable after it was executed.
    pub commit_max: Duration,
    /// The maximum sizes of the statements of nodes.
    pub sizes: Sizes,
}

impl Plan {
    /// Returns a plan without requests and faults, for a test to extend.
    pub fn empty(seed: u64) -> Self {
        Self {
            seed,
            tick: TICK,
            stores: StoreKind::Sqlite,
            credits: 10,
            price: Price::default(),
            quota: Quota::default(),
            clocks: vec![Clock::default(); StoreKind::Sqlite.nodes()],
            clients: vec![Vec::new()],
            crowd: None,
            has_two_workspaces: false,
            faults: Vec::new(),
            operations: Vec::new(),
            has_middleware: false,
            vendor_http: HttpVersion::Http1,
            has_imported_people: false,
            servers: ServerSettings::default(),
        }
    }

    /// Returns a plan without requests and faults for `nodes` nodes that share Redis and PostgreSQL.
    pub fn empty_on_servers(seed: u64, nodes: usize) -> Self {
        let (stores, clocks) = (StoreKind::Servers(nodes), vec![Clock::default(); nodes]);
        Self { stores, clocks, ..Self::empty(seed) }
    }

    /// Draws a random world from the seed, with its stores.
    pub fn from_seed(seed: u64) -> Self {
        let stores = match seed % 8 {
            0..3 => StoreKind::Sqlite,
            rest => StoreKind::Servers(rest as usize % 4 + 2),
        };
        // With steps of 1 ms, a run has ten times as many steps and a finer order of events.
        let tick = if seed % 100 == 1 { Duration::from_millis(1) } else { TICK };
        Self { tick, ..Self::draw(seed, stores) }
    }

    /// Draws a random world from the seed, of two to five nodes that share Redis and PostgreSQL.
    pub fn from_seed_on_servers(seed: u64) -> Self {
        Self::draw(seed, StoreKind::Servers(seed as usize % 4 + 2))
    }

    /// Sends all requests over HTTP/1.1, for a gateway without HTTP/2.
    #[must_use]
    pub fn on_http1(mut self) -> Self {
        self.clients.iter_mut().flatten().for_each(|request| request.http = HttpVersion::Http1);
        self
    }

    /// Draws a random plan from the seed.
    fn draw(seed: u64, stores: StoreKind) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (nodes, pace) = (stores.nodes(), draw_pace(seed, &mut rng));
        let credits = *[3, 30, 1_000].choose(&mut rng).expect("not empty");
        let has_low_limit = rng.random_bool(0.2);
        let quota = if has_low_limit {
            Quota::new(rng.random_range(1..=4), rng.random_range(1..=5))
        } else {
            Quota::new(500, 60)
        };
        let quota = quota.expect("both are above 0");
        let clocks = (0..nodes).map(|_| Clock::draw(&mut rng)).collect();
        let mut clients: Vec<Vec<_>> = (0..rng.random_range(1..=3_usize))
            .map(|_| {
                let fixed =
                    rng.random_bool(0.5).then(|| (rng.random_range(0..nodes), HttpVersion::draw(&mut rng)));
                (0..rng.random_range(3..=12 * pace.min(4)))
                    .map(|_| PlannedRequest::draw(&mut rng, nodes, fixed).slowed(pace))
                    .collect()
            })
            .collect();
        // Most of a crowd would be refused by the limits.
        let has_crowd = credits == 1_000 && !has_low_limit && rng.random_bool(0.4);
        let crowd = has_crowd.then(|| {
            let (size, node) = (rng.random_range(64..=256), rng.random_range(0..nodes));
            clients.push((0..size).map(|_| PlannedRequest::draw_of_crowd(&mut rng, node)).collect());
            clients.len() - 1
        });
        let mut faults: Vec<_> = if rng.random_bool(0.15) {
            vec![Fault::draw_lasting(&mut rng, stores)]
        } else {
            let kinds = 0..rng.random_range(0..=4);
            kinds.flat_map(|_| Fault::draw_recurring(&mut rng, stores, clients.len(), pace)).collect()
        };
        let while_away: Vec<_> = faults.iter().flat_map(|fault| fault.draw_while_away(&mut rng)).collect();
        faults.extend(while_away);
        let has_middleware = !has_crowd && rng.random_bool(0.5);
        // The lookups of another workspace must not wait for a locked one.
        let is_locked = faults.iter().any(|fault| matches!(fault.kind, FaultKind::LockedWorkspace));
        let has_two_workspaces = is_locked || rng.random_bool(0.5);
        let servers = ServerSettings::draw(&mut rng);
        if let Some(client) = crowd {
            faults.extend(
                rng.random_bool(0.7)
                    .then(|| Fault::draw_for_crowd(&mut rng, stores, clients[client][0].node)),
            );
        }
        let has_imported_people = stores != StoreKind::Sqlite && rng.random_bool(0.5);
        let plan = Self {
            seed,
            tick: TICK,
            stores,
            credits,
            price: Price::default(),
            quota,
            clocks,
            clients,
            crowd,
            has_two_workspaces,
            faults,
            operations: Vec::new(),
            has_middleware,
            vendor_http: HttpVersion::Http1,
            has_imported_people,
            servers,
        };
        let has_operators = crowd.is_none() && rng.random_bool(0.6);
        let count = if has_operators { rng.random_range(1..=12 * pace.min(4)) } else { 0 };
        let person = |number| {
            let profile = Self::profile(0, Some(number)).name().to_owned();
            (plan.email(0, RequestKind::Known, Some(number)), profile)
        };
        let operations = (0..count).map(|_| PlannedOperation::draw(&mut rng, stores, pace, person)).collect();
        let mut plan = Self { operations, ..plan };
        if has_operators {
            plan.clients.iter_mut().flatten().for_each(|request| request.draw_key(&mut rng));
        }
        // A crowd would wait for too long if a statement were for few.
        if !has_crowd {
            plan.servers.draw_sizes(&mut rng);
        }
        let [found, not_found] = *PRICES.choose(&mut rng).expect("not empty");
        plan.price = Price { found, not_found };
        plan.vendor_http = HttpVersion::draw(&mut rng);
        plan
    }

    /// Adds a request by the first client to the first node, on HTTP/1.1 with a timeout of 30 s.
    pub fn request(self, kind: RequestKind) -> Self {
        self.request_to(0, kind, HttpVersion::Http1, Duration::from_secs(30))
    }

    /// Adds a request by the first client to `node`.
    pub fn request_to(
        mut self,
        node: usize,
        kind: RequestKind,
        http: HttpVersion,
        timeout: Duration,
    ) -> Self {
        let pause = Duration::from_millis(10);
        let request = PlannedRequest::new(pause, node, kind, http, timeout);
        self.clients[0].push(request);
        self
    }

    /// Adds a request by `client` to the first node, for the known person that all such requests share.
    ///
    /// Adds the client if it does not exist.
    pub fn request_shared_person(mut self, client: usize, pause: Duration) -> Self {
        let (kind, http) = (RequestKind::Known, HttpVersion::Http1);
        let request = PlannedRequest::new(pause, 0, kind, http, Duration::from_secs(30));
        let request = PlannedRequest { shared_person: Some(0), ..request };
        self.clients.resize_with(self.clients.len().max(client + 1), Vec::new);
        self.clients[client].push(request);
        self
    }

    /// Adds a fault that lasts from `start` to `end`.
    pub fn fault(mut self, start: Duration, end: Duration, kind: FaultKind) -> Self {
        self.faults.push(Fault { start, duration: end - start, kind });
        self
    }

    /// Adds a change by an operator.
    pub fn operation(mut self, at: Duration, operation: Operation) -> Self {
        self.operations.push(PlannedOperation { at, operation });
        self
    }

    /// Returns the email and profile of every person in PostgreSQL.
    pub(crate) fn imported_people(&self) -> impl Iterator<Item = (String, ProfileUrl)> {
        self.people(true)
    }

    /// Returns the email and profile of every person whom the vendor knows.
    pub(crate) fn people_of_vendor(&self) -> impl Iterator<Item = (String, ProfileUrl)> {
        self.people(false)
    }

    /// Returns the requests of the clients and the prober: the number, kind and shared person of each.
    fn all_requests(&self) -> impl Iterator<Item = (usize, (RequestKind, Option<usize>))> {
        let requests = self.clients.iter().flatten().map(|request| (request.kind, request.shared_person));
        requests.chain(vec![(RequestKind::Known, None); self.stores.nodes() * PROBES_MAX]).enumerate()
    }

    /// Returns the people with a profile in the requests of the clients and the prober.
    fn people(&self, are_imported: bool) -> impl Iterator<Item = (String, ProfileUrl)> {
        let has_profile = |kind: RequestKind| {
            use RequestKind::{InvalidEmail, RoleAccount, TestAddress, Unknown};
            !matches!(kind, Unknown | InvalidEmail | RoleAccount | TestAddress(_))
        };
        let is_imported = |number: usize, shared: Option<usize>| {
            let has_imported_people = self.has_imported_people && self.stores != StoreKind::Sqlite;
            has_imported_people && shared.unwrap_or(number).is_multiple_of(2)
        };
        self.all_requests()
            .filter(move |(number, (kind, shared))| {
                has_profile(*kind) && is_imported(*number, *shared) == are_imported
            })
            .map(|(number, (kind, shared))| (self.email(number, kind, shared), Self::profile(number, shared)))
    }

    /// Returns the email and profile of every person in the other source.
    pub(crate) fn people_of_other_source(&self) -> impl Iterator<Item = (String, ProfileUrl)> {
        self.all_requests().map(|(number, (kind, shared))| {
            let profile = format!("{}-other", Self::profile(number, shared).name());
            let profile = ProfileUrl::from_name(&profile).expect("letters and digits");
            (self.email(number, kind, shared), profile)
        })
    }

    /// Returns the emails of the people who opted out.
    pub(crate) fn opt_outs(&self) -> impl Iterator<Item = String> {
        let requests = self.clients.iter().flatten().enumerate();
        let opted_out = requests.filter(|(_, request)| request.kind == RequestKind::OptedOut);
        opted_out.map(|(number, request)| self.email(number, request.kind, request.shared_person))
    }

    /// Returns the number of the client's first request in the run. The prober's requests are numbered after
    /// those of all clients.
    pub(crate) fn first_request(&self, client: usize) -> usize {
        self.clients[..client].iter().map(Vec::len).sum()
    }

    /// Returns the email of request `number`. Requests of the same kind with the same `shared` person have
    /// the same email.
    pub(crate) fn email(&self, number: usize, kind: RequestKind, shared: Option<usize>) -> String {
        match (kind, shared) {
            (RequestKind::InvalidEmail, _) => format!("person{number}of{}.gmail.com", self.seed),
            (RequestKind::RoleAccount, _) => "noreply@gmail.com".to_owned(),
            (RequestKind::TestAddress(index), _) => format!("{}@enrich.test", TEST_ADDRESSES[index].0),
            (_, None) => format!("person{number}of{}@gmail.com", self.seed),
            (_, Some(shared)) => format!("{kind:?}{shared}of{}@gmail.com", self.seed).to_lowercase(),
        }
    }

    /// Returns the profile of the person in request `number`, if that person has one.
    pub(crate) fn profile(number: usize, shared: Option<usize>) -> ProfileUrl {
        let name = shared.map_or(format!("profile-{number}"), |shared| format!("shared-profile-{shared}"));
        ProfileUrl::from_name(&name).expect("letters and digits")
    }
}

/// Draws how much longer than in most worlds clients pause between requests and the network works between
/// faults. Few worlds are long, because each simulated second takes as much time as in a short one. One world in
/// 4,000 takes hours.
fn draw_pace(seed: u64, rng: &mut StdRng) -> u32 {
    let drawn = *[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 4, 20].choose(rng).expect("not empty");
    if seed % 4_000 == 3_999 { 400 } else { drawn }
}

impl ServerSettings {
    fn draw(rng: &mut StdRng) -> Self {
        let (redis, postgres) = (Clock::draw(rng), Clock::draw(rng));
        let commit_max = Duration::from_millis(*[5, 50, 300].choose(rng).expect("not empty"));
        Self { redis, postgres, commit_max, sizes: Sizes::default() }
    }

    fn draw_sizes(&mut self, rng: &mut StdRng) {
        let Sizes { batch, rows, changed_keys, .. } = &mut self.sizes;
        for size in [batch, rows, changed_keys] {
            *size = *[1, 2, 3, *size].choose(rng).expect("not empty");
        }
    }
}

impl Default for ServerSettings {
    /// Correct clocks.
    fn default() -> Self {
        let (redis, postgres) = (Clock::default(), Clock::default());
        Self { redis, postgres, commit_max: Duration::from_millis(5), sizes: Sizes::default() }
    }
}
