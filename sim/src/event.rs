//! The events of a run.

use std::collections::BTreeMap;
use std::fmt;

use enrich_lib::credit::{Balance, HoldOutcome, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};

use crate::plan::{Http, Wish, client_name, node_name};
use crate::trouble::Fault;
use crate::vendor;

/// One event of a run. `Display` formats it as a line of the trace.
#[derive(Clone, Debug)]
pub enum Event {
    /// A workspace received its initial credits.
    Granted(WorkspaceId, u64),
    /// The nemesis injected or removed a fault.
    Nemesis(String),
    /// A node started.
    Started {
        /// The node.
        node: usize,
        /// True if the holds of the node's previous life are lost because only the node stored them.
        forgets: bool,
    },
    /// A node crashed, together with all lookups in flight on it.
    Crashed(usize),
    /// All faults are over.
    Healed,
    /// A client sent a request.
    Sent(Sent),
    /// A client received the reply to the request with this number.
    Received(usize, Reply),
    /// A client received no reply to the request with this number. The string is the reason.
    Lost(usize, String),
    /// A request became a lookup on a node.
    Arrived(usize, LookupId),
    /// The host called a port for a lookup.
    Asks(LookupId, Question),
    /// A port call returned to the host.
    Told(LookupId, Answer),
    /// A fault is about to affect a settlement, either the call to the store or its response.
    Spoiled(LookupId, Fault),
    /// The credit store executed an operation for a lookup. The host may not receive the result.
    Did(LookupId, Deed),
    /// The totals of a workspace at this time, without the holds that have expired by then.
    Totals(WorkspaceId, Timestamp, Balance),
    /// A workspace's shared account, as stored in PostgreSQL.
    Shared(WorkspaceId, Shared),
    /// A node placed a hold on its lease.
    Placed {
        /// The lookup.
        lookup: LookupId,
        /// True if the node's lease was valid by PostgreSQL's clock when the hold was placed. If not, PostgreSQL may give
        /// the leased credits to other nodes.
        lives: bool,
    },
    /// The committed spends in the shared accounts at the end of the run, in credits.
    Stand(BTreeMap<LookupId, i64>),
    /// Redis lost its rate-limit windows.
    Forgot,
    /// An operator revoked the clients' key.
    Revoked,
    /// The vendor received a request for this email and will fail with this fault, if any.
    Sought(String, Option<Fault>),
    /// The service logged a line.
    Logged(Logged),
}

/// A request that a client sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The request's number in the run.
    pub number: usize,
    /// The client, or `None` for the prober.
    pub client: Option<usize>,
    /// The node that the request was sent to.
    pub node: usize,
    /// The kind of request.
    pub wish: Wish,
    /// The HTTP version.
    pub http: Http,
    /// True if it reuses the connection of the client's previous request.
    pub is_next: bool,
    /// The email. It must not appear in any log line.
    pub email: String,
    /// The API key, if the request has one. It must not appear in any log line.
    pub key: Option<String>,
    /// The profile that a `found` reply must contain.
    pub profile: String,
}

/// A reply as received by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers, in the order received.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

/// A port call of the lookup chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Find the workspace of an API key.
    Key,
    /// Count the request in its rate-limit window.
    Count,
    /// Hold credits.
    Hold,
    /// Resolve the person.
    Person,
    /// Settle the hold.
    Settle(Settlement),
}

/// The result of a port call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// True if a workspace has the key.
    Key(bool),
    /// The request's count, the end of its window, and the limit.
    Count(u64, Timestamp, u32),
    /// The outcome of the hold.
    Hold(HoldOutcome),
    /// True if a profile was found.
    Person(bool),
    /// The hold is settled.
    Settled,
    /// The call failed.
    Failed,
}

/// An operation of a credit store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// The store held credits.
    Held {
        /// The workspace.
        workspace: WorkspaceId,
        /// The number of credits.
        credits: u64,
        /// When the hold was requested.
        placed_at: Timestamp,
        /// When the hold expires.
        expires_at: Timestamp,
    },
    /// The store settled a hold.
    Settled(WorkspaceId, Settlement),
    /// The store did not hold any credits.
    Denied {
        /// The workspace.
        workspace: WorkspaceId,
        /// When the hold was requested.
        placed_at: Timestamp,
        /// The reason, for example too few credits or a tombstone.
        why: String,
    },
    /// The store refused to settle because the hold had already ended.
    Refused(String),
}

/// The account of a workspace that several nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// All credits granted to the workspace.
    pub granted: i64,
    /// Credits spent by finished lookups.
    pub spent: i64,
    /// Credits that nodes have leased and neither spent nor returned.
    pub leased: i64,
    /// The leases, by epoch.
    pub leases: Vec<Lease>,
    /// The sum of all committed spends.
    pub standing: i64,
}

/// The credits that a node has leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The epoch that identifies the node in PostgreSQL, valid until the node's lease expires.
    pub epoch: i64,
    /// Credits left on the lease.
    pub left: i64,
    /// Credits that the node's lookups hold on the lease.
    pub held: i64,
    /// Held credits as reported to operators.
    pub shown: i64,
    /// True if the node failed to renew the lease in time.
    pub has_ended: bool,
}

impl Shared {
    /// Returns the balance that operators see.
    ///
    /// A live lease counts as held with its holds, or with the reported holds if these are more. An ended lease counts as
    /// held with all credits left on it, because they have not been returned yet.
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

/// A log line and its parsed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The level, the target and all fields.
    pub line: String,
    /// The lookup and its status, if the line reports the end of a lookup.
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

/// Formats the last digits of a lookup id, which distinguish the lookups of a run.
fn short(lookup: &LookupId) -> String {
    let id = lookup.to_string();
    format!("lookup …{}", &id[id.len() - 8..])
}

/// Parses a lookup id in the format of replies and log lines.
pub(crate) fn parse_lookup_id(text: &str) -> Option<LookupId> {
    let hex = text.strip_prefix("lookup_").filter(|hex| hex.len() == 32)?;
    u128::from_str_radix(hex, 16).ok().map(|id| LookupId::from_bytes(id.to_be_bytes()))
}
