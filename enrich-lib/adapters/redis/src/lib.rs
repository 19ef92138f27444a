//! Rate-limit windows shared by several nodes, counted by Redis or Valkey.
//!
//! [`RedisWindows`] implements the port [`Windows`](enrich_lib::ports::Windows). A count takes one atomic
//! round trip on a multiplexed connection. The commands require Redis 6.2 or any version of Valkey; the tests
//! run on Redis 7.0, and have run on Valkey 9.1 without TLS.
//!
//! # Guarantees
//!
//! * **Counting fails closed.** If Redis is down, slow, unreachable, full, or a replica after a failover, the
//!   count returns an error within the timeout (100 ms by default). The server replies 503 and executes
//!   nothing. While a single server is down, counts fail at once; only the count that starts a connection attempt
//!   waits for the timeout.
//! * **Every request gets a distinct count**, across all nodes. Counts of a window that arrive during a round
//!   trip are sent together as one `INCRBY n`, and each gets its own number.
//! * **A counter lives until [`Window::expires_at`]** in true time if Redis's clock is at most 5 s ahead. If
//!   Redis's clock is so far ahead that a new counter would expire at once, and every request would be the
//!   first, the count returns an error that reports the clock difference.
//! * **A node whose clock is fast does not count in windows of its own.** A count more than 10 s before its
//!   window opens by Redis's clock returns an error that reports the clock difference. Each clock may
//!   therefore be wrong by 5 s.
//! * **A connection to one server is not reused after a timeout**, after it has closed, or after Redis reported that it
//!   accepts no writes. The next count opens a new connection, which reaches another server if the host name
//!   resolves to one by then. The backoff between failed attempts has jitter.
//!
//! # Limitations
//!
//! * A count may have been made although its reply was lost. A client may then reach its limit early, but
//!   never late. For this reason, counts are not retried. The Cluster client is an exception: it retries up
//!   to three times if a slot has moved or the connection to a node broke.
//! * If Redis loses its data, by a restart or by a failover to a replica that lags behind, counters restart
//!   from zero. Up to one window's limit more requests may be admitted.
//! * If Redis evicts keys, each eviction of a counter admits the limit again. Set its `maxmemory-policy` to
//!   `noeviction`.
//! * While a server of a Cluster does not respond, the counts of its workspaces fail. About twice a second, a new
//!   connection is tried, which replaces the old one if it leads to another server for them.
//!
//! # Example
//!
//! ```
//! use enrich_redis::{RedisPolicy, RedisUrl, RedisWindows};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let url: RedisUrl = "redis://counter:secret@redis.internal:6379".parse()?;
//! let seed = 7; // use a random seed in production
//! // The first count connects. `check` finds a wrong URL or password at once.
//! let windows = RedisWindows::open(&url, RedisPolicy::default(), seed)?;
//! # Ok(())
//! # }
//! ```
//!
//! The ACL user needs `~enrich:* +ping +evalsha +script|load +time +pttl +set +incrby +pexpireat`. A database
//! other than 0 also requires `+select`, and a Cluster `+cluster|slots`.
//!
//! A Cluster over TLS uses rustls's default provider. A program built with several providers must install one
//! of them first. A single server always uses ring.
//!
//! [`Window::expires_at`]: enrich_lib::window::Window::expires_at
//!
//! Modules are declared in reading order; each uses only those before it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod error;
mod url;
mod policy;
mod connect;
mod counter;
mod server;
mod link;
mod windows;

pub use connect::OpenError;
pub use enrich_net::{Connect, Stream};
pub use error::WindowStoreError;
pub use policy::RedisPolicy;
pub use url::{Login, RedisUrl, RedisUrlError};
pub use windows::RedisWindows;
