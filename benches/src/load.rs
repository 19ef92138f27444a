//! A load generator. Each connection sends its next request as soon as the last one is answered (closed loop), or all
//! connections together send at a fixed rate, even if the servers do not keep up (open loop).
//!
//! It uses one thread and does little work besides system calls, as it must be cheaper than the server. Otherwise it would
//! measure itself.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// Maximum recorded latency, in µs.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Timeout for the outstanding replies at the end of a run.
const PATIENCE: Duration = Duration::from_secs(5);

/// The targets and requests of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The servers. Connections are assigned to them round-robin.
    pub addresses: &'a [SocketAddr],
    /// Number of connections, each with at most one request in progress.
    pub connections: usize,
    /// The bytes of the requests, which are sent in rotation.
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
    Number(u64),
    /// At this rate per second, for this duration. A request waits if no connection is free, and its latency includes the
    /// wait. The thread never sleeps.
    Rate(f64, Duration),
}

impl Pace {
    /// Returns the time at which the `nth` request is due at a fixed rate.
    fn due_at(self, began: Instant, nth: u64) -> Instant {
        match self {
            Self::Rate(rate, _) => began + Duration::from_secs_f64(nth as f64 / rate),
            _ => began,
        }
    }
}

/// The results of one run.
#[derive(Debug)]
pub struct Measured {
    /// Number of replies.
    pub answered: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Latencies in µs, from when a request was sent or due until its reply.
    pub latencies: Histogram<u64>,
}

impl Measured {
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
    pub fn connect(self) -> io::Result<Asking<'a>> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(self.connections);
        for (nth, address) in (0..self.connections).zip(self.addresses.iter().cycle()) {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(nth), Interest::READABLE)?;
            connections.push(Connection { stream, since: Instant::now(), is_begun: false });
        }
        Ok(Asking {
            load: self,
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
pub struct Asking<'a> {
    load: Load<'a>,
    reply_head: String,
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
    since: Instant,
    /// Part of the reply has been received.
    is_begun: bool,
}

impl Asking<'_> {
    /// Sends requests at `pace` and waits for all replies. Fails if a reply has another status, or if a server closes a
    /// connection or does not reply in time.
    pub fn run(&mut self, pace: Pace) -> io::Result<Measured> {
        (self.sent, self.answered) = (0, 0);
        self.latencies.reset();
        let mut events = Events::with_capacity(1_024);
        let began = Instant::now();
        let mut now = began;
        while !self.is_over(pace, began, now) {
            while let Some(since) = self.due(pace, began, now)
                && let Some(free) = self.free.pop_front()
            {
                self.ask(free, since)?;
            }
            now = self.receive(&mut events, pace, began)?;
        }
        let (answered, elapsed) = (self.answered, now - began);
        // The latency of a request that was due but never sent is at least this long.
        while let Pace::Rate(..) = pace
            && let since = pace.due_at(began, self.sent)
            && since < now
        {
            self.record(now - since);
            self.sent += 1;
        }
        while self.free.len() < self.connections.len() {
            self.receive(&mut events, Pace::Number(0), began)?;
        }
        Ok(Measured { answered, elapsed, latencies: self.latencies.clone() })
    }

    fn is_over(&self, pace: Pace, began: Instant, now: Instant) -> bool {
        match pace {
            Pace::Closed(time) | Pace::Rate(_, time) => now - began >= time,
            Pace::Number(number) => self.answered >= number,
        }
    }

    /// Returns when the next request was due, or `None` if it is not due by `now`.
    fn due(&self, pace: Pace, began: Instant, now: Instant) -> Option<Instant> {
        match pace {
            Pace::Closed(time) => (now - began < time).then_some(now),
            Pace::Number(number) => (self.sent < number).then_some(now),
            Pace::Rate(..) => Some(pace.due_at(began, self.sent)).filter(|since| *since <= now),
        }
    }

    fn ask(&mut self, connection: usize, since: Instant) -> io::Result<()> {
        let request = &self.load.requests[self.sent as usize % self.load.requests.len()];
        let connection = &mut self.connections[connection];
        connection.since = since;
        // The connection is idle, so its send buffer has room for the whole request.
        connection.stream.write_all(request)?;
        self.sent += 1;
        Ok(())
    }

    /// Waits for replies, reads them, and sends the next requests on their connections if any are due. Returns the current
    /// time.
    fn receive(&mut self, events: &mut Events, pace: Pace, began: Instant) -> io::Result<Instant> {
        let is_awake = matches!(pace, Pace::Rate(..));
        self.poll.poll(events, Some(if is_awake { Duration::ZERO } else { PATIENCE }))?;
        if events.is_empty() && !is_awake {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the server fell silent"));
        }
        let mut now = Instant::now();
        for event in events.iter() {
            let Token(at) = event.token();
            if !self.is_answered(at)? {
                continue;
            }
            now = Instant::now();
            let latency = now - self.connections[at].since;
            self.record(latency);
            self.answered += 1;
            match self.due(pace, began, now) {
                Some(since) => self.ask(at, since)?,
                None => self.free.push_back(at),
            }
        }
        Ok(now)
    }

    /// Reads from a connection. Returns whether the reply is complete.
    fn is_answered(&mut self, at: usize) -> io::Result<bool> {
        let mut received = [0; 4_096];
        let connection = &mut self.connections[at];
        let octets = match connection.stream.read(&mut received) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            read => read?,
        };
        let reply = &received[..octets];
        if !connection.is_begun && !reply.starts_with(self.reply_head.as_bytes()) {
            return Err(io::Error::other(format!("an unexpected reply: {}", reply.escape_ascii())));
        }
        // All bodies are JSON objects, and no head contains a brace.
        let is_whole = reply.ends_with(b"}");
        connection.is_begun = !is_whole;
        Ok(is_whole)
    }

    fn record(&mut self, latency: Duration) {
        self.latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }
}
