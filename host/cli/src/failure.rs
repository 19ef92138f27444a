//! The error of a command: what failed, what to do, and the exit code.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use enrich_lib::model::Timestamp;
use enrich_postgres::PostgresError;
use enrich_sqlite::SqliteError;
use enrich_store::StoreError;
use enrich_vendors::provider::SettingError;

#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub advice: Option<String>,
    pub exit: Exit,
}

/// The exit code of a failed command. `enrich --help` documents all codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The reader of the output needs no more of it. There is no message.
    Complete = 0,
    Failed = 1,
    /// A flag, an environment variable or a setting is invalid. Clap exits with the same code.
    Usage = 2,
    /// The service refused the request with 401, 402 or 429.
    Refused = 3,
    /// No connection could be made, so nothing was executed.
    Unreachable = 4,
    /// 128 + SIGHUP.
    HungUp = 129,
    /// 128 + SIGINT, as shells report it.
    Interrupted = 130,
    /// 128 + SIGTERM.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), advice: None, exit: Exit::Failed }
    }

    /// Creates an error for an invalid flag, environment variable or setting.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(what).exit(Exit::Usage)
    }

    /// Converts an error of the command line parser.
    pub fn arguments(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let (what, advice) = text.split_once("\n\n").unwrap_or((&text, ""));
        Self::usage(what.trim_start_matches("error: ")).advise(advice.trim())
    }

    /// Creates an error for a file operation that failed. `verb` names the operation, such as "read".
    pub fn file(verb: &str, path: &Path, why: impl Error) -> Self {
        Self::new(format!("cannot {verb} {}: {why}", path.display()))
    }

    /// Converts the error to an error in `setting`.
    pub fn of_setting(self, setting: &str) -> SettingError {
        let advice = self.advice.map(|advice| format!("; {advice}")).unwrap_or_default();
        SettingError::new(setting, format!("{}{advice}", self.what))
    }

    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Adds advice if there is none.
    pub fn or_advise(self, advice: &str) -> Self {
        Self { advice: self.advice.or_else(|| Some(advice.to_owned())), ..self }
    }

    pub fn exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::usage(error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = Self::new(error.to_string());
        match &error {
            StoreError::UnknownWorkspace(_) => {
                failure.advise("list the workspaces with `enrich workspace list`")
            }
            StoreError::Quota(_) => failure.exit(Exit::Usage),
            StoreError::WorkspaceExists(_) => {
                failure.advise("look at its credits in `enrich workspace list` before you grant more")
            }
            StoreError::UnknownUser => failure.advise("list the users with `enrich user list`"),
            StoreError::UnknownKey(_) => failure.advise("list the ids with `enrich key list WORKSPACE`"),
            _ => match (error.backend::<SqliteError>(), error.backend::<PostgresError>()) {
                (Some(error), _) => failure.of_sqlite(error),
                (_, Some(error)) => failure.of_postgres(error),
                _ => failure,
            },
        }
    }
}

impl From<SqliteError> for Failure {
    fn from(error: SqliteError) -> Self {
        StoreError::from(error).into()
    }
}

impl From<PostgresError> for Failure {
    fn from(error: PostgresError) -> Self {
        StoreError::from(error).into()
    }
}

/// The advice for a wrong `people.key`.
const OTHER_KEY: &str = "set people.key or ENRICH_PEOPLE_KEY to the key with which the people were imported";

impl Failure {
    fn of_sqlite(self, error: &SqliteError) -> Self {
        match error {
            SqliteError::NoData(_) => self.advise(
                "create sample data with `enrich serve --sample` or a workspace with `enrich workspace create NAME`, or \
                 choose another directory with --data or ENRICH_DATA",
            ),
            SqliteError::Damaged { .. } => {
                self.advise("list the errors with `enrich check`, and restore a backup with `enrich restore`")
            }
            SqliteError::Moved { .. } => self.advise("use them there with --database URL"),
            SqliteError::Moving { .. } => self.advise(
                "run `enrich copy` again, which finishes an interrupted copy or finds that it was committed",
            ),
            SqliteError::OtherPeopleKey(_) => self.advise(OTHER_KEY),
            SqliteError::File { path, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                let advice = owner(path);
                Self { advice: advice.or(self.advice), ..self }
            }
            SqliteError::Importing { since, .. } => self.of_import(Some(*since)),
            _ => self,
        }
    }

    fn of_import(self, since: Option<Timestamp>) -> Self {
        let since =
            since.and_then(|since| jiff::Timestamp::from_second((since.unix_ms() / 1_000) as i64).ok());
        let since = since.map(|since| format!(" since {since}")).unwrap_or_default();
        Self { what: format!("{}{since}", self.what), ..self }
            .advise("wait until it has ended; imports run one after the other")
    }

    fn of_postgres(self, error: &PostgresError) -> Self {
        match error {
            PostgresError::InvalidUrl
            | PostgresError::UnsupportedOption(_)
            | PostgresError::InvalidOption { .. }
            | PostgresError::Certificates { .. } => self.exit(Exit::Usage),
            PostgresError::Unreachable(_) => self.exit(Exit::Unreachable),
            PostgresError::PeopleKey => self.advise(OTHER_KEY),
            PostgresError::Importing { since } => self.of_import(*since),
            // SQLSTATE class 28 is an invalid authorization, class 3D an invalid database name.
            PostgresError::Ended { code, .. } if code.starts_with("28") || code.starts_with("3D") => {
                self.advise("check the user, password and database name in --database or ENRICH_DATABASE")
            }
            _ => self,
        }
    }
}

/// Names the user who may use a file, for one who may not. The file's directory can be what denies it.
fn owner(path: &Path) -> Option<String> {
    let (path, meta) = path.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)))?;
    let (file, mode, caller) = (path.display(), meta.mode() & 0o7777, rustix::process::geteuid().as_raw());
    if meta.uid() == caller {
        let is_denied = mode & 0o600 != 0o600;
        return is_denied.then(|| format!("{file} has mode {mode:04o}; run `chmod u+rwX {file}`"));
    }
    Some(format!(
        "{file} belongs to user {} and has mode {mode:04o}; run the command as that user, or give the file to user {caller}",
        meta.uid(),
    ))
}
