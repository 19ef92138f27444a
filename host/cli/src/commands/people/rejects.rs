//! The list of rejected rows, with their lines and reasons but never their content. Created with the first
//! rejected row.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::private_file::{self, sync_directory, with_name_suffix};

pub struct Rejects {
    path: PathBuf,
    /// Renamed to `path` when complete. The rename replaces a symlink instead of following it.
    new_path: PathBuf,
    new: Option<BufWriter<File>>,
    pub count: u64,
}

impl Rejects {
    /// Creates the list for rows of the file `input`. Fails if `path` is `input` or not a regular file.
    pub fn new(path: PathBuf, input: &Path) -> Result<Self, Failure> {
        let is_special = fs::metadata(&path).is_ok_and(|meta| !meta.is_file());
        if is_special {
            let failure = Failure::new(format!("{} is not a regular file", path.display()));
            return Err(failure.advise("choose another file with --rejects"));
        }
        let id = |path: &Path| fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        if id(&path).is_some_and(|path| Some(path) == id(input)) {
            let failure = Failure::new(format!("{} is the file to import", path.display()));
            return Err(failure.advise("choose another file with --rejects"));
        }
        let new_path = with_name_suffix(&path, ".new");
        Ok(Self { path, new_path, new: None, count: 0 })
    }

    /// Adds a rejected row.
    pub fn add(&mut self, line: u64, reason: &str) -> Result<(), Failure> {
        self.count += 1;
        self.write(line, reason).map_err(|e| Failure::file("write", &self.new_path, e))
    }

    fn write(&mut self, line: u64, reason: &str) -> io::Result<()> {
        let new = match &mut self.new {
            Some(new) => new,
            None => {
                let new = self.new.insert(BufWriter::new(private_file::create(&self.new_path)?));
                writeln!(new, "line,reason")?;
                new
            }
        };
        writeln!(new, "{line},\"{}\"", reason.replace('"', "\"\""))
    }

    /// Replaces the file at the list's path. Returns the path, or `None` if no row was rejected.
    pub fn finish(mut self) -> Result<Option<PathBuf>, Failure> {
        let Some(mut new) = self.new.take() else { return Ok(None) };
        let written = new.flush().and_then(|()| new.get_ref().sync_all());
        written
            .and_then(|()| fs::rename(&self.new_path, &self.path))
            .inspect_err(|_| drop(fs::remove_file(&self.new_path)))
            .map_err(|e| Failure::file("write", &self.path, e))?;
        sync_directory(&self.path);
        Ok(Some(self.path.clone()))
    }
}

impl Drop for Rejects {
    fn drop(&mut self) {
        if self.new.is_some() {
            let _ = fs::remove_file(&self.new_path);
        }
    }
}
