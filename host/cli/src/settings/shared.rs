//! The settings of `serve` that other commands use: the locations of the data and the addresses of the
//! listeners.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use super::config::Config;
use super::layers::{Layers, Merged};
use super::locations::PeopleLocation;
use super::variables;
use crate::accounts::StoreLocation;
use crate::failure::Failure;
use crate::listen::Listen;
use crate::output;
use crate::public_url::PublicUrl;
use crate::url::ServerUrl;

/// The address of the web application that `serve --sample` starts by default.
pub const SAMPLE_CONSOLE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

pub struct SharedSettings {
    config: Config,
}

impl SharedSettings {
    /// Merges the settings as `serve` does. Reads only the settings file, and does not check the settings
    /// that a command does not use: it may have no access to the certificate and the vendors' keys.
    pub fn read(layers: &Layers) -> Result<Self, Failure> {
        let Merged { config, .. } = layers.merge()?;
        // Others may be variables of vendors, whose descriptions are not read here.
        for unknown in
            variables::unknown(config.variables()).iter().filter(|unknown| unknown.resembles.is_some())
        {
            output::remark(format!("warning: {}", unknown.error()));
        }
        Ok(Self { config })
    }

    pub fn data(&self) -> &Path {
        &self.config.data
    }

    /// Returns the database with the accounts, if they are not in the data directory.
    pub fn database(&self) -> Result<Option<ServerUrl>, Failure> {
        let database = self.config.database.as_ref();
        Ok(database.map(|source| source.load("database")).transpose()?)
    }

    /// Returns the database, for a command that needs one.
    pub fn required_database(&self) -> Result<ServerUrl, Failure> {
        self.database()?.ok_or_else(|| {
            Failure::usage("there is no database in the settings")
                .advise("set it with ENRICH_DATABASE, or with `database` in the file of --config")
        })
    }

    pub fn accounts(&self) -> Result<StoreLocation, Failure> {
        Ok(match self.database()? {
            Some(url) => StoreLocation::Server(url),
            None => StoreLocation::Dir(self.data().to_owned()),
        })
    }

    /// Returns the location of people and opt-outs.
    pub fn people(&self) -> Result<PeopleLocation, Failure> {
        Ok(PeopleLocation::resolve(&self.config, self.database()?.as_ref())?)
    }

    /// Returns the minimum confidence of a trusted match.
    pub fn confidence_min(&self) -> f64 {
        self.config.people.confidence_min
    }

    /// Returns whether there is a web application, or its URL.
    pub fn has_console(&self) -> bool {
        self.config.console.listen.is_some() || self.config.console.url.is_some()
    }

    /// Returns the URL of the web application, with which links begin. The default is the URL of the sample.
    pub fn console_url(&self) -> Result<PublicUrl, Failure> {
        let sample = Listen::Address(SAMPLE_CONSOLE);
        let listen = self.config.console.listen.as_ref().unwrap_or(&sample);
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        Ok(self.config.console.link_url(scheme, listen)?)
    }

    pub fn admin_listen(&self) -> Option<&Listen> {
        self.config.admin.listen.as_ref()
    }
}
