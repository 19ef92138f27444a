//! The inputs of a run, drawn from a seed or written by hand for a test.

use std::time::Duration;

use enrich_lib::key::ApiKey;
use enrich_lib::model::{ProfileUrl, WorkspaceId};
use enrich_lib::window::Quota;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::clock::Clock;
use crate::trouble::{Fault, Port, Trouble, What};

/// Coarse enough for fast runs, fine enough for all timeouts of the host.
const TICK: Duration = Duration::from_millis(10);

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seeds the values drawn during the run: latencies, lookup ids and which port calls fail.
    pub seed: u64,
    /// The time that passes on every machine in one step of the simulation.
    pub tick: Duration,
    /// The stores of keys and credits.
    pub stores: StoreKind,
    /// The workspace's credits.
    pub credits: u64,
    /// The workspace's rate limit.
    pub quota: Quota,
    /// The clocks of the nodes, which may be wrong.
    pub clocks: Vec<Clock>,
    /// The requests of each client, in order.
    pub clients: Vec<Vec<Ask>>,
    /// The faults to inject.
    pub troubles: Vec<Trouble>,
    /// True if the nodes use the resolver middleware, which also tries the vendor a second time under another name.
    pub is_guarded: bool,
    /// The settings of Redis and PostgreSQL. Only used with [`StoreKind::Servers`].
    pub servers: Servers,
}

/// Settings of Redis and PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The clock of the Redis machine.
    pub redis: Clock,
    /// The clock of the PostgreSQL machine.
    pub postgres: Clock,
    /// How long a node's leases last without a renewal.
    pub lease: Duration,
}

/// The stores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In memory, shared by two nodes. The data survives crashes of the nodes.
    Memory,
    /// SQLite in a data directory with one node. A crash closes it, a restart opens it again.
    Sqlite,
    /// Redis and PostgreSQL on separate machines, shared over the network by this number of nodes.
    Servers(usize),
}

/// One request of a client.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How long the client waits before the request.
    pub pause: Duration,
    /// The node to send the request to, counted from 0.
    pub node: usize,
    /// The kind of request.
    pub wish: Wish,
    /// The number of a person that other requests may ask for as well, or `None` for a person unique to this request.
    pub shared: Option<usize>,
    /// The HTTP version.
    pub http: Http,
    /// If true, reuse the connection of the client's previous request if it is still open.
    pub is_next: bool,
    /// How long to wait for the reply before hanging up.
    pub patience: Duration,
}

/// The HTTP version.
///
/// The host detects that a client hung up immediately on HTTP/2, but only when it writes the reply on HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1
    One,
    /// HTTP/2
    Two,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// A person with a profile.
    Known,
    /// A person without a profile.
    Unknown,
    /// A person with a profile who opted out.
    OptedOut,
    /// An invalid email.
    NoEmail,
    /// A role account, which is not looked up.
    Role,
    /// A body with an unknown field.
    ExtraField,
    /// A person with a profile, without an API key.
    NoKey,
    /// A person with a profile, with a well-formed but unknown API key.
    StrangeKey,
}

impl Plan {
    /// Returns a plan without requests and faults, for a test to extend.
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            tick: TICK,
            stores: StoreKind::Memory,
            credits: 10,
            quota: Quota::default(),
            clocks: vec![Clock::default(); StoreKind::Memory.nodes()],
            clients: vec![Vec::new()],
            troubles: Vec::new(),
            is_guarded: false,
            servers: Servers::default(),
        }
    }

    /// Returns a plan without requests and faults for `nodes` nodes that share Redis and PostgreSQL.
    pub fn calm_on_servers(seed: u64, nodes: usize) -> Self {
        let (stores, clocks) = (StoreKind::Servers(nodes), vec![Clock::default(); nodes]);
        Self { stores, clocks, ..Self::calm(seed) }
    }

    /// Draws a random plan from the seed.
    pub fn draw(seed: u64, stores: StoreKind) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let nodes = stores.nodes();
        let credits = *[3, 30, 1_000].choose(&mut dice).expect("there are some");
        let is_tight = dice.random_bool(0.2);
        let quota = if is_tight {
            Quota::new(dice.random_range(1..=4), dice.random_range(1..=5))
        } else {
            Quota::new(500, 60)
        };
        let quota = quota.expect("both are above 0");
        let clocks = (0..nodes).map(|_| Clock::draw(&mut dice)).collect();
        let clients: Vec<Vec<_>> = (0..dice.random_range(1..=3_usize))
            .map(|_| {
                let habit =
                    dice.random_bool(0.5).then(|| (dice.random_range(0..nodes), Http::draw(&mut dice)));
                (0..dice.random_range(3..=12)).map(|_| Ask::draw(&mut dice, nodes, habit)).collect()
            })
            .collect();
        let troubles =
            (0..dice.random_range(0..=6)).map(|_| Trouble::draw(&mut dice, stores, clients.len())).collect();
        let is_guarded = dice.random_bool(0.5);
        let servers = Servers::draw(&mut dice);
        Self { seed, tick: TICK, stores, credits, quota, clocks, clients, troubles, is_guarded, servers }
    }

    /// Adds a request by the first client to the first node, on HTTP/1.1 with a timeout of 30 s.
    pub fn ask(self, wish: Wish) -> Self {
        self.ask_of(0, wish, Http::One, Duration::from_secs(30))
    }

    /// Adds a request by the first client.
    pub fn ask_of(mut self, node: usize, wish: Wish, http: Http, patience: Duration) -> Self {
        let pause = Duration::from_millis(10);
        self.clients[0].push(Ask { pause, node, wish, shared: None, http, is_next: false, patience });
        self
    }

    /// Adds a request by `client` to the first node, for the known person that all such requests share.
    ///
    /// Adds the client if it does not exist.
    pub fn ask_for_one(mut self, client: usize, pause: Duration) -> Self {
        let (wish, patience) = (Wish::Known, Duration::from_secs(30));
        let ask = Ask { pause, node: 0, wish, shared: Some(0), http: Http::One, is_next: false, patience };
        self.clients.resize_with(self.clients.len().max(client + 1), Vec::new);
        self.clients[client].push(ask);
        self
    }

    /// Adds a fault that lasts from `from` to `to`.
    pub fn trouble(mut self, from: Duration, to: Duration, what: What) -> Self {
        self.troubles.push(Trouble { from, lasts: to - from, what });
        self
    }

    /// Makes all calls of this port of the first node fail for the first three seconds.
    pub fn fault(self, port: Port, fault: Fault) -> Self {
        self.trouble(Duration::ZERO, Duration::from_secs(3), What::Port(0, port, fault, 1.0))
    }

    /// Returns the email and profile of every person with a profile, for the requests of the clients and the prober.
    pub(crate) fn people(&self) -> impl Iterator<Item = (String, ProfileUrl)> {
        let wishes = self.clients.iter().flatten().map(|ask| (ask.wish, ask.shared));
        let wishes = wishes
            .chain(vec![(Wish::Known, None); self.stores.nodes() * self.stores.probes_max()])
            .enumerate();
        let known =
            wishes.filter(|(_, (wish, _))| !matches!(wish, Wish::Unknown | Wish::NoEmail | Wish::Role));
        known
            .map(|(number, (wish, shared))| (self.email(number, wish, shared), Self::profile(number, shared)))
    }

    /// Returns the emails of the people who opted out.
    pub(crate) fn opt_outs(&self) -> impl Iterator<Item = String> {
        let asks = self.clients.iter().flatten().enumerate();
        let opted_out = asks.filter(|(_, ask)| ask.wish == Wish::OptedOut);
        opted_out.map(|(number, ask)| self.email(number, ask.wish, ask.shared))
    }

    /// Returns the number of the client's first request in the run. The prober's requests are numbered after those of all
    /// clients.
    pub(crate) fn first_request(&self, client: usize) -> usize {
        self.clients[..client].iter().map(Vec::len).sum()
    }

    /// Returns the email of request `number`. Requests with the same `shared` person and the same wish have the same email.
    pub(crate) fn email(&self, number: usize, wish: Wish, shared: Option<usize>) -> String {
        match (wish, shared) {
            (Wish::NoEmail, _) => format!("person{number}of{}.gmail.com", self.seed),
            (Wish::Role, _) => "noreply@gmail.com".to_owned(),
            (_, None) => format!("person{number}of{}@gmail.com", self.seed),
            (_, Some(shared)) => format!("{wish:?}{shared}of{}@gmail.com", self.seed).to_lowercase(),
        }
    }

    /// Returns the profile of the person in request `number`, if that person has one.
    pub(crate) fn profile(number: usize, shared: Option<usize>) -> ProfileUrl {
        let name = shared.map_or(format!("profile-{number}"), |shared| format!("shared-profile-{shared}"));
        ProfileUrl::from_name(&name).expect("letters and digits")
    }
}

impl StoreKind {
    /// Returns the number of nodes.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::Memory => 2,
            Self::Sqlite => 1,
            Self::Servers(nodes) => nodes,
        }
    }

    /// Returns how often the prober sends its request to a node until it receives a 200.
    ///
    /// A simulated connection that lost a message never recovers and fails the next request that uses it. A node has several
    /// connections to its servers.
    pub(crate) fn probes_max(self) -> usize {
        if matches!(self, Self::Servers(_)) { 8 } else { 1 }
    }
}

/// The workspace of the clients, with its key. All faults occur while it is in use.
pub(crate) fn tenant() -> (WorkspaceId, ApiKey) {
    ("tenant".parse().expect("a name"), ApiKey::generate(|| 1))
}

/// The workspace that sends requests after healing, with its key. Its limits are high enough never to refuse a request.
pub(crate) fn prober() -> (WorkspaceId, ApiKey) {
    ("prober".parse().expect("a name"), ApiKey::generate(|| 2))
}

/// A well-formed key that no workspace has.
pub(crate) fn strange_key() -> ApiKey {
    ApiKey::generate(|| 3)
}

impl Servers {
    fn draw(dice: &mut StdRng) -> Self {
        let (redis, postgres) = (Clock::draw(dice), Clock::draw(dice));
        Self { redis, postgres, lease: ms(dice, 1_500..6_000) }
    }
}

impl Default for Servers {
    /// Correct clocks, and leases that expire within a run.
    fn default() -> Self {
        let (redis, postgres) = (Clock::default(), Clock::default());
        Self { redis, postgres, lease: Duration::from_secs(3) }
    }
}

impl Http {
    fn draw(dice: &mut StdRng) -> Self {
        if dice.random_bool(0.5) { Self::One } else { Self::Two }
    }
}

impl Ask {
    /// Draws a request. `habit` is the client's fixed node and HTTP version, if it has them.
    fn draw(dice: &mut StdRng, nodes: usize, habit: Option<(usize, Http)>) -> Self {
        const REFUSED: [Wish; 5] =
            [Wish::NoEmail, Wish::Role, Wish::ExtraField, Wish::NoKey, Wish::StrangeKey];
        let wish = match dice.random_range(0..10) {
            0..6 => Wish::Known,
            6 => Wish::Unknown,
            7 => *[Wish::Unknown, Wish::OptedOut].choose(dice).expect("there are some"),
            _ => *REFUSED.choose(dice).expect("there are some"),
        };
        // Refused requests must not share a person: invariant 3 checks that the vendor never receives a request for that
        // person.
        let can_share = matches!(wish, Wish::Known | Wish::Unknown | Wish::OptedOut);
        let shared = (can_share && dice.random_bool(0.4)).then(|| dice.random_range(0..2));
        let patience_ms = if dice.random_bool(0.2) { 1..1_000 } else { 1_000..15_000 };
        let (node, http) = habit.unwrap_or_else(|| (dice.random_range(0..nodes), Http::draw(dice)));
        Self {
            pause: ms(dice, 0..1_000),
            node,
            wish,
            shared,
            http,
            is_next: dice.random_bool(0.8),
            patience: ms(dice, patience_ms),
        }
    }
}

/// Draws a duration from this range of milliseconds.
pub(crate) fn ms(dice: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(dice.random_range(range))
}

/// Returns a node's name on the network.
pub(crate) fn node_name(node: usize) -> String {
    format!("node-{}", node + 1)
}

/// Returns a client's name on the network.
pub(crate) fn client_name(client: usize) -> String {
    format!("client-{}", client + 1)
}
