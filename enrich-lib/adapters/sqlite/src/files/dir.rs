//! The data directory: its files and its lock.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use enrich_lib::model::Timestamp;

use crate::error::SqliteError;

pub(crate) const LOCK: &str = "serve.lock";
const IMPORT_LOCK: &str = "import.lock";

/// All files of a data directory, including SQLite's auxiliary files.
pub(crate) const FILES: [&str; 10] = [
    "accounts.db",
    "accounts.db-wal",
    "accounts.db-shm",
    "people.db",
    "people.db-wal",
    "people.db-shm",
    "people.key",
    "accounts.moved",
    LOCK,
    IMPORT_LOCK,
];

/// A directory with the files of the service:
///
/// | file | content |
/// |---|---|
/// | `accounts.db` | workspaces, keys, credits |
/// | `people.db` | the people directory |
/// | `people.key` | the key for hashing emails; without it, no person in `people.db` can be found |
/// | `accounts.moved` | where the accounts are now, if they were moved to another store |
/// | `serve.lock` | locked by the process that serves, and whether the last one has closed the files in order |
/// | `import.lock` | locked by the process that imports people, with its number |
///
/// All files are private to their owner: any user who can open `serve.lock` could lock it and prevent the
/// service from starting. Wider permissions, for example of files restored from a backup, are narrowed when
/// the directory is opened. The mode of an existing directory is not changed, because other programs may use
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir(PathBuf);

/// An exclusive lock on a data directory. While it exists, no other process serves the directory.
///
/// The operating system releases the lock when the process ends, even after a crash.
#[derive(Debug)]
pub struct ServeLock {
    file: File, // dropping it unlocks
    dir: DataDir,
    /// The accounts and the people that were in the directory when it was locked, or at the first check.
    databases: [OnceLock<FileId>; 2],
}

/// The state in which the last process that served left the files, as `serve.lock` records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastUse {
    /// It has closed them.
    Closed,
    /// It served them.
    Served,
    /// It found an error in the people, or did not finish checking them.
    Unchecked,
}

/// The lock of an import. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct ImportLock {
    file: File,
    path: PathBuf,
}

impl DataDir {
    /// Opens the directory at `path`. Creates it if it is missing, accessible only to its owner.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        let path = path.into();
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&path).map_err(SqliteError::file(&path))?;
        let dir = Self(path);
        dir.make_private();
        Ok(dir)
    }

    /// Opens the directory at `path`.
    ///
    /// Errors: [`SqliteError::NoData`] if it contains neither accounts nor people, nor what is left of them;
    /// [`SqliteError::File`] if this cannot be determined, for example without permission.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        let dir = Self(path.into());
        let mut has_data = false;
        for name in ["accounts.db", "accounts.db-wal", "people.db", "people.db-wal", "people.key"] {
            let path = dir.0.join(name);
            match fs::metadata(&path) {
                Ok(meta) => has_data |= meta.is_file() && (meta.len() > 0 || !name.ends_with("-wal")),
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => return Err(SqliteError::file(path)(error)),
            }
        }
        if !has_data {
            return Err(SqliteError::NoData(dir.0));
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
                // Ignore errors: the file may belong to another user or be on a file system without
                // permissions, such as FAT.
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o700));
            }
        }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Locks the directory for serving.
    ///
    /// Errors: [`SqliteError::Served`] if another process has locked it.
    pub fn lock(&self) -> Result<ServeLock, SqliteError> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(ServeLock::new(file, self)),
            Err(TryLockError::WouldBlock) => Err(SqliteError::Served(self.0.clone())),
            Err(TryLockError::Error(source)) => Err(SqliteError::file(self.0.join(LOCK))(source)),
        }
    }

    /// Locks the people for an import, until the file is dropped or the process ends.
    ///
    /// Errors: [`SqliteError::Importing`] if another process has locked them.
    pub(crate) fn lock_for_import(&self) -> Result<ImportLock, SqliteError> {
        let path = self.0.join(IMPORT_LOCK);
        let mut file = open_lock(&path)?;
        let written = match file.try_lock() {
            // Also sets the time of the last change, which is that of the start of the import.
            Ok(()) => file.set_len(0).and_then(|()| writeln!(file, "{}", process::id())),
            Err(TryLockError::WouldBlock) => {
                let since = file.metadata().and_then(|meta| meta.modified());
                let since = since.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let since = Timestamp::from_unix_ms(since.unwrap_or_default().as_millis() as u64);
                return Err(SqliteError::Importing { dir: self.0.clone(), since });
            }
            Err(TryLockError::Error(error)) => Err(error),
        };
        written.map_err(SqliteError::file(&path))?;
        Ok(ImportLock { file, path })
    }

    /// Returns the state in which the last process that served left the files.
    pub(crate) fn last_use(&self) -> LastUse {
        match fs::read_to_string(self.0.join(LOCK)) {
            Ok(text) if text.is_empty() || text == LastUse::Closed.text() => LastUse::Closed,
            Ok(text) if text == LastUse::Served.text() => LastUse::Served,
            Err(error) if error.kind() == io::ErrorKind::NotFound => LastUse::Closed,
            Ok(_) | Err(_) => LastUse::Unchecked,
        }
    }

    fn lock_file(&self) -> Result<File, SqliteError> {
        open_lock(&self.0.join(LOCK))
    }

    /// Writes a file that is complete whenever it exists, and makes it durable.
    pub(crate) fn replace(&self, name: &str, content: &str) -> Result<(), SqliteError> {
        let (path, partial) = (self.0.join(name), self.0.join(format!("{name}.partial")));
        let _ = fs::remove_file(&partial); // left by a process that was killed here
        let written = write_private(&partial, content.as_bytes()).and_then(|()| fs::rename(&partial, &path));
        written.and_then(|()| File::open(&self.0)?.sync_all()).map_err(SqliteError::file(path))
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

impl LastUse {
    /// Returns the content of `serve.lock`. All have the same length, so that a full disk can store them.
    fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed   \n",
            Self::Served => "served   \n",
            Self::Unchecked => "unchecked\n",
        }
    }
}

impl ServeLock {
    /// Records what this process does with the files, and makes it durable.
    pub(crate) fn record(&self, last: LastUse) -> Result<(), SqliteError> {
        let mut file = &self.file;
        let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(last.text().as_bytes()));
        written.and_then(|()| file.sync_data()).map_err(SqliteError::file(self.dir.0.join(LOCK)))
    }

    fn new(file: File, dir: &DataDir) -> Self {
        let databases = [dir.accounts(), dir.people()]
            .map(|path| fs::metadata(path).map(|meta| FileId::of(&meta).into()).unwrap_or_default());
        Self { file, dir: dir.clone(), databases }
    }

    /// Checks that the directory still contains the locked files. Takes three system calls.
    ///
    /// A process whose files were replaced or deleted keeps writing to the old files, and everything that it
    /// writes is lost when it ends. It would not find later opt-outs either. The databases may be created after the
    /// directory is locked; the first check records them.
    ///
    /// Errors: [`SqliteError::Replaced`]; [`SqliteError::File`] if the files cannot be examined.
    pub fn check(&self) -> Result<(), SqliteError> {
        check_is_opened(&self.file, self.dir.path().join(LOCK))?;
        for (database, path) in self.databases.iter().zip([self.dir.accounts(), self.dir.people()]) {
            if let Some(opened) = database.get() {
                check_is_same(opened, path)?;
            } else if let Ok(meta) = fs::metadata(path) {
                let _ = database.set(FileId::of(&meta)); // set by a concurrent check
            }
        }
        Ok(())
    }
}

impl ImportLock {
    /// Checks that the directory still contains the locked file. Rows in a directory that was replaced are lost.
    ///
    /// Errors: [`SqliteError::Replaced`].
    pub(crate) fn check(&self) -> Result<(), SqliteError> {
        check_is_opened(&self.file, self.path.clone())
    }
}

fn check_is_opened(file: &File, path: PathBuf) -> Result<(), SqliteError> {
    let opened = file.metadata().map_err(SqliteError::file(&path))?;
    check_is_same(&FileId::of(&opened), path)
}

/// Checks that `opened` is the file at `path`.
fn check_is_same(opened: &FileId, path: PathBuf) -> Result<(), SqliteError> {
    match fs::metadata(&path) {
        Ok(meta) if FileId::of(&meta) == *opened => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SqliteError::file(path)(error)),
        _ => Err(SqliteError::Replaced(path)),
    }
}

/// The identity of a file, which its path does not determine: another file can take the path.
#[derive(Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;

        Self { device: meta.dev(), inode: meta.ino() }
    }

    /// Without inodes, all files are equal, so a replaced file is not noticed.
    #[cfg(not(unix))]
    fn of(_meta: &Metadata) -> Self {
        Self { device: 0, inode: 0 }
    }
}

fn open_lock(path: &Path) -> Result<File, SqliteError> {
    private().create(true).truncate(false).open(path).map_err(SqliteError::file(path))
}

/// Creates a file that only its owner can read, writes it and syncs it. Fails if the file exists.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = private().create_new(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Options for writing a file. A file that they create is readable only by its owner.
fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
