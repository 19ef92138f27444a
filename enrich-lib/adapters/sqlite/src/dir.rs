//! The data directory: which files it has, and who serves it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// A directory with the files of the service:
///
/// | file | has |
/// |---|---|
/// | `accounts.db` | workspaces, keys, credits |
/// | `people.db` | the people directory |
/// | `people.key` | the key under which emails are hashed: without it, nobody in `people.db` is found |
/// | `serve.lock` | locked by the process that serves |
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
        Ok(Self(path))
    }

    /// The directory at `path`. Errors: [`StoreError::NoData`] if there are no accounts in it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let dir = Self(path.into());
        if dir.accounts().is_file() { Ok(dir) } else { Err(StoreError::NoData(dir.0)) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Takes the right to serve it. Errors: [`StoreError::Served`] if another process has it.
    pub fn lock(&self) -> Result<ServeLock, StoreError> {
        let path = self.0.join("serve.lock");
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(StoreError::file(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(ServeLock(file)),
            Err(TryLockError::WouldBlock) => Err(StoreError::Served(self.0.clone())),
            Err(TryLockError::Error(source)) => Err(StoreError::File { path, source }),
        }
    }

    /// Whether a process serves it.
    pub fn is_served(&self) -> bool {
        matches!(self.lock(), Err(StoreError::Served(_)))
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
pub(crate) fn write_secret(path: &Path, secret: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    io::Write::write_all(&mut file, secret)?;
    file.sync_all()
}
