//! Files that only their owner may read, and that replace another file in one step.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The mode of a file with people's data.
pub const MODE: u32 = 0o600;

/// The path of a file in the same directory whose name has `end` added.
pub fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

/// Creates a file, in place of one that a killed process left. Follows no symlink and truncates no existing file.
pub fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().read(true).append(true).create_new(true).mode(MODE).open(path),
    }
}

/// Makes new and renamed files in the directory of `path` durable. Does nothing where a directory cannot be synced.
pub fn sync_directory(path: &Path) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}
