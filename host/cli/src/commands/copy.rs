//! `enrich copy`: copies the accounts and opt-outs of a data directory to a PostgreSQL server, which several
//! nodes can share.
//!
//! All of them are copied in one transaction of the server, which is committed only if both sides are equal.
//! Neither the accounts nor the opt-outs of the data directory can be changed once the copy has begun. If the
//! command is killed, the next one finds out whether the transaction was committed.

use std::path::PathBuf;
use std::time::Instant;

use enrich_host::SystemArrivals;
use enrich_postgres::{Schema, Server, copy_opt_outs};
use enrich_sqlite::{DataDir, Export, People, SqliteError};
use enrich_store::accounts::{CopiedRows, CopyError, Tx};
use enrich_store::{EmailHasher, OptOut, StoreError};
use serde_json::json;

use crate::accounts::{self, at};
use crate::failure::Failure;
use crate::output::{self, Format, grouped};
use crate::runtime;
use crate::url::ServerUrl;

/// Copies the data directory `from` to the server `to`.
pub fn run(from: PathBuf, to: ServerUrl, format: Format) -> Result<(), Failure> {
    let server = accounts::server(&to)?;
    let dir = DataDir::open(from).map_err(|error| match error {
        SqliteError::NoData(_) => {
            Failure::new(error.to_string()).advise("name the data directory to copy with --from")
        }
        error => error.into(),
    })?;
    let runtime = runtime::single_threaded()?;
    // Checks that the server is usable before the data directory is marked as moved.
    runtime.block_on(Schema::new(server.clone()).check()).map_err(|error| at(&to, error))?;
    let started = Instant::now();
    let mut export = Export::begin(&dir, &server.to_string(), rand::random())?;
    let at_store = |error: StoreError| match error.backend::<SqliteError>() {
        Some(_) => error.into(),
        None => at(&to, error),
    };
    let copied = match runtime.block_on(copy(&server, &dir, &mut export)) {
        Ok(copied) => copied,
        // An interrupted copy may have been committed.
        Err(CopyError::Store(error)) if export.was_begun() => return Err(advise_to_repeat(at_store(error))),
        Err(CopyError::Commit(error)) => return Err(advise_to_repeat(at_store(error))),
        Err(failed) => {
            export.cancel()?; // the data directory can be served as before
            return Err(match failed {
                CopyError::Store(error) => at_store(error),
                refused => at(&to, Failure::new(refused.to_string())).advise(advice(&refused, &dir)),
            });
        }
    };
    export.finish()?;
    let Some((copied, opt_outs)) = copied else {
        return if format.json {
            output::json(&json!({ "copied": false }))
        } else {
            output::line(format!("{} was already copied to {to}; nothing was changed", dir.path().display()))
        };
    };
    let [workspaces, keys, users] = ["workspace", "api_key", "member"].map(|table| copied[table]);
    let rows = copied["credit_grant"] + copied["credit_spend"];
    if format.json {
        return output::json(&json!({
            "copied": true,
            "workspaces": workspaces,
            "keys": keys,
            "users": users,
            "opt_outs": opt_outs,
            "rows": rows,
        }));
    }
    output::line(format!(
        "copied {} workspaces, {} keys, {} users, {} opt-outs and {} rows in {:.1} s; both sides reconcile",
        grouped(workspaces),
        grouped(keys),
        grouped(users),
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

/// Returns the opt-outs and the key of their hashes, if there are people. A withdrawal applies to all nodes only
/// if it is made in the database.
fn opt_outs(dir: &DataDir) -> Result<Option<(EmailHasher, Vec<OptOut>)>, SqliteError> {
    if !dir.has_people() {
        return Ok(None);
    }
    let people = People::open(dir, People::CONFIDENCE_MIN, rand::random())?;
    let mut opt_outs = people.opt_outs()?;
    opt_outs.retain(|change| !change.is_withdrawn);
    Ok(Some((people.hasher().clone(), opt_outs)))
}

/// Copies the accounts and the opt-outs. Returns the number of rows of each table, and of opt-outs, or `None` if they
/// were copied before.
async fn copy(
    server: &Server,
    dir: &DataDir,
    export: &mut Export,
) -> Result<Option<(CopiedRows, u64)>, CopyError> {
    // Now that the directory is closed, so that none is added unseen.
    let opt_outs = opt_outs(dir).map_err(StoreError::from)?;
    let mut target = enrich_postgres::accounts(server).await.map_err(StoreError::from)?;
    let origin = export.origin();
    let template = "{bar:24} {percent:>3} %  {human_pos} of {human_len} rows  {per_sec}  {eta} left";
    let bar = output::progress(Some(0), 0, output::progress_style(template));
    let mut progress = |copied, all| {
        bar.set_length(all);
        bar.set_position(copied);
    };
    let copy_opt_outs = async |tx: &mut Tx<'_>| match &opt_outs {
        Some((hasher, opt_outs)) => copy_opt_outs(tx, hasher, opt_outs).await,
        None => Ok(()),
    };
    let now = SystemArrivals::now();
    let copied = target.copy_from(export.accounts(), origin, now, &mut progress, copy_opt_outs).await;
    bar.finish_and_clear();
    Ok(copied?.map(|rows| (rows, opt_outs.map_or(0, |(_, opt_outs)| opt_outs.len() as u64))))
}

fn advice(refused: &CopyError, dir: &DataDir) -> String {
    match refused {
        CopyError::NotReconciled => {
            "list the differences with `enrich check`, and restore a backup that reconciles".to_owned()
        }
        CopyError::Differs(_) => {
            "copy to a database that nothing but `enrich migrate` has changed".to_owned()
        }
        CopyError::OtherPeopleKey => format!(
            "stop its nodes, set their `people.key` to the content of {}/people.key, and copy to a new database before they \
             start",
            dir.path().display()
        ),
        CopyError::CopiedElsewhere => {
            format!("serve the database that has them; {}/accounts.moved names it", dir.path().display())
        }
        CopyError::Importing => "run the same command again when the import has ended".to_owned(),
        _ => "copy to another database; a deleted workspace keeps its name and its keys".to_owned(),
    }
}

fn advise_to_repeat(failure: Failure) -> Failure {
    let again = "run the same command again to continue".to_owned();
    let advice: Vec<_> = failure.advice.iter().cloned().chain([again]).collect();
    failure.advise(advice.join("\n  "))
}
