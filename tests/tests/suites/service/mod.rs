//! Effects of requests that a golden transcript cannot show: credits, port calls, timeouts, settings, concurrent clients.

mod billing;
mod concurrency;
mod connections;
mod failures;
mod identity;
mod limits;
mod settings;
