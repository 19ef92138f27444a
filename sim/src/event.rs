//! The events of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use enrich_lib::credit::{Balance, HoldOutcome, Price, Settlement};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};
use enrich_lib::receipt::Receipt;
use enrich_lib::window::Quota;
use enrich_lib::wire::REQUEST_ID;

use crate::fault::{FaultKind, VendorFault};
use crate::keys::KeyOf;
use crate::operator::Operation;
use crate::request::{HttpVersion, RequestKind};
use crate::topology::{PROBER, VENDOR, client_name, node_name};

/// One event of a run. `Display` formats it as a line of the trace.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A workspace was created with this limit.
    WorkspaceCreated(WorkspaceId, Quota),
    /// This email has this profile in PostgreSQL when the run starts.
    PersonImported(String, String),
    /// A workspace received credits. A negative number was withdrawn.
    CreditsGranted(WorkspaceId, i64),
    /// A fault started.
    FaultStarted(FaultKind),
    /// A fault ended.
    FaultEnded(FaultKind),
    /// A node started.
    NodeStarted {
        /// The node.
        node: usize,
        /// True if its holds and rate-limit windows are in its memory, so that those from before are lost.
        is_alone: bool,
        /// True if the program's own server runs on it, and false if a gateway's stack does.
        is_program: bool,
        /// True if its vendors have limits and a cache.
        has_middleware: bool,
        /// The price of its lookups.
        price: Price,
    },
    /// A node began to shut down. All later replies announce the end of their connection.
    NodeStopping(usize),
    /// A node has stopped in order. No lookup is in flight on it, and its stores are closed.
    NodeStopped(usize),
    /// A node has failed to start, or has ended with an error. Its process ends with the next event
    /// [`NodeCrashed`](Self::NodeCrashed): until then, its lookups can still reply.
    NodeFailed(usize, String),
    /// A node has loaded its sources: the other ones, if true.
    SourcesLoaded(usize, bool),
    /// The process of a node ended, together with all lookups in flight on it.
    NodeCrashed(usize),
    /// The disk of a node lost power during an operation.
    PowerCut(usize),
    /// All faults are over.
    Healed,
    /// A client sent a request.
    RequestSent(SentRequest),
    /// A client received the reply to the request with this number.
    ReplyReceived(usize, Reply),
    /// A client received no reply to the request with this number. The string is the reason.
    RequestFailed(usize, String),
    /// A request became a lookup on a node.
    LookupStarted(usize, LookupId),
    /// The host called a port for a lookup.
    PortCalled(LookupId, PortCall),
    /// A port call returned to the host.
    PortReturned(LookupId, PortResult),
    /// A lookup is about to hold credits of a workspace, with its receipt.
    HoldRequested(LookupId, WorkspaceId, u64, Option<Receipt>),
    /// A lookup is about to resolve this email.
    Resolving(LookupId, String),
    /// The balance of a workspace in the ledger of a node.
    Balance(WorkspaceId, Balance),
    /// A workspace's shared account, as stored in PostgreSQL.
    SharedAccount(WorkspaceId, SharedAccount),
    /// The committed spends at the end of the run, in credits.
    CommittedSpends(BTreeMap<LookupId, i64>),
    /// The usage of a workspace at the end of the run: the number of lookups by key and outcome. PostgreSQL does not
    /// record the keys of billed lookups.
    Usage(WorkspaceId, BTreeMap<(u32, String), u64>),
    /// A node has become able, or unable, to serve, as `/readyz` reports.
    Ready(usize, bool),
    /// The time since the last tick that succeeded, of a node that has served its last request.
    LastTick(usize, Duration),
    /// A node that stops has committed more than this number of spends together, which is a power of two.
    LargeCommit(usize, u64),
    /// The check of all rows of the database at the end of the run: its errors.
    DatabaseChecked(Vec<String>),
    /// Redis lost its rate-limit windows.
    RedisDataLost,
    /// The standby of PostgreSQL was promoted without this committed spend.
    SpendLost(LookupId),
    /// The clock of a node jumps.
    ClockSet(usize),
    /// An operator refunded the spend of a lookup.
    SpendRefunded(LookupId),
    /// An operator made a change, which applies on every node within a second.
    Operated(Operation),
    /// The vendor received a request for this email and will fail with this fault, if any.
    VendorCalled(String, Option<VendorFault>),
    /// The service logged a line.
    Logged(LogLine),
}

/// A request that a client sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SentRequest {
    /// The request's number in the run.
    pub number: usize,
    /// The client, or `None` for the prober.
    pub client: Option<usize>,
    /// The node that the request was sent to.
    pub node: usize,
    /// The kind of request.
    pub kind: RequestKind,
    /// The HTTP version.
    pub http: HttpVersion,
    /// True if it reuses the connection of the client's previous request.
    pub reuses_connection: bool,
    /// The email. It must not appear in any log line.
    pub email: String,
    /// The API key, if the request has one. It must not appear in any log line.
    pub key: Option<String>,
    /// True if it is a test key.
    pub is_test: bool,
    /// The idempotency key, if the request has one.
    pub idempotency_key: Option<String>,
    /// The profile that a `found` reply must contain.
    pub profile: String,
}

/// A reply as received by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The headers, in the order received.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Reply {
    /// Returns the value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn lookup_id(&self) -> Option<LookupId> {
        self.header(REQUEST_ID.as_str())?.parse().ok()
    }
}

/// A port call of the lookup chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortCall {
    /// Find the workspace of an API key.
    FindKey,
    /// Count the request in its rate-limit window.
    CountRequest,
    /// Hold credits.
    Hold,
    /// Find the person's profile.
    Resolve,
    /// Settle the hold.
    Settle(Settlement),
}

/// The result of a port call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortResult {
    /// The search for a key has ended.
    KeyFound {
        /// True if a workspace has the key.
        is_valid: bool,
        /// The key, if a workspace has it at some time.
        key: Option<KeyOf>,
    },
    /// The request was counted.
    Counted {
        /// The request's count.
        count: u64,
        /// How long before its window opened the request was counted, by the correct time. 0 if the window
        /// was open.
        lead_ms: u64,
        /// The end of the window.
        closes_at: Timestamp,
        /// The limit.
        limit: u32,
        /// How many seconds before the end of the window the call began, by the node's clock.
        reset_seconds: u64,
        /// True if it is a window of test keys.
        is_test: bool,
    },
    /// The outcome of the hold.
    Hold(HoldOutcome),
    /// True if a profile was found.
    ProfileFound(bool),
    /// The hold is settled. Another lookup may have paid.
    Settled(Option<LookupId>),
    /// The call failed.
    Failed,
}

/// The account of a workspace that several nodes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedAccount {
    /// All credits granted to the workspace.
    pub granted: i64,
    /// The credits that are not available.
    pub used: i64,
    /// The sum of the holds.
    pub held: i64,
    /// The credits of ended holds that were not spent, and are returned soon.
    pub rest: i64,
    /// The sum of the committed spends.
    pub committed: i64,
}

impl SharedAccount {
    /// Returns the balance that operators see. The rest of settlements is available: it is returned before a
    /// hold is refused.
    pub fn balance(&self) -> Balance {
        let credits = |credits: i64| u64::try_from(credits).unwrap_or_default();
        Balance {
            granted: credits(self.granted),
            available: credits(self.granted - self.used + self.rest),
            held: credits(self.held),
            spent: credits(self.committed),
        }
    }
}

/// A log line and its parsed fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogLine {
    /// The level, the target and all fields.
    pub text: String,
    /// The lookup and its status, if the line reports the end of a lookup.
    pub lookup_end: Option<(LookupId, u16)>,
    /// The outcome, if the line has one.
    pub outcome: Option<String>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkspaceCreated(workspace, quota) => write!(f, "{workspace} is created with {quota:?}"),
            Self::PersonImported(email, profile) => {
                write!(f, "{email} is imported with the profile {profile}")
            }
            Self::CreditsGranted(workspace, credits) => write!(f, "{workspace} is granted {credits} credits"),
            Self::FaultStarted(fault) => write!(f, "fault starts: {fault}"),
            Self::FaultEnded(fault) => write!(f, "fault ends: {fault}"),
            Self::NodeStarted { node, .. } => write!(f, "{} starts", node_name(*node)),
            Self::NodeStopping(node) => write!(f, "{} is stopping", node_name(*node)),
            Self::NodeStopped(node) => write!(f, "{} has stopped", node_name(*node)),
            Self::NodeFailed(node, error) => write!(f, "{} fails: {error}", node_name(*node)),
            Self::SourcesLoaded(node, is_other) => {
                let which = if *is_other { "the other" } else { "its" };
                write!(f, "{} loads {which} sources", node_name(*node))
            }
            Self::NodeCrashed(node) => write!(f, "{} crashes", node_name(*node)),
            Self::PowerCut(node) => write!(f, "the power of {} is cut", node_name(*node)),
            Self::Healed => f.write_str("all faults are over"),
            Self::RequestSent(sent) => {
                let client = sent.client.map_or(PROBER.to_owned(), client_name);
                let (number, kind, http, node) = (sent.number, sent.kind, sent.http, node_name(sent.node));
                let reuse = if sent.reuses_connection { ", on the same connection" } else { "" };
                let key =
                    sent.idempotency_key.as_ref().map_or(String::new(), |key| format!(" with the key {key}"));
                write!(f, "{client} sends request {number} ({kind:?}){key} to {node} over {http:?}{reuse}")
            }
            Self::ReplyReceived(number, reply) => {
                write!(
                    f,
                    "request {number} receives the reply {} {:?} {}",
                    reply.status, reply.headers, reply.body
                )
            }
            Self::RequestFailed(number, reason) => write!(f, "request {number} receives no reply: {reason}"),
            Self::LookupStarted(node, lookup) => write!(f, "{} starts {}", node_name(*node), short(lookup)),
            Self::PortCalled(lookup, call) => write!(f, "{} calls {call:?}", short(lookup)),
            Self::PortReturned(lookup, result) => write!(f, "{} receives {result:?}", short(lookup)),
            Self::HoldRequested(lookup, workspace, credits, receipt) => {
                let receipt = if receipt.is_some() { " with a receipt" } else { "" };
                write!(f, "{} needs {credits} credits of {workspace}{receipt}", short(lookup))
            }
            Self::Resolving(lookup, email) => write!(f, "{} resolves {email}", short(lookup)),
            Self::Balance(workspace, balance) => write!(f, "{workspace}: {balance:?}"),
            Self::SharedAccount(workspace, account) => write!(f, "{workspace}: {account:?}"),
            Self::CommittedSpends(spends) => write!(f, "{} spends are committed", spends.len()),
            Self::Usage(workspace, usage) => write!(f, "the usage of {workspace}: {usage:?}"),
            Self::Ready(node, is_ready) => {
                write!(f, "{} is {}ready", node_name(*node), if *is_ready { "" } else { "not " })
            }
            Self::LastTick(node, age) => write!(f, "{} has ticked {age:?} ago", node_name(*node)),
            Self::LargeCommit(node, spends) => {
                write!(f, "{} has committed more than {spends} spends together", node_name(*node))
            }
            Self::DatabaseChecked(errors) => write!(f, "the database is checked: {errors:?}"),
            Self::RedisDataLost => f.write_str("Redis loses its data"),
            Self::SpendLost(lookup) => write!(f, "the new primary lacks the spend of {}", short(lookup)),
            Self::ClockSet(node) => write!(f, "the clock of {} jumps", node_name(*node)),
            Self::SpendRefunded(lookup) => write!(f, "the spend of {} is refunded", short(lookup)),
            Self::Operated(operation) => write!(f, "an operator {operation}"),
            Self::VendorCalled(email, None) => write!(f, "{VENDOR} receives a request for {email}"),
            Self::VendorCalled(email, Some(fault)) => {
                write!(f, "{VENDOR} receives a request for {email} with the fault {fault:?}")
            }
            Self::Logged(line) => write!(f, "log: {}", line.text),
        }
    }
}

/// Formats the last digits of a lookup id, which distinguish the lookups of a run.
fn short(lookup: &LookupId) -> String {
    let id = lookup.to_string();
    format!("lookup …{}", &id[id.len() - 8..])
}
