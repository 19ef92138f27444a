//! The log of one test.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::fmt::MakeWriter;

/// The captured log of this thread.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

/// A second subscriber. While there is only one, `tracing` asks the thread that reaches a line first, which
/// may have none, and then disables the line on all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

impl Log {
    /// Captures lines at info level and above until the guard is dropped.
    pub fn capture() -> (Self, DefaultGuard) {
        Self::capture_from(LevelFilter::INFO)
    }

    pub fn capture_debug() -> (Self, DefaultGuard) {
        Self::capture_from(LevelFilter::DEBUG)
    }

    fn capture_from(level: LevelFilter) -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).without_time().with_ansi(false);
        let guard = set_default(subscriber.with_max_level(level).finish());
        (log, guard)
    }

    pub fn lines(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Returns the value of a field of a line.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
