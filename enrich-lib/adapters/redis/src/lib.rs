//! Burst windows for several nodes, counted by Redis or Valkey.
//!
//! [`RedisWindows`] is the port [`Windows`](enrich_lib::ports::Windows): one atomic round trip a count, on one multiplexed
//! connection. Its commands are there since Redis 6.2, and in every Valkey; the tests run on Redis 7.0.
//!
//! # What holds
//!
//! * **It fails closed.** Redis down, slow, cut off, a replica after a failover, or full: the count is an error within the
//!   deadline, 100 ms by default, and the host answers 503 with nothing executed. While Redis is down, counts fail at once
//!   and do not wait for the deadline: only the one that begins a try to connect does.
//! * **No two requests get one count**, whichever nodes they ask. Counts of one window that come while one is under way go
//!   out together as one `INCRBY n`, of which each gets its own number.
//! * **A counter lives until [`Window::forget_at`]** by the right time, if Redis's clock is at most 5 s ahead. If it is so far
//!   ahead that a counter would be forgotten as soon as it is made, and every request be the first, the count is an error that
//!   says that the clocks differ.
//! * **A connection that timed out is not used again**, nor one on which Redis said that it takes no writes. The next
//!   count connects anew, so it finds another server where a name leads there by then; pauses between tries that fail have
//!   jitter.
//!
//! # What does not
//!
//! * A count may have been made although its answer was lost. That errs on the safe side: a client may be told to wait with
//!   a request left that it never made. For the same reason a count is not asked for again; but the client of a Cluster
//!   does so by itself, up to three times, where a slot has moved or a node's connection broke.
//! * Where Redis loses its memory, by a restart or by a failover to a replica that had not heard of the last counts, counters
//!   begin anew: up to one window's limit more may be admitted. So it is where Redis evicts keys: let its
//!   `maxmemory-policy` be `noeviction`.
//! * A Cluster with one node down may answer 503 for moments to workspaces of other nodes as well, as it is connected to
//!   anew.
//!
//! # Example
//!
//! ```
//! use enrich_redis::{RedisPolicy, RedisUrl, RedisWindows};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: RedisUrl = "redis://counter:secret@redis.internal:6379".parse()?;
//! let seed = 7; // in earnest: randomness
//! let windows = RedisWindows::open(&url, RedisPolicy::default(), seed)?; // connects with the first count
//! # Ok(())
//! # }
//! ```
//!
//! The user of an ACL needs `~enrich:* +ping +evalsha +script|load +time +pttl +set +incrby +pexpireat`, and `+select` for another
//! database than 0 or `+cluster|slots` for a Cluster.
//!
//! A Cluster over TLS takes rustls's default provider: a program that is built with several installs one of them first. A
//! single server is reached with ring, whatever there is.
//!
//! [`Window::forget_at`]: enrich_lib::window::Window::forget_at
//!
//! # Layout
//!
//! `fault` the vocabulary · `lock` · `url` where Redis is · `policy` patience · `connect` the bytes under a connection · `counter` the script ·
//! `server` a connection to one server or a Cluster · `link` the one that lives · `windows` the port.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod fault;

mod lock;

mod url;

mod policy;

mod connect;

mod counter;

mod server;

mod link;

mod windows;

pub use connect::{Connect, OpenFault, Stream};
pub use fault::RedisFault;
pub use policy::RedisPolicy;
pub use url::{Login, RedisUrl, RedisUrlFault};
pub use windows::RedisWindows;
