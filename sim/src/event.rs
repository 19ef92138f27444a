//! What can happen in a run.

use std::collections::BTreeMap;
use std::fmt;

use enrich_lib::credit::{Balance, Holding, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};

use crate::plan::{Http, Wish, client_name, node_name};
use crate::trouble::Fault;
use crate::vendor;

/// One thing that happened. Shown as a line of the trace.
#[derive(Clone, Debug)]
pub enum Event {
    /// A workspace was given credits, at the beginning.
    Granted(WorkspaceId, u64),
    /// The nemesis did something.
    Nemesis(String),
    /// A node came up; `forgets` tells that the holds of its earlier life ended with that.
    Started {
        /// Which one.
        node: usize,
        /// Whether nobody else knows its holds.
        forgets: bool,
    },
    /// A node crashed, and with it all lookups in flight there.
    Crashed(usize),
    /// Nothing is wrong any more.
    Healed,
    /// A client sent a request.
    Sent(Sent),
    /// A client received the reply to request `0`.
    Received(usize, Reply),
    /// A client got no reply to request `0`.
    Lost(usize, String),
    /// A request became a lookup on a node.
    Arrived(usize, LookupId),
    /// The host asked a port for a lookup.
    Asks(LookupId, Question),
    /// A port answered the host.
    Told(LookupId, Answer),
    /// A settlement is about to fail on its way between the host and the store, or its answer on the way back.
    Spoiled(LookupId, Fault),
    /// The store of credits did something for a lookup, whether or not the host is told.
    Did(LookupId, Deed),
    /// The totals of a workspace, with all holds expired that end by now.
    Totals(WorkspaceId, Timestamp, Balance),
    /// The books of a workspace that several nodes share, as PostgreSQL has them.
    Shared(WorkspaceId, Shared),
    /// A node placed a hold on what it has leased.
    Placed {
        /// Of which lookup.
        lookup: LookupId,
        /// Whether PostgreSQL still counts on the node at this moment, or its lease may go to others.
        lives: bool,
    },
    /// The spends that stand in the shared books in the end, in credits.
    Stand(BTreeMap<LookupId, i64>),
    /// Redis lost what it knew of windows.
    Forgot,
    /// An operator revoked the clients' key.
    Revoked,
    /// The vendor was asked for the person with this email, and will fail like this, or not at all.
    Sought(String, Option<Fault>),
    /// A line of the service's log.
    Logged(Logged),
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Which request of the run.
    pub number: usize,
    /// Whose; `None` is the prober.
    pub client: Option<usize>,
    /// To which node.
    pub node: usize,
    /// What it wants.
    pub wish: Wish,
    /// In which HTTP.
    pub http: Http,
    /// Whether it goes on the connection of the client's request before.
    pub is_next: bool,
    /// The email: must be in no log line.
    pub email: String,
    /// The API key, if it has one: must be in no log line.
    pub key: Option<String>,
    /// The profile that a `found` has to show.
    pub profile: String,
}

/// A reply as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers, in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// What the chain asks a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whose key is it?
    Key,
    /// Which count has the request?
    Count,
    /// Are there credits?
    Hold,
    /// Who is it?
    Person,
    /// Please settle.
    Settle(Settlement),
}

/// What a port answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A workspace has the key, or none.
    Key(bool),
    /// The request's count in the window that closes at that time, and the limit.
    Count(u64, Timestamp, u32),
    /// The credits are held, or not.
    Hold(Holding),
    /// There is a profile, or none.
    Person(bool),
    /// The hold is settled.
    Settled,
    /// The port failed.
    Failed,
}

/// What a store of credits does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It holds credits.
    Held {
        /// Whose.
        workspace: WorkspaceId,
        /// How many.
        credits: u64,
        /// When they were asked for.
        placed_at: Timestamp,
        /// Until when.
        expires_at: Timestamp,
    },
    /// It settles a hold.
    Settled(WorkspaceId, Settlement),
    /// It holds none.
    Denied {
        /// Whose they would be.
        workspace: WorkspaceId,
        /// When they were asked for.
        placed_at: Timestamp,
        /// Too few credits, or a tombstone.
        why: String,
    },
    /// It does not settle: the hold has ended.
    Refused(String),
}

/// The books of a workspace that several nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// All credits that it was ever given.
    pub granted: i64,
    /// What finished lookups cost.
    pub spent: i64,
    /// What nodes have taken and neither spent nor returned.
    pub leased: i64,
    /// The leases, by epoch.
    pub leases: Vec<Lease>,
    /// What the spends that stand add up to.
    pub standing: i64,
}

/// What a node has leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The node's name in PostgreSQL, for as long as it is heard of.
    pub epoch: i64,
    /// What is left of it.
    pub left: i64,
    /// What the node's lookups hold of it.
    pub held: i64,
    /// What operators are shown as held.
    pub shown: i64,
    /// Whether its node was not heard of in time.
    pub has_ended: bool,
}

impl Shared {
    /// As operators see it: what is held, what they are told is held, and what has not come back from a node that is gone.
    pub fn balance(&self) -> Balance {
        let credits = |credits: i64| u64::try_from(credits).unwrap_or_default();
        let held = |lease: &Lease| {
            if lease.has_ended { lease.left } else { lease.held.max(lease.shown).min(lease.left) }
        };
        let held = self.leases.iter().map(held).sum::<i64>();
        Balance {
            granted: credits(self.granted),
            available: credits(self.granted - self.spent - held),
            held: credits(held),
            spent: credits(self.spent),
        }
    }
}

/// A line of the log, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Level, target, and all fields: everything that an operator can see.
    pub line: String,
    /// The lookup and its status, if the line tells of the end of a lookup.
    pub end: Option<(LookupId, u16)>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(workspace, credits) => write!(f, "{workspace} has {credits} credits"),
            Self::Nemesis(deed) => write!(f, "nemesis: {deed}"),
            Self::Started { node, .. } => write!(f, "{} is up", node_name(*node)),
            Self::Crashed(node) => write!(f, "{} crashes", node_name(*node)),
            Self::Healed => f.write_str("everything is healed"),
            Self::Sent(sent) => {
                let client = sent.client.map_or("prober".to_owned(), client_name);
                let (number, wish, http, node) = (sent.number, sent.wish, sent.http, node_name(sent.node));
                let same = if sent.is_next { ", on the same connection" } else { "" };
                write!(f, "{client} sends request {number}, {wish:?}, to {node} in HTTP {http:?}{same}")
            }
            Self::Received(number, reply) => {
                write!(f, "request {number} is answered {} {:?} {}", reply.status, reply.headers, reply.body)
            }
            Self::Lost(number, why) => write!(f, "request {number} has no answer: {why}"),
            Self::Arrived(node, lookup) => write!(f, "{} begins {}", node_name(*node), short(lookup)),
            Self::Asks(lookup, question) => write!(f, "{} asks {question:?}", short(lookup)),
            Self::Told(lookup, answer) => write!(f, "{} is told {answer:?}", short(lookup)),
            Self::Spoiled(lookup, fault) => write!(f, "{} meets {fault:?}", short(lookup)),
            Self::Did(lookup, deed) => write!(f, "{} at the store: {deed:?}", short(lookup)),
            Self::Totals(workspace, _, balance) => write!(f, "{workspace}: {balance:?}"),
            Self::Shared(workspace, shared) => write!(f, "{workspace}: {shared:?}"),
            Self::Placed { lookup, lives: true } => write!(f, "{} is held on a lease", short(lookup)),
            Self::Placed { lookup, .. } => write!(f, "{} is held on a lease that has ended", short(lookup)),
            Self::Stand(spends) => write!(f, "{} spends stand", spends.len()),
            Self::Forgot => f.write_str("redis knows nothing any more"),
            Self::Revoked => f.write_str("the clients' key is revoked"),
            Self::Sought(email, None) => write!(f, "{} looks for {email}", vendor::NAME),
            Self::Sought(email, Some(fault)) => write!(f, "{} looks for {email}: {fault:?}", vendor::NAME),
            Self::Logged(logged) => write!(f, "log: {}", logged.line),
        }
    }
}

/// Enough of a lookup's id to tell it from others in one run.
fn short(lookup: &LookupId) -> String {
    let id = lookup.to_string();
    format!("lookup …{}", &id[id.len() - 8..])
}

/// The lookup with this id, as replies and log lines have it.
pub(crate) fn parse_lookup_id(text: &str) -> Option<LookupId> {
    let hex = text.strip_prefix("lookup_").filter(|hex| hex.len() == 32)?;
    u128::from_str_radix(hex, 16).ok().map(|id| LookupId::from_bytes(id.to_be_bytes()))
}
