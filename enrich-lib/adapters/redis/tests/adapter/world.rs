//! A scripted Redis server at the other end of an in-memory pipe.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use enrich_lib::model::Timestamp;
use enrich_lib::ports::Windows;
use enrich_lib::window::{Quota, Window};
use enrich_redis::{Connect, Login, RedisPolicy, RedisWindows, Stream, WindowStoreError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::watch;

/// The behaviour of the server from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behavior {
    Works,
    /// Connecting fails.
    Down,
    /// Connections are accepted, but requests get no reply.
    Hangs,
    /// Connections are closed.
    Closes,
    /// Requests get no reply, and their connections never get one again.
    Silent,
    /// Counts are made, but replies are delayed until the behavior changes.
    DelaysReplies,
    /// Counts fail with this error.
    Fails(&'static str),
}

#[derive(Debug)]
pub(crate) struct Server {
    behavior: watch::Sender<Behavior>,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    counts: HashMap<String, u64>,
    /// The number of attempts to connect.
    connects: usize,
    /// The connection and the number of requests of each round trip.
    round_trips: Vec<(usize, u64)>,
}

pub(crate) struct World {
    pub(crate) server: Arc<Server>,
    pub(crate) windows: Arc<RedisWindows>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::seeded(7)
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        let server = Arc::new(Server { behavior: watch::channel(Behavior::Works).0, log: Mutex::default() });
        let connect = Arc::new(Pipe(Arc::clone(&server)));
        let windows = RedisWindows::new(connect, Login::default(), RedisPolicy::default(), seed);
        Self { server, windows: Arc::new(windows) }
    }

    pub(crate) fn set(&self, behavior: Behavior) {
        self.server.behavior.send_replace(behavior);
    }

    pub(crate) fn connects(&self) -> usize {
        self.server.log.lock().unwrap().connects
    }

    pub(crate) fn take_round_trips(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut self.server.log.lock().unwrap().round_trips)
    }

    pub(crate) async fn count(&self) -> Result<u64, WindowStoreError> {
        count(&self.windows, &window("demo")).await
    }
}

pub(crate) async fn count(windows: &RedisWindows, window: &Window) -> Result<u64, WindowStoreError> {
    windows.count(window).await.map_err(|error| error.downcast_ref::<WindowStoreError>().unwrap().clone())
}

pub(crate) fn window(workspace: &str) -> Window {
    Quota::default().window(&workspace.parse().unwrap(), Timestamp::from_unix_ms(1_700_000_000_000))
}

struct Pipe(Arc<Server>);

#[async_trait]
impl Connect for Pipe {
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let id = {
            let mut log = self.0.log.lock().unwrap();
            log.connects += 1;
            log.connects
        };
        if *self.0.behavior.borrow() == Behavior::Down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (ours, theirs) = duplex(64 * 1024);
        tokio::spawn(Arc::clone(&self.0).serve(id, theirs));
        Ok(Box::new(ours))
    }
}

impl Server {
    async fn serve(self: Arc<Self>, id: usize, stream: DuplexStream) {
        let mut stream = BufReader::new(stream);
        let mut behaviors = self.behavior.subscribe();
        loop {
            let command = tokio::select! {
                Ok(command) = read(&mut stream) => command,
                _ = behaviors.wait_for(|behavior| *behavior == Behavior::Closes) => return,
                else => return,
            };
            if *behaviors.borrow() == Behavior::Silent {
                return std::future::pending().await;
            }
            let _ = behaviors.wait_for(|behavior| *behavior != Behavior::Hangs).await;
            let behavior = *behaviors.borrow_and_update();
            let answer = match (&*command[0], behavior) {
                ("PING", _) => "+PONG\r\n".to_owned(),
                ("EVALSHA", Behavior::Fails(error)) => format!("-{error}\r\n"),
                ("EVALSHA", _) => self.count(id, &command),
                _ => "-ERR unknown command\r\n".to_owned(),
            };
            let _ = behaviors.wait_for(|behavior| *behavior != Behavior::DelaysReplies).await;
            if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Handles `EVALSHA sha 1 key requests expires_at counts_from`.
    fn count(&self, id: usize, command: &[String]) -> String {
        let mut log = self.log.lock().unwrap();
        let requests: u64 = command[4].parse().unwrap();
        log.round_trips.push((id, requests));
        let count = log.counts.entry(command[3].clone()).or_default();
        *count += requests;
        format!(":{count}\r\n")
    }
}

/// Reads one command, an array of strings.
async fn read(stream: &mut BufReader<DuplexStream>) -> io::Result<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await? + 2];
        stream.read_exact(&mut word).await?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Ok(words)
}

/// Reads the number of a line such as `*3` or `$5`.
async fn number(stream: &mut BufReader<DuplexStream>) -> io::Result<usize> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line[1..].trim_end().parse().unwrap())
}
