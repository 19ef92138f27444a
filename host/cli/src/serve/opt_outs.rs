//! The opt-outs of all nodes: those of this node's people directory are added to the database, and all others
//! to the directory, so that it contains no record of a person who opted out on another node.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use enrich_postgres::{OptOutAdmin, Server, SharedOptOuts};
use enrich_sqlite::People;
use enrich_store::OptOut;
use tracing::warn;

use crate::accounts::{self, at};
use crate::directory;
use crate::failure::Failure;
use crate::url::ServerUrl;

/// Timeout of one request. Lookups use the opt-outs for at most a second after a request.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Pause before another attempt to write to the directory.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A connection to the database of all nodes, for the start of the server.
pub struct Connection<'a> {
    url: &'a ServerUrl,
    server: Server,
    admin: OptOutAdmin,
}

impl<'a> Connection<'a> {
    /// Connects, and checks that the data directory has a key if the database has one.
    pub async fn open(url: &'a ServerUrl, data: &Path) -> Result<Self, Failure> {
        let server = accounts::server(url)?;
        let mut admin = OptOutAdmin::open(&server).await.map_err(|error| at(url, error))?;
        if admin.has_people_key().await.map_err(|error| at(url, error))? {
            directory::check_has_key(data)?;
        }
        Ok(Self { url, server, admin })
    }

    /// Reads the opt-outs of all nodes.
    pub async fn read(mut self, people: &Arc<People>) -> Result<SharedOptOuts, Failure> {
        let (sender, changes) = channel();
        let own = people.opt_outs()?;
        let opened = async {
            directory::add_opt_outs(&mut self.admin, people.hasher(), own).await?;
            SharedOptOuts::open(self.server, TIMEOUT, people.hasher().clone(), move |read| {
                let _ = sender.send(read); // the thread ends with the directory
            })
            .await
        };
        let opt_outs = opened.await.map_err(|error| at(self.url, error))?;
        let people = Arc::downgrade(people);
        thread::spawn(move || write(&people, changes));
        Ok(opt_outs)
    }
}

/// Writes the changes to the directory. Lookups do not depend on it.
fn write(people: &Weak<People>, changes: Receiver<Vec<OptOut>>) {
    for changes in changes {
        let mut is_failing = false;
        while let Some(people) = people.upgrade() {
            let Err(error) = people.merge_opt_outs(&changes) else { break };
            drop(people);
            if !is_failing {
                warn!(%error, "opt-outs of other nodes cannot be written to the people directory");
            }
            is_failing = true;
            thread::sleep(RETRY_PAUSE);
        }
    }
}
