//! Asks servers over so many connections: each again as soon as it is answered (a closed loop), or all together at a fixed
//! rate, whether the servers keep up or not (an open loop).
//!
//! One thread, and little work beside the system calls: whoever asks has to be cheaper than whoever answers, or it is measured
//! in the server's place.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

/// The highest latency that is told apart, in µs.
const LATENCY_MAX_US: u64 = 60_000_000;

/// How long the last replies may take once nothing is asked any more.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who is asked for what.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The servers: the connections go to them in turn.
    pub addresses: &'a [SocketAddr],
    /// How many connections there are, with one request at a time on each.
    pub connections: usize,
    /// The bytes of the requests, which are taken in turn.
    pub requests: &'a [Vec<u8>],
    /// The status of all replies.
    pub status: u16,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As soon as a connection is free, for so long.
    Closed(Duration),
    /// As soon as a connection is free, so many in all.
    Number(u64),
    /// So many a second, for so long. A request that finds no connection free waits for one, and its latency counts from
    /// when it was due. The thread never sleeps.
    Rate(f64, Duration),
}

impl Pace {
    /// When the `nth` request is due, at a fixed rate.
    fn due_at(self, began: Instant, nth: u64) -> Instant {
        match self {
            Self::Rate(rate, _) => began + Duration::from_secs_f64(nth as f64 / rate),
            _ => began,
        }
    }
}

/// What the servers did in a while.
#[derive(Debug)]
pub struct Measured {
    /// How many requests were answered.
    pub answered: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// From when a request was sent, or due, to its reply, in µs.
    pub latencies: Histogram<u64>,
}

impl Measured {
    /// Replies in a second.
    pub fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that so many percent of the requests stay below.
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

/// Connections that ask. They stay open until this is dropped.
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
    /// When its request was sent, or due.
    since: Instant,
    /// A part of its reply is there.
    is_begun: bool,
}

impl Asking<'_> {
    /// Asks, and waits for the last replies. Errors: a reply of another status, a server that hangs up or falls silent.
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
        // What was due and never sent is as late as this at least.
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

    /// When the next request is due, if it is by `now`.
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
        // Its connection is idle, so there is room for it as a whole.
        connection.stream.write_all(request)?;
        self.sent += 1;
        Ok(())
    }

    /// Takes the replies that are there, once there are some, and asks again at once where that is due. Returns when it
    /// was done.
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

    /// Whether a reply is there as a whole.
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
        // All bodies are JSON objects, and no head has a brace.
        let is_whole = reply.ends_with(b"}");
        connection.is_begun = !is_whole;
        Ok(is_whole)
    }

    fn record(&mut self, latency: Duration) {
        self.latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }
}
