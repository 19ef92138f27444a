//! Snapshots of the people directory, so that several nodes have the same people.
//!
//! A snapshot is one SQLite file with all records, the fingerprint of their key, the time of its publication
//! and a digest of its content. It contains no key and no opt-outs: people who opted out have no record. It
//! appears under its name when it is complete and durable. A directory installs it in one commit, which
//! writes only the records that differ.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use enrich_lib::model::Timestamp;
use enrich_store::{EmailHash, KeyFingerprint, opt_out_range};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Rows, params};
use sha2::{Digest, Sha256};

use crate::column::{ms, time};
use crate::database;
use crate::dir::write_private;
use crate::error::SqliteError;
use crate::verify;

/// A published snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Number of people.
    pub people: u64,
    /// Size of the file.
    pub bytes: u64,
}

/// The result of installing a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Number of people in the snapshot.
    pub people: u64,
    /// People who are new or whose record differed.
    pub changed: u64,
    /// People who were not in the snapshot.
    pub removed: u64,
}

const SCHEMA: &str = "
    CREATE TABLE person (email_hash BLOB PRIMARY KEY, profile TEXT NOT NULL, confidence REAL NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE published (people_key BLOB NOT NULL, at INTEGER NOT NULL, people INTEGER NOT NULL, digest BLOB NOT NULL) STRICT";

/// Identifies a snapshot of this format in the header of the file.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"enr1");

/// Size of a SQLite file's header up to the application id, which is its end.
const HEADER_BYTES: usize = 72;

const SELECT: &str = "SELECT email_hash, profile, confidence FROM person ORDER BY email_hash";

#[derive(PartialEq)]
struct Record {
    email_hash: EmailHash,
    profile: String,
    confidence: f64,
}

fn next(rows: &mut Rows<'_>) -> Result<Option<Record>, SqliteError> {
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Record { email_hash: row.get(0)?, profile: row.get(1)?, confidence: row.get(2)? }))
}

/// A digest of records in the order of their hashes.
#[derive(Default)]
struct Content {
    digest: Sha256,
    people: u64,
}

impl Content {
    fn add(&mut self, record: &Record) {
        self.digest.update(record.email_hash);
        self.digest.update(record.confidence.to_bits().to_le_bytes());
        self.digest.update((record.profile.len() as u64).to_le_bytes());
        self.digest.update(&record.profile);
        self.people += 1;
    }
}

/// Writes a snapshot of the directory to `target`, and records its publication in the directory.
pub(super) fn publish(
    directory: &Connection,
    key: &KeyFingerprint,
    target: &Path,
    now: Timestamp,
) -> Result<Published, SqliteError> {
    check_replaceable(target)?;
    let partial = Partial::create(target)?;
    let at = now.max(newest(directory)?.unwrap_or_default() + std::time::Duration::from_millis(1));
    let content = write(directory, &partial.0, key, at).map_err(|error| error.of_full_disk(&partial.0))?;
    verify::check(&partial.0)?;
    let bytes = partial.finish(target)?;
    record(directory, at)?;
    Ok(Published { people: content.people, bytes })
}

/// Checks that the target is missing or a snapshot: any other file, such as a database, must not be lost.
fn check_replaceable(target: &Path) -> Result<(), SqliteError> {
    let meta = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta.map_err(SqliteError::file(target))?,
    };
    let mut header = [0; HEADER_BYTES];
    let is_snapshot = meta.is_file()
        && File::open(target).and_then(|mut file| file.read_exact(&mut header)).is_ok()
        && header.ends_with(&APPLICATION_ID.to_be_bytes());
    if is_snapshot { Ok(()) } else { Err(SqliteError::NotReplaced(target.to_owned())) }
}

fn write(
    directory: &Connection,
    path: &Path,
    key: &KeyFingerprint,
    at: Timestamp,
) -> Result<Content, SqliteError> {
    let mut copy = verify::open_unchanged(path)?;
    // The file is synced when it is complete.
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    copy.pragma_update(None, "application_id", APPLICATION_ID)?;
    let tx = copy.transaction()?;
    tx.execute_batch(SCHEMA)?;
    let mut content = Content::default();
    {
        let mut insert =
            tx.prepare("INSERT INTO person (email_hash, profile, confidence) VALUES (?, ?, ?)")?;
        let mut select = directory.prepare(SELECT)?;
        let mut rows = select.query([])?;
        while let Some(record) = next(&mut rows)? {
            content.add(&record);
            insert.execute(params![record.email_hash, record.profile, record.confidence])?;
        }
    }
    let digest: [u8; 32] = content.digest.clone().finalize().into();
    let insert = "INSERT INTO published (people_key, at, people, digest) VALUES (?, ?, ?, ?)";
    tx.execute(insert, params![key, ms(at), content.people, digest])?;
    tx.commit()?;
    Ok(content)
}

/// Installs a snapshot in the directory, whose other records it removes. People who opted out are skipped.
///
/// Errors: [`SqliteError::NotSnapshot`], [`SqliteError::OtherPeopleKey`], [`SqliteError::OlderSnapshot`],
/// [`SqliteError::DamagedSnapshot`]. In these cases, the directory is unchanged.
pub(super) fn fetch(
    directory: &mut Connection,
    reader: &Connection,
    key: &KeyFingerprint,
    source: &Path,
) -> Result<Fetched, SqliteError> {
    let snapshot = open(source)?;
    let at = check(&snapshot, key, source).map_err(|error| error.of_snapshot(source))?;
    if newest(directory)?.is_some_and(|newest| at < newest) {
        return Err(SqliteError::OlderSnapshot(source.to_owned()));
    }
    install(directory, reader, &snapshot, at)
}

/// Opens a snapshot, which may be on a medium without write access.
fn open(source: &Path) -> Result<Connection, SqliteError> {
    let meta = File::open(source).and_then(|file| file.metadata()).map_err(SqliteError::file(source))?;
    if !meta.is_file() {
        return Err(SqliteError::NotSnapshot(source.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(source, flags)?)
}

/// Checks the content of a snapshot and returns the time of its publication.
fn check(snapshot: &Connection, key: &KeyFingerprint, source: &Path) -> Result<Timestamp, SqliteError> {
    let application_id: i32 = snapshot.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application_id != APPLICATION_ID {
        return Err(SqliteError::NotSnapshot(source.to_owned()));
    }
    let select = "SELECT people_key, at, people, digest FROM published";
    let (people_key, at, people, digest): (KeyFingerprint, _, u64, [u8; 32]) =
        snapshot.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    if people_key != *key {
        return Err(SqliteError::OtherPeopleKey(source.to_owned()));
    }
    let mut content = Content::default();
    let mut select = snapshot.prepare(SELECT)?;
    let mut rows = select.query([])?;
    while let Some(record) = next(&mut rows)? {
        content.add(&record);
    }
    if content.people != people || content.digest.finalize()[..] != digest {
        return Err(SqliteError::DamagedSnapshot(source.to_owned()));
    }
    Ok(time(at))
}

/// Changes the directory to the content of the snapshot in one commit. `reader` is another connection to the
/// directory.
fn install(
    directory: &mut Connection,
    reader: &Connection,
    snapshot: &Connection,
    at: Timestamp,
) -> Result<Fetched, SqliteError> {
    directory.pragma_update(None, "secure_delete", true)?;
    let tx = database::begin(directory)?;
    let mut fetched = Fetched::default();
    {
        let mut delete = tx.prepare("DELETE FROM person WHERE email_hash = ?")?;
        let mut replace = tx.prepare(
            "INSERT OR REPLACE INTO person (email_hash, profile, confidence) SELECT ?1, ?2, ?3
             WHERE NOT EXISTS (SELECT 1 FROM opt_out WHERE email_hash BETWEEN ?4 AND ?5 AND NOT is_withdrawn)",
        )?;
        // Its transaction begins after that of `tx`, which no other process can change before it ends.
        let (mut old, mut new) = (reader.prepare(SELECT)?, snapshot.prepare(SELECT)?);
        let (mut old, mut new) = (old.query([])?, new.query([])?);
        let (mut before, mut after) = (next(&mut old)?, next(&mut new)?);
        loop {
            let order = match (&before, &after) {
                (Some(before), Some(after)) => before.email_hash.cmp(&after.email_hash),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => break,
            };
            if order.is_lt()
                && let Some(record) = &before
            {
                delete.execute([record.email_hash])?;
                fetched.removed += 1;
            }
            if order.is_ge()
                && let Some(record) = &after
            {
                fetched.people += 1;
                if before.as_ref() != Some(record) {
                    let Record { email_hash, profile, confidence } = record;
                    let [low, high] = opt_out_range(email_hash);
                    fetched.changed +=
                        replace.execute(params![email_hash, profile, confidence, low, high])? as u64;
                }
            }
            if order.is_le() {
                before = next(&mut old)?;
            }
            if order.is_ge() {
                after = next(&mut new)?;
            }
        }
    }
    record(&tx, at)?;
    tx.commit()?;
    Ok(fetched)
}

/// Returns when the newest snapshot was published that is from this directory or installed in it.
fn newest(directory: &Connection) -> Result<Option<Timestamp>, SqliteError> {
    let at = directory.query_row("SELECT published_at FROM newest_snapshot", [], |row| row.get(0));
    Ok(at.optional()?.map(time))
}

fn record(directory: &Connection, at: Timestamp) -> Result<(), SqliteError> {
    let replace = "INSERT OR REPLACE INTO newest_snapshot (id, published_at) VALUES (1, ?)";
    directory.execute(replace, [ms(at)])?;
    Ok(())
}

/// The file beside the target in which the snapshot is written. It is removed when it is dropped unfinished.
struct Partial(PathBuf);

impl Partial {
    /// Creates the file. Removes one that a killed process left.
    fn create(target: &Path) -> Result<Self, SqliteError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let path = target.with_file_name(name);
        let _ = fs::remove_file(&path);
        write_private(&path, b"").map_err(SqliteError::file(&path))?;
        Ok(Self(path))
    }

    /// Makes the file durable at the path of the target. Returns its size.
    fn finish(self, target: &Path) -> Result<u64, SqliteError> {
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let finished = File::open(&self.0).and_then(|file| {
            file.sync_all()?;
            fs::rename(&self.0, target)?;
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            file.metadata()
        });
        Ok(finished.map_err(SqliteError::file(target))?.len())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // it was renamed, or the next publication removes it
    }
}
