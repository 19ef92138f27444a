//! The port: counts of one window that come while one is under way go out together.

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

use crate::connect::{Connect, OpenFault};
use crate::counter::Counter;
use crate::fault::RedisFault;
use crate::link::Link;
use crate::lock::lock;
use crate::policy::RedisPolicy;
use crate::server::Server;
use crate::url::{Login, RedisUrl};

/// Windows that Redis or Valkey counts, for all nodes that ask it. Connects with the first count; needs a tokio runtime.
pub struct RedisWindows(Arc<Shared>);

impl RedisWindows {
    /// The windows of the server or Cluster at `url`; `seed` makes the jitter of reconnects.
    pub fn open(url: &RedisUrl, policy: RedisPolicy, seed: u64) -> Result<Self, OpenFault> {
        Ok(Self::of(Server::open(url, policy.deadline)?, policy, seed))
    }

    /// The windows of one server that is reached by `connect`.
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
            Ok(answer) => answer.unwrap_or(Err(RedisFault::GivenUp)),
            Err(_) => Err(RedisFault::TimedOut(self.0.deadline)),
        };
        counted.map_err(PortError::new)
    }
}

struct Shared {
    link: Arc<Link>,
    deadline: Duration,
    /// The counters that are being counted up. They are no more than the requests that are under way.
    flights: Mutex<HashMap<Counter, Flight>>,
}

/// The round trips of a counter.
struct Flight {
    /// Who waits for the next one.
    boarding: Vec<Passenger>,
    pilot: AbortHandle,
}

/// A request that waits for its count.
type Passenger = oneshot::Sender<Result<u64, RedisFault>>;

impl Shared {
    /// Waits for the next round trip of `counter`, which is at once if none is under way.
    fn board(self: &Arc<Self>, counter: Counter) -> oneshot::Receiver<Result<u64, RedisFault>> {
        let (passenger, count) = oneshot::channel();
        let mut flights = lock(&self.flights);
        match flights.get_mut(&counter) {
            // Not one that broke down without a word.
            Some(flight) if !flight.pilot.is_finished() => flight.boarding.push(passenger),
            _ => {
                // A task: a round trip ends by itself, so that a connection is judged even if nobody waits any more.
                let pilot = tokio::spawn(Arc::clone(self).fly(counter.clone())).abort_handle();
                flights.insert(counter, Flight { boarding: vec![passenger], pilot });
            }
        }
        count
    }

    /// Makes round trips until nobody waits.
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

    /// All who wait by now, but for those whose time is up; if there are none, the flight is over.
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

    async fn round_trip(&self, counter: &Counter, requests: u64) -> Result<u64, RedisFault> {
        let end = Instant::now() + self.deadline;
        let too_slow = RedisFault::TimedOut(self.deadline);
        let connection =
            timeout_at(end, self.link.connection()).await.unwrap_or_else(|_| Err(too_slow.clone()))?;
        let counted = timeout_at(end, connection.count(counter, requests)).await.unwrap_or(Err(too_slow));
        match &counted {
            Ok(_) => self.link.worked(),
            Err(fault) if fault.is_the_connections() => self.link.lost(&connection, fault),
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
