//! `enrich vendors`

use std::slice;
use std::time::Instant;

use enrich_lib::email::Email;
use enrich_node::sources::Sources;
use enrich_sqlite::{DataDir, SqliteError};
use enrich_vendors::provider::{Provider, Trial};
use serde_json::json;

use crate::args::{TryArgs, VendorsCommand};
use crate::directory::Directory;
use crate::failure::Failure;
use crate::flags;
use crate::output::{self, Format};
use crate::runtime;
use crate::settings::{self, Layers, PeopleLocation, SharedSettings};

pub fn run(layers: Layers, command: VendorsCommand, format: Format) -> Result<(), Failure> {
    let VendorsCommand::Try(TryArgs { name, email, store }) = command;
    let email = Email::parse(email.trim()).map_err(|error| Failure::usage(error.to_string()))?;
    let layers = flags::of_store(layers, &store);
    let shared = SharedSettings::read(&layers)?;
    // The stores are not opened: a database would also require `windows`, which no request uses.
    let (_, sources) = settings::with_sources(&layers)?;
    check_opt_out(shared.people()?, &email)?;
    let provider = find(&sources, &name)?;

    let runtime = runtime::single_threaded()?;
    let started = Instant::now();
    let trial = runtime.block_on(provider.try_email(&email));
    let ms = started.elapsed().as_millis() as u64;
    show(&trial, ms, format)?;
    trial.found.map(drop).map_err(|error| Failure::new(format!("{name} failed: {error:#}")))
}

fn find<'a>(sources: &'a Sources, name: &str) -> Result<&'a Provider, Failure> {
    if let Some(vendor) = sources.vendors().find(|vendor| vendor.name() == name) {
        return Ok(&vendor.provider);
    }
    let names: Vec<_> = sources.vendors().map(|vendor| vendor.name()).collect();
    let failure = Failure::usage(format!("the settings have no vendor {name}"));
    Err(if names.is_empty() {
        failure.advise("add a [[vendors]] section with `use` or `file` to the file of --config")
    } else {
        failure.advise(format!("the vendors are {}", names.join(", ")))
    })
}

/// Fails if the person opted out. Succeeds if there is no data directory and no database.
fn check_opt_out(location: PeopleLocation, email: &Email) -> Result<(), Failure> {
    if let PeopleLocation::Dir { data, .. } = &location
        && let Err(SqliteError::NoData(_)) = DataDir::open(data)
    {
        return Ok(());
    }
    let mut directory = Directory::open(location)?;
    if directory.opt_outs_of(slice::from_ref(email))?[0].is_some() {
        return Err(Failure::new("the person opted out; no vendor receives the email"));
    }
    Ok(())
}

fn show(trial: &Trial, ms: u64, format: Format) -> Result<(), Failure> {
    let Trial { request, status, found, .. } = trial;
    let (matched, error) = match found {
        Ok(profile) => (profile.as_ref().map(|profile| profile.as_str()), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    if format.json {
        let outcome = match found {
            Ok(Some(_)) => "found",
            Ok(None) => "not_found",
            Err(_) => "error",
        };
        return output::json(&json!({
            "request": request,
            "status": status,
            "outcome": outcome,
            "linkedin_url": matched,
            "error": error,
            "duration_ms": ms,
        }));
    }
    let request: Vec<_> = request.trim_end().lines().collect();
    let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
    output::line(format!("request  {}", request.join("\n         ")))?;
    output::line(format!("status   {status}"))?;
    output::line(match (matched, error) {
        (_, Some(error)) => format!("error    {error}"),
        (Some(profile), None) => format!("match    {profile}"),
        (None, None) => "match    none".to_owned(),
    })?;
    output::line(format!("time     {ms} ms"))
}
