//! A closed loop of requests: so many connections, each of which asks again as soon as it is answered.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The highest latency that is told apart, in µs.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Who is asked for what.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// How many requests are under way at a time.
    pub connections: usize,
    /// The bytes of the requests: each connection begins with another one, and takes them in turn.
    pub requests: Vec<Vec<u8>>,
}

/// What a server did in a while.
#[derive(Debug)]
pub struct Measured {
    /// Replies that are 200.
    pub ok: u64,
    /// Other replies, and the first of them.
    pub others: u64,
    /// The first that is not 200, for whoever wonders.
    pub other: Option<String>,
    /// How long it took.
    pub elapsed: Duration,
    /// From request to reply, in µs.
    pub latencies: Histogram<u64>,
}

impl Measured {
    /// Replies with 200 in a second.
    pub fn ok_per_second(&self) -> f64 {
        self.ok as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that so many percent of the requests stay below.
    pub fn latency(&self, percent: f64) -> Duration {
        Duration::from_micros(self.latencies.value_at_percentile(percent))
    }
}

impl Load {
    /// Asks for `time`.
    pub async fn run(&self, time: Duration) -> io::Result<Measured> {
        let mut asking = JoinSet::new();
        for nth in 0..self.connections {
            let mut stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let requests = self.requests.clone();
            asking.spawn(async move { ask(&mut stream, &requests, nth, time).await });
        }
        let mut sum =
            Measured { ok: 0, others: 0, other: None, elapsed: Duration::ZERO, latencies: histogram() };
        while let Some(asked) = asking.join_next().await {
            let one = asked.map_err(io::Error::other)??;
            sum.ok += one.ok;
            sum.others += one.others;
            sum.other = sum.other.or(one.other);
            sum.elapsed = sum.elapsed.max(one.elapsed);
            sum.latencies.add(&one.latencies).map_err(io::Error::other)?;
        }
        Ok(sum)
    }
}

async fn ask(
    stream: &mut TcpStream,
    requests: &[Vec<u8>],
    first: usize,
    time: Duration,
) -> io::Result<Measured> {
    let mut measured =
        Measured { ok: 0, others: 0, other: None, elapsed: Duration::ZERO, latencies: histogram() };
    let began = Instant::now();
    let mut received = Vec::with_capacity(4096);
    for request in requests.iter().cycle().skip(first) {
        let asked = Instant::now();
        stream.write_all(request).await?;
        received.clear();
        let is_ok = loop {
            if stream.read_buf(&mut received).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server hung up"));
            }
            if let Some(status) = reply(&received)? {
                break status == 200;
            }
        };
        if is_ok {
            measured.ok += 1;
        } else {
            measured.others += 1;
            measured.other.get_or_insert_with(|| String::from_utf8_lossy(&received).into_owned());
        }
        measured.latencies.saturating_record(asked.elapsed().as_micros() as u64);
        measured.elapsed = began.elapsed();
        if measured.elapsed >= time {
            break;
        }
    }
    Ok(measured)
}

/// The status of a reply that is there as a whole.
fn reply(received: &[u8]) -> io::Result<Option<u16>> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(octets) = head.parse(received).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| str::from_utf8(header.value).ok()?.parse::<usize>().ok());
    let length =
        length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a reply without a length"))?;
    Ok(if received.len() >= octets + length { head.code } else { None })
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_US, 3).expect("three digits can be had")
}
