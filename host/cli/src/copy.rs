//! `enrich copy`: copies the accounts and opt-outs of a data directory to a PostgreSQL server, which several
//! nodes can share.
//!
//! The command can be killed at any time and resumes when it is run again. Credits cannot be spent from the
//! data directory once the copy has begun, and cannot be spent on the server until the copy is complete and
//! verified.

use std::path::PathBuf;
use std::time::Instant;

use enrich_host::SystemArrivals;
use enrich_postgres::{Copy, CopyDifference, PeopleAdmin, PostgresError, Schema, Server};
use enrich_sqlite::{BlockingAccounts, DataDir, Export, People};
use enrich_store::records::{Contents, CopiedConsole, CopiedKey, CopiedWorkspace};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::accounts::{self, at};
use crate::failure::Failure;
use crate::output::{self, Format, grouped};
use crate::runtime;
use crate::url::ServerUrl;

/// Maximum number of rows in one transaction.
const CHUNK_ROWS_MAX: u32 = 10_000;

/// Copies the data directory `from` to the server `to`.
pub fn run(from: PathBuf, to: ServerUrl, format: Format) -> Result<(), Failure> {
    let server = accounts::server(&to)?;
    let dir = DataDir::open(from)?;
    let runtime = runtime::single_threaded()?;
    // Checks that the server is usable before the data directory is marked as moved.
    runtime.block_on(Schema::new(server.clone()).check()).map_err(|error| at(&to, error))?;
    let opt_outs = copy_opt_outs(&runtime, &server, &dir).map_err(|failure| at(&to, failure))?;

    let started = Instant::now();
    let mut export = Export::begin(&dir, &to.to_string(), rand::random())?;
    let (workspaces, keys, console) = (export.workspaces()?, export.keys()?, export.console()?);
    let begun = Copy::begin(&server, export.id(), &workspaces, &keys, SystemArrivals::now());
    let copy = match runtime.block_on(begun) {
        Err(error @ (PostgresError::NotCopied(_) | PostgresError::KeyExists(_))) => {
            export.cancel(&dir)?; // the data directory can be served as before
            return Err(at(&to, error).advise("copy to an empty database, or remove that workspace from it"));
        }
        begun => begun.map_err(|error| go_on(at(&to, error), &dir, &to))?,
    };
    if copy.progress().is_finished && format.json {
        return output::json(&json!({ "copied": false }));
    }
    if copy.progress().is_finished {
        return output::line(format!(
            "{} was already copied to {to}; nothing was changed",
            dir.path().display()
        ));
    }
    let bar = bar(&workspaces, copy.progress().rows);
    let mut run = Run { runtime, export, copy, bar, to: &to };
    let copied = run.all(&workspaces, &keys, &console);
    run.bar.finish_and_clear();
    let differences = copied.map_err(|failure| go_on(failure, &dir, &to))?;
    if !differences.is_empty() {
        return Err(difference_error(&differences));
    }
    let Run { runtime, export, .. } = run;
    drop(export);
    audit(&runtime, &dir, &to)?;

    let rows: u64 = workspaces.iter().map(|workspace| rows(&workspace.contents)).sum();
    if format.json {
        return output::json(&json!({
            "copied": true,
            "workspaces": workspaces.len(),
            "keys": keys.len(),
            "users": console.users.len(),
            "opt_outs": opt_outs,
            "rows": rows,
        }));
    }
    output::line(format!(
        "copied {} workspaces, {} keys, {} users, {} opt-outs and {} rows in {:.1} s; both sides reconcile",
        grouped(workspaces.len() as u64),
        grouped(keys.len() as u64),
        grouped(console.users.len() as u64),
        grouped(opt_outs),
        grouped(rows),
        started.elapsed().as_secs_f64(),
    ))?;
    output::remark(format!(
        "`enrich serve` with this database serves them; what is left of them in {0} is only for reading. Import the people \
         into the database, with `people.key` set to the content of {0}/people.key",
        dir.path().display()
    ));
    Ok(())
}

struct Run<'a> {
    runtime: Runtime,
    export: Export,
    copy: Copy,
    bar: ProgressBar,
    to: &'a ServerUrl,
}

impl Run<'_> {
    fn all(
        &mut self,
        workspaces: &[CopiedWorkspace],
        keys: &[CopiedKey],
        console: &CopiedConsole,
    ) -> Result<Vec<CopyDifference>, Failure> {
        loop {
            let grants = self.export.grants(self.copy.progress().grants, CHUNK_ROWS_MAX)?;
            if grants.is_empty() {
                break;
            }
            self.blocking(|runtime, copy| runtime.block_on(copy.add_grants(&grants)))?;
        }
        loop {
            let spends = self.export.spends(self.copy.progress().spends, CHUNK_ROWS_MAX)?;
            if spends.is_empty() {
                break;
            }
            self.blocking(|runtime, copy| runtime.block_on(copy.add_spends(&spends)))?;
        }
        let now = SystemArrivals::now();
        self.blocking(|runtime, copy| runtime.block_on(copy.finish(workspaces, keys, console, now)))
    }

    fn blocking<T>(
        &mut self,
        step: impl FnOnce(&Runtime, &mut Copy) -> Result<T, PostgresError>,
    ) -> Result<T, Failure> {
        let done = step(&self.runtime, &mut self.copy).map_err(|error| at(self.to, error))?;
        self.bar.set_position(self.copy.progress().rows);
        Ok(done)
    }
}

/// Copies the opt-outs, before the copied keys can be used. Returns their number.
fn copy_opt_outs(runtime: &Runtime, server: &Server, dir: &DataDir) -> Result<u64, Failure> {
    if !dir.has_people() {
        return Ok(0);
    }
    let people = People::open(dir, People::CONFIDENCE_MIN, rand::random())?;
    let mut own = people.opt_outs()?;
    // A withdrawal applies to all nodes only if it is made in the database.
    own.retain(|change| !change.is_withdrawn);
    runtime.block_on(async {
        let mut admin = PeopleAdmin::open(server, people.hasher().clone()).await?;
        admin.merge_opt_outs(&own).await?;
        Ok(own.len() as u64)
    })
}

/// Checks that the balances on both sides reconcile with their rows.
fn audit(runtime: &Runtime, dir: &DataDir, to: &ServerUrl) -> Result<(), Failure> {
    let here = BlockingAccounts::open(dir)?.audit()?;
    let there = runtime.block_on(async {
        enrich_postgres::accounts(&accounts::server(to)?).await?.audit().await.map_err(|error| at(to, error))
    })?;
    for (audit, location) in [(here, dir.path().display().to_string()), (there, to.to_string())] {
        if !audit.reconciles() {
            let what = format!(
                "all rows are copied, but the balances in {location} do not reconcile with their rows"
            );
            return Err(Failure::new(what).advise("list them with `enrich check`"));
        }
    }
    Ok(())
}

fn difference_error(differences: &[CopyDifference]) -> Failure {
    let figures = |c: &Contents| [c.keys, c.grants, c.granted, c.spends, c.spent].map(grouped);
    let rows = differences.iter().flat_map(|difference| {
        [("source", &difference.source), ("target", &difference.target)].map(|(side, contents)| {
            let [keys, grants, granted, spends, spent] = figures(contents);
            [difference.workspace.to_string(), side.to_owned(), keys, grants, granted, spends, spent]
        })
    });
    let header = ["WORKSPACE", "", "KEYS", "GRANTS", "GRANTED", "SPENDS", "SPENT"];
    // The error below matters more than a table that cannot be written.
    let _ = output::table(header, rows);
    Failure::new("the copy differs from the data directory, so it is not released for lookups")
        .advise("drop and recreate the database, then run `enrich migrate` and `enrich copy` again")
}

fn rows(contents: &Contents) -> u64 {
    contents.grants + contents.spends
}

fn go_on(failure: Failure, dir: &DataDir, to: &ServerUrl) -> Failure {
    let again =
        format!("continue with the same command: `enrich copy --from {} --to {to}`", dir.path().display());
    let advice: Vec<_> = failure.advice.iter().cloned().chain([again]).collect();
    failure.advise(advice.join("\n  "))
}

/// Creates the progress bar of a copy.
fn bar(workspaces: &[CopiedWorkspace], resumed: u64) -> ProgressBar {
    let template = "{bar:24} {percent:>3} %  {human_pos} of {human_len} rows  {per_sec}  {eta} left";
    let all = workspaces.iter().map(|workspace| rows(&workspace.contents)).sum();
    output::progress(Some(all), resumed, output::progress_style(template))
}
