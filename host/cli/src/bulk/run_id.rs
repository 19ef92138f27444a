//! The id of a run. With it, a run that is resumed sends the same idempotency keys again, so that no lookup is paid
//! twice. The file with it remains when OUT is complete, so that no later run mixes other results into OUT.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::row_result::email_key;
use crate::failure::Failure;
use crate::private_file::{self, sync_directory, with_name_suffix};

/// The advice if OUT has other results than those of this run.
pub const OUT_ADVICE: &str =
    "choose another file with -o, or overwrite this one and its results with --force";

/// The id of a run, with what its results depend on.
#[derive(Deserialize, Serialize)]
pub struct RunId {
    id: String,
    /// The column with the email.
    column: String,
    /// Whether the API key is a test key.
    is_test: bool,
}

impl RunId {
    pub fn random(column: String, is_test: bool) -> Self {
        Self { id: format!("{:032x}", rand::random::<u128>()), column, is_test }
    }

    /// Reads the id of the run that wrote OUT from the file beside it, if there is one. If it is of other
    /// lookups, fails if OUT has rows or some lookups may have been billed, and otherwise returns `None`.
    pub fn read(&self, out: &Path, has_rows: bool) -> Result<Option<Self>, Failure> {
        let path = Self::path(out);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| Failure::file("read", &path, error))?,
        };
        let run: Self = serde_json::from_slice(&text).map_err(|error| {
            let advice = format!(
                "restore {0}, or remove it to continue under a new id: lookups whose rows are not in OUT are billed again",
                path.display()
            );
            Failure::file("read", &path, error).advise(advice)
        })?;
        if (&run.column, run.is_test) != (&self.column, self.is_test) {
            if !has_rows && run.is_test {
                return Ok(None);
            }
            let (out, has, needs) = (out.display(), run.lookups(), self.lookups());
            return Err(
                Failure::new(format!("{out} is the output of {has}, not of {needs}")).advise(OUT_ADVICE)
            );
        }
        Ok(Some(run))
    }

    /// Writes the new version of the file beside OUT.
    pub fn prepare(&self, out: &Path) -> Result<(), Failure> {
        let written = private_file::create(&Self::partial(out)).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()
        });
        written.map_err(|error| Failure::file("write", &Self::path(out), error))
    }

    /// Replaces the file beside OUT, which is complete whenever it exists, by the new version. It is durable before
    /// the first request.
    pub fn replace(out: &Path) -> Result<(), Failure> {
        let path = Self::path(out);
        fs::rename(Self::partial(out), &path).map_err(|error| Failure::file("write", &path, error))?;
        sync_directory(&path);
        Ok(())
    }

    fn partial(out: &Path) -> PathBuf {
        with_name_suffix(out, ".run.partial")
    }

    fn path(out: &Path) -> PathBuf {
        with_name_suffix(out, ".run")
    }

    /// Describes the lookups of the run in an error.
    fn lookups(&self) -> String {
        let kind = if self.is_test { "test" } else { "live" };
        format!("--column {} with a {kind} key", self.column)
    }

    /// Returns the idempotency key of the lookup of an email.
    pub fn idempotency_key(&self, email: &str) -> HeaderValue {
        let digest = Sha256::new().chain_update(&self.id).chain_update(email_key(email)).finalize();
        // A number has a decimal value, which is valid in a header.
        HeaderValue::from(u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default()))
    }
}
