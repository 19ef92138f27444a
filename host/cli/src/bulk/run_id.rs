//! The id of a run. With it, a run that is resumed sends the same idempotency keys again, so that no lookup is paid
//! twice.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};

use super::row_result::email_key;
use crate::failure::Failure;
use crate::private_file::{self, sync_directory, with_name_suffix};

pub struct RunId(String);

impl RunId {
    /// Creates the id of a run that cannot be resumed.
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// Reads the id of the run that writes OUT from a file beside it, or creates it. It is durable before the
    /// first request.
    pub fn of(out: &Path, is_new: bool) -> Result<Self, Failure> {
        let path = Self::path(out);
        match fs::read_to_string(&path) {
            // An incomplete id is that of a run that has sent no request.
            Ok(id) if !is_new && id.len() == 32 => return Ok(Self(id)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::file("read", &path, error));
            }
            _ => {}
        }
        let id = Self::random();
        let written = private_file::create(&path).and_then(|mut file| {
            file.write_all(id.0.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| Failure::file("write", &path, error))?;
        sync_directory(&path);
        Ok(id)
    }

    /// Removes the file beside OUT, when no row is left to look up.
    pub fn remove(out: &Path) -> Result<(), Failure> {
        let path = Self::path(out);
        fs::remove_file(&path).map_err(|error| Failure::file("remove", &path, error))
    }

    fn path(out: &Path) -> PathBuf {
        with_name_suffix(out, ".run")
    }

    /// Returns the idempotency key of the lookup of an email.
    pub fn idempotency_key(&self, email: &str) -> HeaderValue {
        let digest = Sha256::new().chain_update(&self.0).chain_update(email_key(email)).finalize();
        // A number has a decimal value, which is valid in a header.
        HeaderValue::from(u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default()))
    }
}
