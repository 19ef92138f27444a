//! `enrich people opt-out`. No output contains an email.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::path::Path;

use enrich_lib::email::Email;
use enrich_store::is_visible;
use serde_json::json;

use crate::args::OptOutArgs;
use crate::directory::Directory;
use crate::failure::Failure;
use crate::output::{self, Format, rfc3339};

/// Opts people out, withdraws opt-outs, or shows them. `open` is called only if all emails are valid.
pub fn run(
    open: impl FnOnce() -> Result<Directory, Failure>,
    args: &OptOutArgs,
    format: Format,
) -> Result<(), Failure> {
    let emails = parse(&read(&args.emails)?)?;
    if args.show {
        return show(open()?, &emails, format);
    }
    let emails = distinct(emails);
    if args.withdraw {
        let changed = open()?.withdraw(&emails)?;
        let effect = "vendors receive requests for them within a second, and the next import adds them";
        return show_changes("withdrew the opt-out", "had not opted out", changed, &emails, effect, format);
    }
    let changed = open()?.opt_out(&emails)?;
    let effect = "lookups stop finding them within a second, and imports do not change that";
    show_changes("opted out", "had opted out before", changed, &emails, effect, format)
}

/// Shows whether people opted out, in the order of the emails.
fn show(mut directory: Directory, emails: &[Email], format: Format) -> Result<(), Failure> {
    let opt_outs = directory.opt_outs_of(emails)?;
    let since: Vec<_> = opt_outs.iter().map(|opt_out| opt_out.as_ref().map(|o| rfc3339(o.at))).collect();
    if format.json {
        let rows = since.iter().map(|since| json!({ "opted_out": since.is_some(), "since": since }));
        return output::json(&rows.collect::<Vec<_>>());
    }
    since.iter().enumerate().try_for_each(|(n, since)| {
        let number = number(n, emails.len());
        output::line(match since {
            Some(since) => format!("{number}opted out since {since}"),
            None => format!("{number}not opted out"),
        })
    })
}

/// Returns the emails of stdin, one per line, if `emails` is `-`.
fn read(emails: &[String]) -> Result<Vec<String>, Failure> {
    if emails != ["-"] {
        return Ok(emails.to_vec());
    }
    let text = io::read_to_string(io::stdin()).map_err(|e| Failure::file("read", Path::new("stdin"), e))?;
    let text = text.trim_start_matches('\u{feff}'); // a byte order mark
    let emails: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect();
    if emails.is_empty() { Err(Failure::usage("stdin contains no email")) } else { Ok(emails) }
}

const INVISIBLE: &str = "the email has an invisible character; type it instead of pasting it";

/// Parses emails. Errors name an email by its position.
fn parse(emails: &[String]) -> Result<Vec<Email>, Failure> {
    let parsed = emails.iter().enumerate().map(|(n, email)| {
        let invalid = |error: &dyn Display| Failure::usage(format!("{}{error}", number(n, emails.len())));
        let email = with_ascii_domain(email.trim()).map_err(|_| invalid(&"the domain is invalid"))?;
        let email = Email::parse(&email).map_err(|error| invalid(&error))?;
        // The opt-out would apply to an address that no lookup has.
        let is_visible = is_visible(email.as_str());
        is_visible.then_some(email).ok_or_else(|| invalid(&INVISIBLE))
    });
    parsed.collect()
}

/// Converts an internationalized domain to the form with `xn--` (RFC 5891), which is that of lookups.
fn with_ascii_domain(email: &str) -> Result<Cow<'_, str>, idna::Errors> {
    match email.rsplit_once('@') {
        Some((local, domain)) if !domain.is_ascii() => {
            Ok(format!("{local}@{}", idna::domain_to_ascii(domain)?).into())
        }
        _ => Ok(email.into()),
    }
}

/// Returns the position of an email for a message, or an empty text for the only one.
fn number(n: usize, emails: usize) -> String {
    if emails == 1 { String::new() } else { format!("email {}: ", n + 1) }
}

/// Removes other spellings of one person's addresses, which are one opt-out.
fn distinct(mut emails: Vec<Email>) -> Vec<Email> {
    emails.sort_by_cached_key(Email::opt_out_form);
    emails.dedup_by_key(|email| email.opt_out_form());
    emails
}

fn show_changes(
    done: &str,
    unchanged: &str,
    changed: u64,
    emails: &[Email],
    effect: &str,
    format: Format,
) -> Result<(), Failure> {
    let others = emails.len() as u64 - changed;
    if format.json {
        return output::json(&json!({ "changed": changed, "unchanged": others }));
    }
    let mut lines = Vec::new();
    if changed > 0 {
        lines.push(format!("{} {done}: {effect}", output::people(changed)));
    }
    if others > 0 {
        lines.push(format!("{} {unchanged}", output::people(others)));
    }
    output::line(lines.join("\n"))
}
