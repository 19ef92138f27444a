//! The `Windows` port. Counts of a window that arrive during a round trip are sent together in the next one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::ports::Windows;
use enrich_lib::refusal::PortError;
use enrich_lib::window::Window;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connect::{Connect, OpenError};
use crate::counter::Counter;
use crate::error::WindowStoreError;
use crate::link::Link;
use crate::lock::lock;
use crate::policy::RedisPolicy;
use crate::server::Server;
use crate::url::{Login, RedisUrl};

/// Rate-limit windows counted by Redis or Valkey, shared by all nodes. The first count connects. Requires a tokio runtime.
pub struct RedisWindows(Arc<Shared>);

impl RedisWindows {
    /// Creates the windows of the server or Cluster at `url`. `seed` seeds the jitter of reconnects. Does not connect.
    pub fn open(url: &RedisUrl, policy: RedisPolicy, seed: u64) -> Result<Self, OpenError> {
        Ok(Self::of(Server::open(url, policy.deadline)?, policy, seed))
    }

    /// Creates the windows of one server, reached through `connect`.
    pub fn new(connect: Arc<dyn Connect>, login: Login, policy: RedisPolicy, seed: u64) -> Self {
        Self::of(Server::One { connect, login }, policy, seed)
    }

    fn of(server: Server, policy: RedisPolicy, seed: u64) -> Self {
        let link = Arc::new(Link::new(server, policy, seed));
        Self(Arc::new(Shared { link, deadline: policy.deadline, flights: Mutex::default() }))
    }
}

#[async_trait]
impl Windows for RedisWindows {
    async fn count(&self, window: &Window) -> Result<u64, PortError> {
        let counted = match timeout(self.0.deadline, self.0.board(Counter::of(window))).await {
            Ok(answer) => answer.unwrap_or(Err(WindowStoreError::GivenUp)),
            Err(_) => Err(WindowStoreError::TimedOut(self.0.deadline)),
        };
        counted.map_err(PortError::new)
    }
}

struct Shared {
    link: Arc<Link>,
    deadline: Duration,
    /// The counters with a round trip in progress. There are at most as many as requests in progress.
    flights: Mutex<HashMap<Counter, Flight>>,
}

/// The round trips of a counter.
struct Flight {
    /// The requests waiting for the next round trip.
    boarding: Vec<Passenger>,
    pilot: AbortHandle,
}

/// The channel to a request that waits for its count.
type Passenger = oneshot::Sender<Result<u64, WindowStoreError>>;

impl Shared {
    /// Adds a request to the next round trip of `counter`. If none is in progress, the round trip starts at once.
    fn board(self: &Arc<Self>, counter: Counter) -> oneshot::Receiver<Result<u64, WindowStoreError>> {
        let (passenger, count) = oneshot::channel();
        let mut flights = lock(&self.flights);
        match flights.get_mut(&counter) {
            // A finished task has panicked or was aborted, and sends nothing.
            Some(flight) if !flight.pilot.is_finished() => flight.boarding.push(passenger),
            _ => {
                // A separate task completes the round trip even if all requests are cancelled, so that a failure of the
                // connection is detected.
                let pilot = tokio::spawn(Arc::clone(self).fly(counter.clone())).abort_handle();
                flights.insert(counter, Flight { boarding: vec![passenger], pilot });
            }
        }
        count
    }

    /// Makes round trips until no request is waiting.
    async fn fly(self: Arc<Self>, counter: Counter) {
        while let Some(passengers) = self.aboard(&counter) {
            let requests = passengers.len() as u64;
            let counted = self.round_trip(&counter, requests).await;
            let before = counted.map(|count| count - requests);
            for (number, passenger) in (1..).zip(passengers) {
                let _ = passenger.send(before.clone().map(|before| before + number));
            }
        }
    }

    /// Takes the waiting requests, except cancelled ones. If none remain, removes the counter and returns `None`.
    fn aboard(&self, counter: &Counter) -> Option<Vec<Passenger>> {
        let mut flights = lock(&self.flights);
        let mut passengers = std::mem::take(&mut flights.get_mut(counter)?.boarding);
        passengers.retain(|passenger| !passenger.is_closed());
        if passengers.is_empty() {
            flights.remove(counter);
            return None;
        }
        Some(passengers)
    }

    async fn round_trip(&self, counter: &Counter, requests: u64) -> Result<u64, WindowStoreError> {
        let end = Instant::now() + self.deadline;
        let too_slow = WindowStoreError::TimedOut(self.deadline);
        let connection =
            timeout_at(end, self.link.connection()).await.unwrap_or_else(|_| Err(too_slow.clone()))?;
        let counted = timeout_at(end, connection.count(counter, requests)).await.unwrap_or(Err(too_slow));
        match &counted {
            Ok(_) => self.link.worked(),
            Err(error) if error.is_the_connections() => self.link.lost(&connection, error),
            Err(_) => {}
        }
        counted
    }
}

impl fmt::Debug for RedisWindows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisWindows").field("deadline", &self.0.deadline).finish_non_exhaustive()
    }
}
