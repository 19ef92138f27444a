//! The list of rejected rows, with their lines and reasons but never their content. Created with the first
//! rejected row.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output;
use crate::private_file::{self, sync_directory, with_name_suffix};

pub struct Rejects {
    path: PathBuf,
    /// Renamed to `path` when complete. The rename replaces a symlink instead of following it.
    new_path: PathBuf,
    new: Option<BufWriter<File>>,
    /// Why the list cannot be written.
    error: Option<io::Error>,
    pub count: u64,
}

/// The first line of each list.
const HEADER: &str = "line,reason";

impl Rejects {
    /// Creates the list for rows of the file `input`. Fails if `path` is `input` or not a regular file.
    pub fn new(path: PathBuf, input: &Path) -> Result<Self, Failure> {
        let is_special = fs::metadata(&path).is_ok_and(|meta| !meta.is_file());
        if is_special {
            let failure = Failure::new(format!("{} is not a regular file", path.display()));
            return Err(failure.advise("choose another file with --rejects"));
        }
        let id = |meta: io::Result<Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
        // The rename at the end replaces a symlink to the input, and not the input.
        let replaced = id(fs::symlink_metadata(&path));
        if replaced.is_some() && replaced == id(fs::metadata(input)) {
            let failure = Failure::new(format!("{} is the file to import", path.display()));
            return Err(failure.advise("choose another file with --rejects"));
        }
        let new_path = with_name_suffix(&path, ".new");
        Ok(Self { path, new_path, new: None, error: None, count: 0 })
    }

    /// Adds a rejected row. If the list cannot be written, the rows are only counted.
    pub fn add(&mut self, line: u64, reason: &str) {
        self.count += 1;
        if self.error.is_none() {
            self.error = self.write(line, reason).err();
        }
    }

    fn write(&mut self, line: u64, reason: &str) -> io::Result<()> {
        let new = match &mut self.new {
            Some(new) => new,
            None => {
                let new = self.new.insert(BufWriter::new(create_locked(&self.new_path)?));
                writeln!(new, "{HEADER}")?;
                new
            }
        };
        writeln!(new, "{line},\"{}\"", reason.replace('"', "\"\""))
    }

    /// Replaces the file at the list's path, or removes the list of an earlier import if no row was rejected.
    /// Returns the path, or `None` if there is no list.
    pub fn finish(mut self) -> Option<PathBuf> {
        if self.count == 0 {
            self.remove_earlier();
            return None;
        }
        if let Err(error) = self.replace() {
            let failure = Failure::file("write", &self.path, error);
            output::remark(format!("the rejected rows are not listed: {}", failure.what));
            return None;
        }
        sync_directory(&self.path);
        Some(self.path.clone())
    }

    fn replace(&mut self) -> io::Result<()> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if let Some(new) = &mut self.new {
            new.flush()?;
            new.get_ref().sync_all()?;
        }
        fs::rename(&self.new_path, &self.path)?;
        self.new = None;
        Ok(())
    }

    /// Removes the file at the list's path if it is a list.
    fn remove_earlier(&self) {
        let mut start = [0; HEADER.len()];
        let is_list = File::open(&self.path).and_then(|mut file| file.read_exact(&mut start)).is_ok();
        if is_list && start == *HEADER.as_bytes() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a file, or replaces one that no other import is writing.
fn create_locked(path: &Path) -> io::Result<File> {
    let is_locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if File::open(path).is_ok_and(is_locked) {
        return Err(io::Error::other("another import is writing it"));
    }
    let file = private_file::create(path)?;
    // Without effect on a file system that has no locks.
    let _ = file.try_lock();
    Ok(file)
}

impl Drop for Rejects {
    fn drop(&mut self) {
        if self.new.is_some() {
            let _ = fs::remove_file(&self.new_path);
        }
    }
}
