//! The events to log, as the variable `ENRICH_LOG` selects them.

use std::env::{self, VarError};

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::failure::Failure;

/// The targets of this program. Libraries are silent unless their targets are named: one writes a warning for each
/// frame of a client, and headers at the level `trace`.
const OWN: &str = "enrich";

/// Reads `ENRICH_LOG`: levels of this program and `TARGET=LEVEL`, separated by commas. Without it, the level is `info`.
pub(crate) fn from_environment() -> Result<Targets, Failure> {
    let invalid = |error: String| {
        let example = "write levels and targets, for example ENRICH_LOG=info,enrich::lookup=debug";
        Failure::usage(format!("ENRICH_LOG is invalid: {error}")).advise(example)
    };
    let text = match env::var("ENRICH_LOG") {
        Ok(text) => text,
        Err(VarError::NotPresent) => String::new(),
        Err(error) => return Err(invalid(error.to_string())),
    };
    let mut directives = text.split(',').map(str::trim).filter(|text| !text.is_empty()).peekable();
    if directives.peek().is_none() {
        return Ok(Targets::new().with_target(OWN, LevelFilter::INFO));
    }
    let mut filter = Targets::new();
    for directive in directives {
        let (target, level) = directive.split_once('=').map_or((None, directive), |(t, l)| (Some(t), l));
        let level: LevelFilter = level.parse().map_err(|_| {
            invalid(format!("`{level}` is not a level (off, error, warn, info, debug, trace)"))
        })?;
        filter = match target {
            None => filter.with_target(OWN, level),
            Some("") => return Err(invalid(format!("`{directive}` has no target"))),
            Some(target) => filter.with_target(target, level),
        };
    }
    Ok(filter)
}
