//! A running server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use super::{Client, Signal, eventually, send};

/// A running server, killed on drop.
pub struct Server {
    child: Child,
    pub url: String,
    log: Arc<Mutex<String>>,
    reading: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Returns a server whose log the test does not read.
    pub(super) fn of(child: Child, url: String) -> Self {
        Self { child, url, log: Arc::default(), reading: None }
    }

    pub fn start(command: &mut Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut log = String::new();
        let url = loop {
            let start = log.len();
            if stderr.read_line(&mut log).unwrap() == 0 {
                child.wait().unwrap();
                return Err(log);
            }
            if log[start..].contains("serving")
                && let Some(url) = url_in(&log[start..])
            {
                break url;
            }
        };
        // Keeps reading, because a full pipe would block the server.
        let log = Arc::new(Mutex::new(log));
        let reading = std::thread::spawn({
            let log = log.clone();
            move || {
                stderr.lines().map_while(Result::ok).for_each(|line| *log.lock().unwrap() += &(line + "\n"))
            }
        });
        Ok(Self { child, url, log, reading: Some(reading) })
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Returns the URL of the web application.
    pub fn console_url(&self) -> String {
        let log = self.log.lock().unwrap();
        log.lines().filter(|line| line.contains("web application")).find_map(url_in).unwrap()
    }

    /// Returns the address of the admin listener.
    pub fn admin(&self) -> SocketAddr {
        let url = self.log().lines().filter(|line| line.contains("admin listener")).find_map(url_in).unwrap();
        url.split("://").nth(1).unwrap().parse().unwrap()
    }

    pub fn address(&self) -> SocketAddr {
        self.url.split("://").nth(1).unwrap().parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the number of open files.
    pub fn open_files(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count() as u64
    }

    /// Returns the resident memory.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }

    /// Returns the number of threads whose names begin with `prefix`.
    pub fn threads(&self, prefix: &str) -> usize {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
        names.flatten().filter(|name| name.starts_with(prefix)).count()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address()).unwrap()
    }

    /// Reads stdout up to the first line that contains `marker`.
    pub fn stdout_line_with(&mut self, marker: &str) -> String {
        let stdout = BufReader::new(self.child.stdout.as_mut().unwrap());
        stdout.lines().map(|line| line.unwrap()).find(|line| line.contains(marker)).unwrap()
    }

    /// Waits until the log contains `part` at least `count` times.
    pub fn wait_for_log(&self, part: &str, count: usize) {
        eventually(part, || (self.log.lock().unwrap().matches(part).count() >= count).then_some(()));
    }

    /// Sends SIGHUP, which reloads the configuration.
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Suspends the process. It then neither replies nor closes connections.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended process, which then handles the input received meanwhile.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn signal(&self, signal: Signal) {
        send(signal, &self.child);
    }

    /// Requests a graceful shutdown.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Requests a graceful shutdown, waits for its end and returns the log.
    pub fn stop(self) -> String {
        self.terminate();
        self.wait()
    }

    /// Like [`stop`](Self::stop), and returns the unread part of stdout too.
    pub fn stop_with_stdout(mut self) -> (String, String) {
        let mut stdout = self.child.stdout.take().unwrap();
        let (log, mut text) = (self.stop(), String::new());
        stdout.read_to_string(&mut text).unwrap();
        (log, text)
    }

    /// Waits for the end of a graceful shutdown and returns the log.
    pub fn wait(mut self) -> String {
        let status = eventually("it stops", || self.child.try_wait().unwrap());
        assert!(status.success(), "the server failed to stop gracefully: {status}");
        self.take_log()
    }

    /// Waits until the server ends by itself, and returns its exit code and the log.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = eventually("it ends", || self.child.try_wait().unwrap());
        (status.code(), self.take_log())
    }

    /// Sends SIGKILL, so that the server neither flushes nor logs anything.
    pub fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.take_log()
    }

    fn take_log(&mut self) -> String {
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the first URL in a log line.
fn url_in(line: &str) -> Option<String> {
    let url = &line[line.find("http")?..];
    Some(url[..url.find(['"', '\n']).unwrap_or(url.len())].to_owned())
}
