//! `enrich serve --sample`: creates the sample, and shows its key and an invitation of its first user.

mod data;

use std::fs;
use std::path::PathBuf;

use enrich_host::SystemArrivals;
use enrich_lib::wire;
use enrich_sqlite::{DataDir, SqliteError, accounts, complete};
use enrich_store::{Accounts, Actor};

use super::console::WebApplication;
use crate::commands::key::{KeyOutput, StoredKey};
use crate::commands::user::NewLink;
use crate::failure::Failure;
use crate::output;

/// The sample. If it is dropped before its key is shown, a new one is removed.
pub struct Sample {
    data: PathBuf,
    /// The key of a new sample.
    key: Option<StoredKey>,
    invitation: Option<NewLink>,
}

impl Sample {
    /// Creates the sample, unless the directory has data already.
    pub fn create(data: PathBuf) -> Result<Self, Failure> {
        let key = match DataDir::open(&data) {
            Ok(_) => {
                output::remark(format!(
                    "{} already contains data, so no sample was created; create a key with \
                     `enrich key create WORKSPACE LABEL`",
                    data.display()
                ));
                None
            }
            Err(SqliteError::NoData(_)) => {
                if cfg!(debug_assertions) {
                    output::remark(
                        "this build is not optimised; `cargo build --release` makes one for production",
                    );
                }
                Some(data::create(&data)?)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { data, key, invitation: None })
    }

    /// Prepares an invitation, if the workspace of the sample has no user. Fails if users could not open its
    /// URL.
    pub async fn invite(&mut self, console: &WebApplication) -> Result<(), Failure> {
        if data::has_no_user(&mut self.admin()?).await? {
            self.invitation = Some(data::invitation(&console.link_url()?)?);
        }
        Ok(())
    }

    /// Shows the key and the invitation. The lookup API is at `url`.
    pub async fn show(mut self, url: &str) -> Result<(), Failure> {
        let mut admin = self.admin()?;
        if let Some(StoredKey { id, key }) = self.key.take() {
            let (key, path, email) = (key.reveal(), wire::PATH, data::EMAIL);
            let text = format!(
                "\nThe workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
                 Try it from another terminal:\n\n\
                 curl -i {url}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{email}\"}}'\n"
            );
            let revoke = || Ok(complete(admin.revoke_key(id, &Actor::operator(SystemArrivals::now())))?);
            KeyOutput::Stdout.deliver(id, &text, revoke)?;
        }
        let Some(invitation) = self.invitation.take() else { return Ok(()) };
        let text = format!(
            "The web application shows keys and usage. Open this link in a browser to set a password for {}; it works \
             once, within 24 hours:\n\n  {}\n",
            data::ADMIN,
            invitation.url
        );
        invitation.deliver(&mut admin, &text).await
    }

    fn admin(&self) -> Result<Accounts, Failure> {
        Ok(accounts(&DataDir::open(&self.data)?)?)
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        if self.key.is_some() {
            // The error that is reported matters more than a failed removal.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}
