//! The output of `enrich bulk`: stdout, or a file that a later run can resume.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, fstat, stat};

use crate::files::TableRow;

use super::columns::Columns;
use super::input::Input;
use super::previous_run::{PreviousRun, RetryPolicy};
use super::row_result::RowResult;
use super::run_id::RunId;
use crate::failure::Failure;
use crate::output;
use crate::path::is_dash;
use crate::private_file::{self, MODE, sync_directory, with_name_suffix};

/// The destination of the output rows.
pub struct Sink {
    columns: Columns,
    target: Target,
}

enum Target {
    Stdout(io::Stdout),
    File { path: PathBuf, file: File, rewrite: Option<Rewrite>, is_synced: bool },
}

/// A new version of OUT, which replaces it when it has as many rows.
struct Rewrite {
    /// OUT, which is locked.
    _old: File,
    /// The path of OUT without symlinks, because a rename would replace a symlink instead of the file.
    out: PathBuf,
    /// The path of the new version.
    copy: PathBuf,
    /// The number of rows that the new version lacks.
    rows_left: u64,
}

impl Sink {
    /// Creates a sink for stdout and writes the header.
    pub fn stdout(columns: Columns, input: &Input) -> Result<Self, Failure> {
        output::check_is_open().map_err(|error| unwritable(&error))?;
        let stdout = fstat(io::stdout()).ok().and_then(file_id);
        if stdout.is_some() && stdout == input_id(&input.path) {
            return Err(same_file(""));
        }
        let mut sink = Self { columns, target: Target::Stdout(io::stdout()) };
        if let Some(header) = input.header() {
            sink.write(&[header, &sink.columns.header_end()].concat(), 0)?;
        }
        Ok(sink)
    }

    /// Opens the file at `path` to append to its rows. Consumes these rows from `input`, and fails if they
    /// differ. If some are looked up again, writes a new version of the file, so that it is complete at any time.
    pub fn file(
        path: &Path,
        force: bool,
        columns: Columns,
        input: &mut Input,
        retries: RetryPolicy,
        run_id: RunId,
    ) -> Result<(Self, PreviousRun, RunId), Failure> {
        let write_error = |e: io::Error| Failure::file("write", path, e);
        let mut file = open(path, &input.path)?;
        // The files beside OUT are the same ones for each path that leads to it.
        let path = &*fs::canonicalize(path).map_err(write_error)?;
        if force {
            // The results are lost only if this run can store its id.
            run_id.prepare(path)?;
            file.set_len(0).map_err(write_error)?;
        }
        let (previous, header) = PreviousRun::read(path, &file, &columns, input, retries)?;
        let has_rows = previous.kept + previous.failed_rows > 0;
        let old_run_id = if force { None } else { run_id.read(path, has_rows)? };
        let mut rewrite = None;
        if previous.rewritten == 0 {
            file.set_len(previous.bytes).map_err(write_error)?;
            if previous.bytes == 0 {
                // An existing file may have a less restrictive mode.
                file.set_permissions(fs::Permissions::from_mode(MODE)).map_err(write_error)?;
            }
            file.write_all(&header).map_err(write_error)?;
        } else {
            let copy = with_name_suffix(path, ".rewrite");
            let new =
                copy_start(&file, &copy, previous.bytes).map_err(|e| Failure::file("rewrite", path, e))?;
            let old = std::mem::replace(&mut file, new);
            rewrite = Some(Rewrite { _old: old, out: path.to_owned(), copy, rows_left: previous.rewritten });
        }
        let target = Target::File { path: path.to_owned(), file, rewrite, is_synced: false };
        let mut sink = Self { columns, target };
        sink.sync()?;
        if old_run_id.is_none() {
            if !force {
                run_id.prepare(path)?;
            }
            RunId::replace(path)?;
        }
        Ok((sink, previous, old_run_id.unwrap_or(run_id)))
    }

    /// Returns the text of an output row.
    pub fn row(&self, row: &TableRow, result: &RowResult) -> Vec<u8> {
        [row.text.as_slice(), &self.columns.row_end(&row.text, result)].concat()
    }

    /// Writes this number of complete rows.
    pub fn write(&mut self, text: &[u8], rows: u64) -> Result<(), Failure> {
        match &mut self.target {
            Target::Stdout(stdout) => {
                stdout.write_all(text).and_then(|()| stdout.flush()).map_err(|e| unwritable(&e))
            }
            Target::File { path, file, rewrite, is_synced } => {
                *is_synced = false;
                file.write_all(text).map_err(|e| Failure::file("write", path, e).advise(RESUME_ADVICE))?;
                let Some(Rewrite { out, copy, rows_left, .. }) = rewrite else { return Ok(()) };
                *rows_left = rows_left.saturating_sub(rows);
                if *rows_left == 0 {
                    let replaced = file.sync_all().and_then(|()| fs::rename(&*copy, &*out));
                    replaced.map_err(|e| Failure::file("rewrite", path, e).advise(RESUME_ADVICE))?;
                    sync_directory(out);
                    *rewrite = None;
                }
                Ok(())
            }
        }
    }

    /// Returns whether rows of OUT are missing in its new version.
    pub fn is_rewriting(&self) -> bool {
        matches!(&self.target, Target::File { rewrite: Some(_), .. })
    }

    /// Makes all written rows durable.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let Target::File { path, file, is_synced, .. } = &mut self.target else { return Ok(()) };
        if !*is_synced {
            file.sync_data().map_err(|e| Failure::file("write", path, e))?;
            *is_synced = true;
        }
        Ok(())
    }

    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout(_))
    }
}

fn unwritable(error: &io::Error) -> Failure {
    output::unwritable(error).advise("use -o OUT to keep results that are paid for")
}

/// The advice of a run that stopped early and can be resumed.
pub const RESUME_ADVICE: &str = "run the same command again to resume";

/// Copies the start of `out` to `path`. Returns the copy, which is locked like OUT.
fn copy_start(out: &File, path: &Path, bytes: u64) -> io::Result<File> {
    let mut copy = private_file::create(path)?;
    copy.lock()?;
    let meta = out.metadata()?;
    // Only root can change the owner of a file. For any other user, the copy keeps the current owner.
    let _ = fchown(&copy, Some(meta.uid()), Some(meta.gid()));
    copy.set_permissions(meta.permissions())?;
    let mut out = out;
    out.rewind()?;
    io::copy(&mut out.take(bytes), &mut copy)?;
    Ok(copy)
}

/// Returns the device and the inode of a regular file.
fn file_id(meta: Stat) -> Option<(u64, u64)> {
    FileType::from_raw_mode(meta.st_mode).is_file().then_some((meta.st_dev, meta.st_ino))
}

fn path_id(path: &Path) -> Option<(u64, u64)> {
    stat(path).ok().and_then(file_id)
}

/// Returns the [`file_id`] of FILE, or of stdin for `-`.
fn input_id(input: &Path) -> Option<(u64, u64)> {
    if is_dash(input) { fstat(io::stdin()).ok().and_then(file_id) } else { path_id(input) }
}

fn same_file(suffix: &str) -> Failure {
    Failure::new(format!("FILE and OUT{suffix} are the same file")).advise("choose another file with -o")
}

/// Opens OUT and locks it for this process.
fn open(path: &Path, input: &Path) -> Result<File, Failure> {
    let write_error = |e: io::Error| Failure::file("write", path, e);
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(MODE).open(path).map_err(write_error)?;
    let meta = file.metadata().map_err(write_error)?;
    if !meta.is_file() {
        let failure = Failure::new(format!("{} is not a regular file", path.display()));
        return Err(failure.advise("omit -o to write the rows to stdout"));
    }
    let out = fs::canonicalize(path).map_err(write_error)?;
    let (out_id, input_id) = (fstat(&file).ok().and_then(file_id), input_id(input));
    let is_input = |suffix: &&str| input_id.is_some() && path_id(&with_name_suffix(&out, suffix)) == input_id;
    let beside = [".run", ".run.partial", ".rewrite"];
    if let Some(suffix) = [""].into_iter().chain(beside).find(is_input) {
        return Err(same_file(suffix));
    }
    let is_output = |suffix: &&str| with_name_suffix(&out, &format!("{suffix}.run")).exists();
    if let Some(suffix) = beside.into_iter().find(is_output) {
        let failure = Failure::new(format!("{}{suffix} is the output of another run", path.display()));
        return Err(failure.advise("choose another file with -o"));
    }
    match file.try_lock() {
        // The previous holder of the lock may have replaced the file.
        Ok(()) if path_id(path) == out_id => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            let failure = Failure::new(format!("another run is writing {}", path.display()));
            Err(failure.advise("wait for it to finish, or choose another file with -o"))
        }
        Err(TryLockError::Error(error)) => Err(write_error(error)),
    }
}
