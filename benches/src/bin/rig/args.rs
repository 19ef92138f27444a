//! The command line.

use std::time::Duration;

use enrich_benches::dataset::Case;
use enrich_benches::server_kind::ServerKind;
use lexopt::Parser;
use lexopt::prelude::*;
use strum::VariantArray;

pub(crate) const HELP: &str = "\
Compare servers in alternating rounds

Usage: rig [OPTIONS]
       rig --scale [OPTIONS]

Options:
      --servers <LIST>      Compare these servers with the first one:
                            bare, memory, sqlite, postgres,
                            postgres-two-nodes [default: all]. With
                            -quiet after its name, a server does not log
                            lookups.
      --case <CASE>         Send requests with this result: found,
                            keyed (found, each with an idempotency
                            key), not-found, unauthorized,
                            rate-limited, invalid [default: found]
      --connections <LIST>  Compare with these numbers of connections
                            [default: 64,256]
      --rate <N>            Send N requests per second even if the
                            server is slower [default: no fixed rate]
      --rounds <N>          Measure N rounds [default: 10]
      --seconds <S>         Measure each server for S seconds in each
                            round [default: 3]
      --pin                 Pin the servers, PostgreSQL and Redis to one
                            core and the rig to another
  -h, --help                Print help

Options of --scale:
      --scale               Measure growth with workspaces, people and
                            connections
      --workspaces-max <N>  Stop at N workspaces [default: 1000000]
      --people-max <N>      Stop at N people [default: 1000000]
";

/// The action of one run.
#[derive(Debug)]
pub(crate) enum Action {
    PrintHelp,
    Compare(Comparison),
    Scale(ScaleOptions),
}

/// The options of a comparison.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The servers, and whether they log lookups.
    pub(crate) servers: Vec<(ServerKind, bool)>,
    pub(crate) case: Case,
    pub(crate) connections: Vec<usize>,
    /// Requests per second, or `None` to send as fast as the server replies.
    pub(crate) rate: Option<f64>,
    pub(crate) rounds: usize,
    /// Duration of each server's turn in a round.
    pub(crate) time: Duration,
    pub(crate) pin: bool,
}

/// The options of `--scale`.
#[derive(Debug)]
pub(crate) struct ScaleOptions {
    pub(crate) workspaces_max: usize,
    pub(crate) people_max: usize,
    /// Duration of each measurement.
    pub(crate) time: Duration,
    pub(crate) pin: bool,
}

/// Parses the arguments. Fails if an option of one mode is given in the other.
pub(crate) fn parse(mut args: Parser) -> Result<Action, lexopt::Error> {
    let mut compare = Comparison {
        servers: ServerKind::VARIANTS.iter().map(|kind| (*kind, kind.logs_lookups())).collect(),
        case: Case::Found,
        connections: vec![64, 256],
        rate: None,
        rounds: 10,
        time: Duration::from_secs(3),
        pin: false,
    };
    let (mut is_scale, mut workspaces_max, mut people_max) = (false, 1_000_000, 1_000_000);
    let (mut compare_only, mut scale_only) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long(name @ ("servers" | "case" | "connections" | "rate" | "rounds")) => {
                compare_only = Some(format!("--{name}"));
            }
            Long(name @ ("workspaces-max" | "people-max")) => scale_only = Some(format!("--{name}")),
            _ => {}
        }
        match arg {
            Short('h') | Long("help") => return Ok(Action::PrintHelp),
            Long("servers") => compare.servers = args.value()?.parse_with(|text| list(text, server))?,
            Long("case") => compare.case = args.value()?.parse_with(one_of)?,
            Long("connections") => {
                compare.connections = args.value()?.parse_with(|text| list(text, number))?
            }
            Long("rate") => compare.rate = Some(args.value()?.parse_with(positive)?),
            Long("rounds") => compare.rounds = args.value()?.parse_with(number)?,
            Long("seconds") => compare.time = Duration::from_secs_f64(args.value()?.parse_with(positive)?),
            Long("pin") => compare.pin = true,
            Long("scale") => is_scale = true,
            Long("workspaces-max") => workspaces_max = args.value()?.parse_with(number)?,
            Long("people-max") => people_max = args.value()?.parse_with(number)?,
            _ => return Err(arg.unexpected()),
        }
    }
    match (is_scale, compare_only, scale_only) {
        (true, Some(option), _) => Err(format!("{option} cannot be used with --scale").into()),
        (false, _, Some(option)) => Err(format!("{option} requires --scale").into()),
        (true, ..) => {
            let (time, pin) = (compare.time, compare.pin);
            Ok(Action::Scale(ScaleOptions { workspaces_max, people_max, time, pin }))
        }
        (false, ..) => Ok(Action::Compare(compare)),
    }
}

fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(item).collect()
}

fn server(name: &str) -> Result<(ServerKind, bool), String> {
    let quiet = name.strip_suffix("-quiet");
    let kind: ServerKind = one_of(quiet.unwrap_or(name))?;
    Ok((kind, quiet.is_none() && kind.logs_lookups()))
}

fn one_of<T: Copy + Into<&'static str> + VariantArray>(name: &str) -> Result<T, String> {
    let name_of = |value: &T| -> &'static str { (*value).into() };
    let names = || T::VARIANTS.iter().map(name_of).collect::<Vec<_>>().join(", ");
    let found = T::VARIANTS.iter().copied().find(|value| name_of(value) == name);
    found.ok_or_else(|| format!("choose one of {}", names()))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number above 0".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}
