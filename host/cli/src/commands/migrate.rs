//! `enrich migrate`: creates or upgrades the tables of a PostgreSQL server.

use enrich_postgres::Schema;
use serde_json::json;

use crate::accounts::{at, server};
use crate::args::MigrateArgs;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::runtime;
use crate::url::ServerUrl;

/// Upgrades the tables, or only reports their version.
pub fn run(url: &ServerUrl, args: &MigrateArgs, format: Format) -> Result<(), Failure> {
    if args.check {
        return check(url, format);
    }
    let before = runtime::single_threaded()?
        .block_on(Schema::new(server(url)?).migrate())
        .map_err(|error| at(url, error))?;
    // A node of the previous version can start beside those of the next one.
    let version = before.max(Schema::VERSION);
    if format.json {
        return output::json(&json!({ "from": before, "version": version }));
    }
    output::line(match before {
        0 => format!("{url}: created the tables of version {version}"),
        before if before == version => format!("{url}: the tables already have version {version}"),
        before => format!("{url}: upgraded the tables from version {before} to {version}"),
    })
}

/// Reports the version of the tables. Fails if this program cannot serve them.
fn check(url: &ServerUrl, format: Format) -> Result<(), Failure> {
    let found = runtime::single_threaded()?.block_on(Schema::new(server(url)?).check());
    let (found, version) = (found.map_err(|error| at(url, error))?, Schema::VERSION);
    if format.json {
        return output::json(&json!({ "found": found, "version": version }));
    }
    output::line(if found == version {
        format!("{url}: the tables have version {version}, like this program")
    } else {
        format!(
            "{url}: the tables have version {found}; this program has version {version} and can serve them"
        )
    })
}
