//! `enrich config`

use std::time::Duration;

use enrich_node::sources::{Source, Sources, Vendor};
use enrich_vendors::middleware::CachePolicy;
use enrich_vendors::provider::{Bills, SecretSource, SettingError};
use serde_json::{Value, json};

use crate::args::ConfigCommand;
use crate::failure::{Exit, Failure};
use crate::flags;
use crate::output::{self, Format};
use crate::settings::{self, Layers, Settings};

pub fn run(mut layers: Layers, command: ConfigCommand, format: Format) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { checked, settings } => {
            layers.file = checked.or(layers.file);
            check(&flags::of_serve(layers, &settings), format)
        }
        ConfigCommand::Example { variables: true } => {
            output::table(["VARIABLE", "SETTING", "DEFAULT"], settings::variable_rows())
        }
        ConfigCommand::Example { variables: false } => output::line(settings::EXAMPLE.trim_end()),
    }
}

/// Checks the settings exactly as `serve` does, including keys, certificates and variables.
fn check(layers: &Layers, format: Format) -> Result<(), Failure> {
    let checked = Settings::resolve_at_start(layers);
    let warnings = checked.as_ref().map_or(&[][..], |settings| &settings.warnings);
    if format.json {
        output::json(&json!({
            "ok": checked.is_ok(),
            "errors": checked.as_ref().err().map(to_json).into_iter().collect::<Vec<_>>(),
            "warnings": warnings,
        }))?;
        return checked.map(drop).map_err(failure);
    }
    warnings.iter().for_each(|warning| output::remark(format!("warning: {warning}")));
    let settings = checked.map_err(failure)?;
    let scheme = if settings.certificate.is_some() { "https" } else { "http" };
    if let Some(file) = &layers.file {
        output::line(format!("{}: no mistakes", file.display()))?;
    }
    output::line(format!("listen: {}", settings.config.listen.url(scheme)))?;
    output::line(match &settings.config.console.listen {
        Some(listen) => format!("web application: {}", settings.config.console.url(scheme, listen)),
        None => "web application: off".to_owned(),
    })?;
    output::line(match &settings.config.admin.listen {
        Some(listen) => format!("admin listener: {}", listen.url("http")),
        None => "admin listener: off".to_owned(),
    })?;
    output::line(format!("accounts: {}", settings.locations.accounts(&settings.config.data)))?;
    output::line(format!("people: {}", settings.locations.people))?;
    output::line(format!("rate limits: {}", settings.locations.windows))?;
    if let Some(providers) = settings.config.email_policy().providers_allowed {
        let providers: Vec<_> = providers.into_iter().collect();
        output::line(format!("emails: only at {}", providers.join(", ")))?;
    }
    output::line(match settings.sources.cache {
        Some(CachePolicy { entries_max, found_ttl, not_found_ttl }) => format!(
            "cache: {entries_max} entries, a match for {} s, no match for {} s",
            found_ttl.as_secs(),
            not_found_ttl.as_secs(),
        ),
        None => "cache: off".to_owned(),
    })?;
    output::line(format!("sources, in order, within {} ms:\n", settings.sources.deadline.as_millis()))?;
    list(&settings.sources)
}

/// Converts a mistake in the checked file to an error. It exits with [`Exit::Failed`], because the command was
/// used correctly.
fn failure(error: SettingError) -> Failure {
    Failure::from(error).exit(Exit::Failed)
}

fn to_json(error: &SettingError) -> Value {
    json!({
        "file": error.file().map(|file| file.display().to_string()),
        "line": error.line(),
        "origin": error.origin(),
        "setting": error.setting(),
        "error": output::without_keys(error.why()),
    })
}

fn list(sources: &Sources) -> Result<(), Failure> {
    let header = ["", "NAME", "BILLS", "DEADLINE", "CONCURRENCY", "TRIES", "QUEUE", "KEY FROM"];
    let people_only = [Source::People];
    let list = if sources.list.is_empty() { &people_only[..] } else { &sources.list };
    let mut deadlines = sources.vendor_deadlines().into_iter();
    let rows = list.iter().zip(1..).map(|(source, number)| {
        let [name, rest @ ..] = match source {
            Source::People => std::array::from_fn(|i| if i == 0 { Sources::PEOPLE } else { "–" }.to_owned()),
            Source::Vendor(vendor) => row(vendor, deadlines.next().unwrap_or_default()),
        };
        let [bills, deadline, concurrency, tries, queue, key] = rest;
        [number.to_string(), name, bills, deadline, concurrency, tries, queue, key]
    });
    output::table(header, rows)
}

/// Returns the table cells of a vendor. They contain the location of its key, never the key itself.
fn row(vendor: &Vendor, deadline: Duration) -> [String; 7] {
    let description = vendor.provider.description();
    let limits = description.limits();
    let bills = match description.bills() {
        Bills::Requests => "requests",
        Bills::Matches => "matches",
    };
    let key = match description.secret() {
        None => "–".to_owned(),
        Some(SecretSource::Env(name)) => format!("${name}"),
        Some(SecretSource::File(path)) => path.display().to_string(),
    };
    [
        vendor.name().to_owned(),
        bills.to_owned(),
        format!("{} ms", deadline.as_millis()),
        limits.concurrency.to_string(),
        limits.tries.to_string(),
        vendor.policy.queue_max.to_string(),
        key,
    ]
}
