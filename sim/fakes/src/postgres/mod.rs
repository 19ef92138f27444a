//! A fake PostgreSQL with the subset that the adapter uses.
//!
//! `books` the stored data · `calls` the supported statements · `connection` the protocol.

pub mod books;
mod calls;
mod connection;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use self::books::Books;

/// A fake PostgreSQL server. Its data outlives connections. Cheap to clone.
#[derive(Clone)]
pub struct Postgres {
    books: Arc<Mutex<Books>>,
    notifications: watch::Sender<u64>,
    now: Arc<dyn Fn() -> u64 + Send + Sync>,
}

impl Postgres {
    /// Creates a server with this data. `now` returns its clock, in milliseconds since the Unix epoch.
    pub fn new(books: Books, now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let notifications = watch::Sender::new(books.notifications());
        Self { books: Arc::new(Mutex::new(books)), notifications, now: Arc::new(now) }
    }

    /// Runs `act` on the data atomically, and sends the notifications that it causes.
    pub fn with<T>(&self, act: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.lock();
        let done = act(&mut books);
        let notifications = books.notifications();
        self.notifications.send_if_modified(|sent| std::mem::replace(sent, notifications) != notifications);
        done
    }

    /// Serves one connection until it closes.
    pub async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        connection::serve(self, stream).await
    }

    fn now_ms(&self) -> i64 {
        i64::try_from((self.now)()).unwrap_or(i64::MAX)
    }

    fn notifications(&self) -> watch::Receiver<u64> {
        self.notifications.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("books", &*self.lock()).finish_non_exhaustive()
    }
}
