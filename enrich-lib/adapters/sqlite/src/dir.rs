//! The data directory: which files it has, and who serves it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use crate::error::StoreError;

const LOCK: &str = "serve.lock";

/// All files of a data directory, with those that SQLite keeps beside its databases.
#[cfg(unix)]
const FILES: [&str; 9] = [
    "accounts.db",
    "accounts.db-wal",
    "accounts.db-shm",
    "people.db",
    "people.db-wal",
    "people.db-shm",
    "people.key",
    "accounts.moved",
    LOCK,
];

/// How often [`DataDir::lock`] tries again while others look at the lock.
const LOCK_ATTEMPTS_MAX: u32 = 1_000;

/// A directory with the files of the service:
///
/// | file | has |
/// |---|---|
/// | `accounts.db` | workspaces, keys, credits |
/// | `people.db` | the people directory |
/// | `people.key` | the key under which emails are hashed: without it, nobody in `people.db` is found |
/// | `accounts.moved` | where the accounts are now, if they were moved to another store |
/// | `serve.lock` | locked by the process that serves |
///
/// All of them are private to their owner: any user who can open `serve.lock` could lock it and so keep the service from
/// starting. Wider permissions, as of files from a backup, are narrowed when the directory is opened. The mode of an
/// existing directory is not changed, because other programs may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

/// While it lives, no other process serves the data directory. The lock ends with the process, however that ends.
#[derive(Debug)]
pub struct ServeLock(#[expect(dead_code, reason = "dropping it unlocks")] File);

impl DataDir {
    /// The directory at `path`, made if it is missing, for its owner alone.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&path).map_err(StoreError::file(&path))?;
        let dir = Self(path);
        dir.make_private();
        Ok(dir)
    }

    /// The directory at `path`. Errors: [`StoreError::NoData`] if there are neither accounts nor people in it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let dir = Self(path.into());
        let has_data = dir.accounts().is_file() || dir.people().is_file();
        if !has_data {
            return Err(StoreError::NoData(dir.0));
        }
        dir.make_private();
        Ok(dir)
    }

    /// Removes the permissions of group and others from the files.
    fn make_private(&self) {
        #[cfg(unix)]
        for name in FILES {
            use std::os::unix::fs::PermissionsExt;

            let path = self.0.join(name);
            let Ok(mode) = fs::metadata(&path).map(|meta| meta.permissions().mode()) else { continue };
            if mode & 0o077 != 0 {
                // Another user's file and file systems without permissions, such as FAT, are no reason to fail.
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o700));
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes the right to serve it. Errors: [`StoreError::Served`] if another process has it.
    pub fn lock(&self) -> Result<ServeLock, StoreError> {
        let file = self.lock_file()?;
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match file.try_lock() {
                Ok(()) => return Ok(ServeLock(file)),
                // If a share is to be had, nobody serves: somebody asks `is_served` at this moment.
                Err(TryLockError::WouldBlock) if file.try_lock_shared().is_ok() => {
                    file.unlock().map_err(StoreError::file(self.0.join(LOCK)))?;
                    thread::yield_now();
                }
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(source)) => return Err(StoreError::file(self.0.join(LOCK))(source)),
            }
        }
        Err(StoreError::Served(self.0.clone()))
    }

    /// Whether a process serves it. It asks for a share of the lock, so that those who ask don't take each other for
    /// a server.
    pub fn is_served(&self) -> bool {
        let share = self.lock_file().map(|file| file.try_lock_shared());
        matches!(share, Ok(Err(TryLockError::WouldBlock)))
    }

    fn lock_file(&self) -> Result<File, StoreError> {
        let path = self.0.join(LOCK);
        private().create(true).truncate(false).open(&path).map_err(StoreError::file(path))
    }

    pub(crate) fn accounts(&self) -> PathBuf {
        self.0.join("accounts.db")
    }

    pub(crate) fn people(&self) -> PathBuf {
        self.0.join("people.db")
    }

    pub(crate) fn people_key(&self) -> PathBuf {
        self.0.join("people.key")
    }
}

/// Writes a file that must not exist yet, readable by its owner alone, and waits until it is on the disk.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = private().create_new(true).open(path)?;
    io::Write::write_all(&mut file, content)?;
    file.sync_all()
}

/// Options to write a file that only its owner may read, if they create it.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
