//! The machine of a node: its clock, randomness and disk. Stores and sources have their own network and
//! files.

use std::pin::Pin;
use std::time::Duration;

use enrich_lib::model::Timestamp;
use enrich_sqlite::Work;

/// Periodic work that blocks its thread. The future is created on that thread.
pub type Task = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The clocks, randomness and threads of a machine. Timers are those of tokio.
pub trait Machine: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> Timestamp;

    /// Returns the time of a monotonic clock with an arbitrary origin.
    fn monotonic(&self) -> Duration;

    /// Returns random bytes.
    fn random(&self) -> [u8; 32];

    /// Runs the writer of a ledger on SQLite.
    fn run_writer(&self, work: Work);

    /// Runs a task until the machine stops. It may block its thread, on which it has tokio's timers.
    fn spawn(&self, name: &'static str, task: Task);
}
