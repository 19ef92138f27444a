//! A load generator. Each connection sends its next request as soon as the last one is answered (closed
//! loop), or all connections together send at a fixed rate, even if the servers do not keep up (open loop).
//!
//! It uses one thread and does little work besides system calls, as it must be cheaper than the server.
//! Otherwise it would measure itself.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::dataset;

/// Maximum recorded latency, in µs.
const LATENCY_MAX_US: u64 = 60_000_000;

/// How long the thread sleeps before it polls again, at a fixed rate and if no request is due within twice
/// this time. Otherwise, the thread would occupy a core that the servers share. A measured latency can be
/// longer than the real one by this time.
const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// Timeout for the outstanding replies at the end of a run.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The targets and requests of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The servers. Connections are assigned to them round-robin.
    pub addresses: &'a [SocketAddr],
    /// Number of connections, each with at most one request in progress.
    pub connections: usize,
    /// The bytes of the requests, which are sent in rotation. If they have idempotency keys, each one that is
    /// sent has a new one.
    pub requests: &'a [Vec<u8>],
    /// The expected status of all replies.
    pub status: u16,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As soon as a connection is free, for this duration.
    Closed(Duration),
    /// As soon as a connection is free, this many requests in total.
    Count(u64),
    /// At this rate per second, for this duration. A request waits if no connection is free, and its latency
    /// includes the wait. At 5,000 and more per second, the thread never sleeps.
    Rate(f64, Duration),
}

impl Pace {
    /// Returns the time at which the `nth` request is due at a fixed rate.
    fn due_at(self, started_at: Instant, nth: u64) -> Instant {
        match self {
            Self::Rate(rate, _) => started_at + Duration::from_secs_f64(nth as f64 / rate),
            _ => started_at,
        }
    }
}

/// The results of one run.
#[derive(Debug)]
pub struct LoadResult {
    /// Number of replies.
    pub answered: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Latencies in µs, from when a request was sent or due until its reply.
    pub latencies: Histogram<u64>,
}

impl LoadResult {
    /// Returns the replies per second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns a percentile of the latency.
    pub fn latency(&self, percent: f64) -> Duration {
        Duration::from_micros(self.latencies.value_at_percentile(percent))
    }
}

impl<'a> Load<'a> {
    /// Opens the connections.
    pub fn connect(self) -> io::Result<ActiveLoad<'a>> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(self.connections);
        for (nth, address) in (0..self.connections).zip(self.addresses.iter().cycle()) {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(nth), Interest::READABLE)?;
            connections.push(Connection { stream, sent_at: Instant::now(), is_partial: false });
        }
        let key_place = self.requests.first().and_then(|request| dataset::idempotency_key_place(request));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        Ok(ActiveLoad {
            load: self,
            key_place,
            next_key: now.as_nanos() as u64,
            reply_head: format!("HTTP/1.1 {} ", self.status),
            poll,
            free: (0..connections.len()).collect(),
            connections,
            sent: 0,
            answered: 0,
            latencies: Histogram::new_with_max(LATENCY_MAX_US, 3).map_err(io::Error::other)?,
        })
    }
}

/// The open connections of a load. They are closed on drop.
#[derive(Debug)]
pub struct ActiveLoad<'a> {
    load: Load<'a>,
    reply_head: String,
    key_place: Option<Range<usize>>,
    next_key: u64,
    poll: Poll,
    connections: Vec<Connection>,
    free: VecDeque<usize>,
    sent: u64,
    answered: u64,
    latencies: Histogram<u64>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// When its request was sent or due.
    sent_at: Instant,
    /// Part of the reply has been received.
    is_partial: bool,
}

impl ActiveLoad<'_> {
    /// Sends requests at `pace` and waits for all replies. Fails if a reply has another status, or if a
    /// server closes a connection or does not reply in time.
    pub fn run(&mut self, pace: Pace) -> io::Result<LoadResult> {
        (self.sent, self.answered) = (0, 0);
        self.latencies.reset();
        let mut events = Events::with_capacity(1_024);
        let started_at = Instant::now();
        let mut now = started_at;
        while !self.is_over(pace, started_at, now) {
            while let Some(since) = self.due(pace, started_at, now)
                && let Some(free) = self.free.pop_front()
            {
                self.send(free, since)?;
            }
            now = self.receive(&mut events, pace, started_at)?;
        }
        let (answered, elapsed) = (self.answered, now - started_at);
        // The latency of a request that was due but never sent is at least this long.
        while let Pace::Rate(..) = pace
            && let since = pace.due_at(started_at, self.sent)
            && since < now
        {
            self.record(now - since);
            self.sent += 1;
        }
        while self.free.len() < self.connections.len() {
            self.receive(&mut events, Pace::Count(0), started_at)?;
        }
        Ok(LoadResult { answered, elapsed, latencies: self.latencies.clone() })
    }

    fn is_over(&self, pace: Pace, started_at: Instant, now: Instant) -> bool {
        match pace {
            Pace::Closed(time) | Pace::Rate(_, time) => now - started_at >= time,
            Pace::Count(count) => self.answered >= count,
        }
    }

    /// Returns when the next request was due, or `None` if it is not due by `now`.
    fn due(&self, pace: Pace, started_at: Instant, now: Instant) -> Option<Instant> {
        match pace {
            Pace::Closed(time) => (now - started_at < time).then_some(now),
            Pace::Count(count) => (self.sent < count).then_some(now),
            Pace::Rate(..) => Some(pace.due_at(started_at, self.sent)).filter(|since| *since <= now),
        }
    }

    fn send(&mut self, connection: usize, since: Instant) -> io::Result<()> {
        let request = &self.load.requests[self.sent as usize % self.load.requests.len()];
        let mut request = Cow::Borrowed(request);
        if let Some(place) = self.key_place.clone() {
            request.to_mut()[place].copy_from_slice(dataset::idempotency_key(self.next_key).as_bytes());
            self.next_key += 1;
        }
        let connection = &mut self.connections[connection];
        connection.sent_at = since;
        // The connection is idle, so its send buffer has room for the whole request.
        connection.stream.write_all(&request)?;
        self.sent += 1;
        Ok(())
    }

    /// Waits for replies, reads them, and sends the next requests on their connections if any are due.
    /// Returns the current time.
    fn receive(&mut self, events: &mut Events, pace: Pace, started_at: Instant) -> io::Result<Instant> {
        let is_busy_polling = matches!(pace, Pace::Rate(..));
        self.poll.poll(events, Some(if is_busy_polling { Duration::ZERO } else { REPLY_TIMEOUT }))?;
        if events.is_empty() && !is_busy_polling {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no reply within {REPLY_TIMEOUT:?}"),
            ));
        }
        let mut now = Instant::now();
        if is_busy_polling
            && events.is_empty()
            && self.due(pace, started_at, now + 2 * POLL_INTERVAL).is_none()
        {
            thread::sleep(POLL_INTERVAL);
            now = Instant::now();
        }
        for event in events.iter() {
            let Token(index) = event.token();
            if !self.is_answered(index)? {
                continue;
            }
            now = Instant::now();
            let latency = now - self.connections[index].sent_at;
            self.record(latency);
            self.answered += 1;
            match self.due(pace, started_at, now) {
                Some(since) => self.send(index, since)?,
                None => self.free.push_back(index),
            }
        }
        Ok(now)
    }

    /// Reads from a connection. Returns whether the reply is complete.
    fn is_answered(&mut self, index: usize) -> io::Result<bool> {
        let mut received = [0; 4_096];
        let connection = &mut self.connections[index];
        let bytes = match connection.stream.read(&mut received) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            read => read?,
        };
        let reply = &received[..bytes];
        if !connection.is_partial && !reply.starts_with(self.reply_head.as_bytes()) {
            return Err(io::Error::other(format!("unexpected reply: {}", reply.escape_ascii())));
        }
        // All bodies are JSON objects, and no head contains a brace.
        let is_complete = reply.ends_with(b"}");
        connection.is_partial = !is_complete;
        Ok(is_complete)
    }

    fn record(&mut self, latency: Duration) {
        self.latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }
}
