//! The check of the data directory.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long the disk may take to accept a small file.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The size of the file: a block of most file systems.
const BYTES: usize = 4_096;

/// Writes a temporary file to detect a full or read-only disk before a lookup does.
pub struct DiskProbe {
    dir: PathBuf,
    /// Permits one write, because a disk that does not respond blocks its thread.
    idle: Arc<Semaphore>,
}

impl DiskProbe {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), idle: Arc::new(Semaphore::new(1)) }
    }

    /// Fails if the disk does not accept a small file, or has not completed an earlier write.
    pub async fn check(&self) -> Result<(), String> {
        self.check_with(write).await
    }

    async fn check_with<W>(&self, write: W) -> Result<(), String>
    where
        W: FnOnce(&Path) -> io::Result<()> + Send + 'static,
    {
        let not_written = |why: &str| format!("cannot write to {}: {why}", self.dir.display());
        let Ok(permit) = self.idle.clone().try_acquire_owned() else {
            return Err(not_written("an earlier write has not completed"));
        };
        let dir = self.dir.clone();
        let written = spawn_blocking(move || {
            let written = write(&dir);
            drop(permit);
            written
        });
        match timeout(TIMEOUT, written).await {
            Ok(Ok(written)) => written.map_err(|error| not_written(&error.to_string())),
            Ok(Err(_)) => Err(not_written("the check panicked")),
            Err(_) => Err(not_written(&format!("no reply within {TIMEOUT:?}"))),
        }
    }
}

/// Writes a file that has no name, or is deleted at once.
fn write(dir: &Path) -> io::Result<()> {
    tempfile::tempfile_in(dir)?.write_all(&[0; BYTES])
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        DiskProbe::new(dir.path()).check().await.unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_write_blocks_one_thread_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let probe = DiskProbe::new(dir.path());
        let (end, hanging) = channel::<()>();
        let hang = move |_: &Path| hanging.recv().map_err(io::Error::other);
        let (error, ()) = tokio::join!(probe.check_with(hang), advance(2 * TIMEOUT));
        assert!(error.unwrap_err().ends_with("no reply within 2s"));
        for _ in 0..3 {
            let error = probe.check_with(|_| panic!("another thread is blocked")).await.unwrap_err();
            assert!(error.ends_with("an earlier write has not completed"), "{error}");
        }
        end.send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = probe.check().await {
            assert!(Instant::now() < deadline, "{error}");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn fails_without_the_directory_and_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing");
        let error = DiskProbe::new(&missing).check().await.unwrap_err();
        assert!(
            error.starts_with(&format!("cannot write to {}: No such file", missing.display())),
            "{error}"
        );
    }
}
