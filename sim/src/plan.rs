//! What happens in a run, as far as it is not the service's own doing. Drawn from a seed, or written by hand for a test.

use std::time::Duration;

use enrich_lib::key::ApiKey;
use enrich_lib::model::{ProfileUrl, WorkspaceId};
use enrich_lib::window::Quota;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::clock::Clock;
use crate::trouble::{Fault, Port, Trouble, What};

/// Coarse enough to be fast, fine enough for every deadline of the host.
const TICK: Duration = Duration::from_millis(10);

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seeds whatever is drawn while the run goes on: latencies, lookup ids, which calls of a port fail.
    pub seed: u64,
    /// How much time passes in one step, on one machine after the other.
    pub tick: Duration,
    /// Where keys and credits are.
    pub stores: StoreKind,
    /// The credits of the workspace.
    pub credits: u64,
    /// Its burst limit.
    pub quota: Quota,
    /// The clock of each node, which may be wrong.
    pub clocks: Vec<Clock>,
    /// What each client asks for, in turn.
    pub clients: Vec<Vec<Ask>>,
    /// What goes wrong.
    pub troubles: Vec<Trouble>,
    /// Whether the nodes guard themselves against their vendor, and have a second contract with it for when the first fails.
    pub is_guarded: bool,
    /// The servers, if the stores are on some.
    pub servers: Servers,
}

/// What is to be known of Redis and PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The clock of the machine that Redis is on.
    pub redis: Clock,
    /// The clock of the machine that PostgreSQL is on.
    pub postgres: Clock,
    /// How long a node's leases live when PostgreSQL does not hear of it.
    pub lease: Duration,
}

/// The stores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// In memory, shared by two nodes, and outliving both.
    Memory,
    /// SQLite in a directory that one node serves, closed by a crash and opened again after it.
    Sqlite,
    /// Redis and PostgreSQL, each on a machine of its own, shared over the network by so many nodes.
    Servers(usize),
}

/// One request of a client.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How long the client waits before.
    pub pause: Duration,
    /// Which node it asks, from 0.
    pub node: usize,
    /// What it wants.
    pub wish: Wish,
    /// Whom it asks for, of those that others ask for as well; `None` is a person of its own.
    pub shared: Option<usize>,
    /// In which HTTP.
    pub http: Http,
    /// Whether it goes on the connection of the client's request before, if that still serves.
    pub is_next: bool,
    /// How long it waits for the reply. Then it hangs up.
    pub patience: Duration,
}

/// The version of HTTP. A host notices at once that a client hangs up on HTTP/2; on HTTP/1, when it writes the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    /// HTTP/1.1
    One,
    /// HTTP/2
    Two,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// A person with a profile.
    Known,
    /// A person without.
    Unknown,
    /// A person with a profile, who opted out.
    OptedOut,
    /// An email that is none.
    NoEmail,
    /// An email that is not looked up.
    Role,
    /// A body with one field too many.
    ExtraField,
    /// A known person, without an API key.
    NoKey,
    /// A known person, with an API key that is nobody's.
    StrangeKey,
}

impl Plan {
    /// A run in which nobody asks and nothing goes wrong, for a test to add to.
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

    /// The same for so many nodes that share Redis and PostgreSQL.
    pub fn calm_on_servers(seed: u64, nodes: usize) -> Self {
        let (stores, clocks) = (StoreKind::Servers(nodes), vec![Clock::default(); nodes]);
        Self { stores, clocks, ..Self::calm(seed) }
    }

    /// A run in which anything may happen.
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

    /// The plan with one more request of its first client, which is patient and asks the first node at once.
    pub fn ask(self, wish: Wish) -> Self {
        self.ask_of(0, wish, Http::One, Duration::from_secs(30))
    }

    /// The plan with one more request of its first client.
    pub fn ask_of(mut self, node: usize, wish: Wish, http: Http, patience: Duration) -> Self {
        let pause = Duration::from_millis(10);
        self.clients[0].push(Ask { pause, node, wish, shared: None, http, is_next: false, patience });
        self
    }

    /// The plan with one more request of a client, which is there already or comes next: to the first node, for the known
    /// person that all such requests are for.
    pub fn ask_for_one(mut self, client: usize, pause: Duration) -> Self {
        let (wish, patience) = (Wish::Known, Duration::from_secs(30));
        let ask = Ask { pause, node: 0, wish, shared: Some(0), http: Http::One, is_next: false, patience };
        self.clients.resize_with(self.clients.len().max(client + 1), Vec::new);
        self.clients[client].push(ask);
        self
    }

    /// The plan with one more trouble, from `from` to `to`.
    pub fn trouble(mut self, from: Duration, to: Duration, what: What) -> Self {
        self.troubles.push(Trouble { from, lasts: to - from, what });
        self
    }

    /// The plan in which each of these calls fails, for the first three seconds.
    pub fn fault(self, port: Port, fault: Fault) -> Self {
        self.trouble(Duration::ZERO, Duration::from_secs(3), What::Port(0, port, fault, 1.0))
    }

    /// The emails of the people who have a profile, and the profiles: of all that are asked for, and of the prober's.
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

    /// The emails of the people who opted out.
    pub(crate) fn opt_outs(&self) -> impl Iterator<Item = String> {
        let asks = self.clients.iter().flatten().enumerate();
        let opted_out = asks.filter(|(_, ask)| ask.wish == Wish::OptedOut);
        opted_out.map(|(number, ask)| self.email(number, ask.wish, ask.shared))
    }

    /// The number that a client's first request has in the run. After all clients' comes the prober's.
    pub(crate) fn first_request(&self, client: usize) -> usize {
        self.clients[..client].iter().map(Vec::len).sum()
    }

    /// The email of request `number`: of a person who is `shared` with others that wish the same, or of its own.
    pub(crate) fn email(&self, number: usize, wish: Wish, shared: Option<usize>) -> String {
        match (wish, shared) {
            (Wish::NoEmail, _) => format!("person{number}of{}.gmail.com", self.seed),
            (Wish::Role, _) => "noreply@gmail.com".to_owned(),
            (_, None) => format!("person{number}of{}@gmail.com", self.seed),
            (_, Some(shared)) => format!("{wish:?}{shared}of{}@gmail.com", self.seed).to_lowercase(),
        }
    }

    /// The profile of the person that request `number` asks for, if it asks for somebody known.
    pub(crate) fn profile(number: usize, shared: Option<usize>) -> ProfileUrl {
        let name = shared.map_or(format!("profile-{number}"), |shared| format!("shared-profile-{shared}"));
        ProfileUrl::from_name(&name).expect("letters and digits")
    }
}

impl StoreKind {
    /// How many nodes serve them.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::Memory => 2,
            Self::Sqlite => 1,
            Self::Servers(nodes) => nodes,
        }
    }

    /// How often the prober asks a node until it is served. A simulated connection that lost a message is silent for good,
    /// and costs the request that meets it: a node has several to its servers.
    pub(crate) fn probes_max(self) -> usize {
        if matches!(self, Self::Servers(_)) { 8 } else { 1 }
    }
}

/// The workspace whose clients meet all the troubles.
pub(crate) fn tenant() -> (WorkspaceId, ApiKey) {
    ("tenant".parse().expect("a name"), ApiKey::generate(|| 1))
}

/// The workspace that asks when everything is healed. Its limits don't stand in its way.
pub(crate) fn prober() -> (WorkspaceId, ApiKey) {
    ("prober".parse().expect("a name"), ApiKey::generate(|| 2))
}

/// A well-formed key that is nobody's.
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
    /// Right clocks, and leases that end within a run.
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
    /// A request, to a node and in an HTTP of its own unless the client has a `habit`.
    fn draw(dice: &mut StdRng, nodes: usize, habit: Option<(usize, Http)>) -> Self {
        const REFUSED: [Wish; 5] =
            [Wish::NoEmail, Wish::Role, Wish::ExtraField, Wish::NoKey, Wish::StrangeKey];
        let wish = match dice.random_range(0..10) {
            0..6 => Wish::Known,
            6 => Wish::Unknown,
            7 => *[Wish::Unknown, Wish::OptedOut].choose(dice).expect("there are some"),
            _ => *REFUSED.choose(dice).expect("there are some"),
        };
        // Refused ones ask for somebody of their own: that one has to stay unasked for.
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

/// A time in this range of milliseconds.
pub(crate) fn ms(dice: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(dice.random_range(range))
}

/// A node's name on the network.
pub(crate) fn node_name(node: usize) -> String {
    format!("node-{}", node + 1)
}

/// A client's name on the network.
pub(crate) fn client_name(client: usize) -> String {
    format!("client-{}", client + 1)
}
