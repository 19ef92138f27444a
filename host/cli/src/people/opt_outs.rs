//! `enrich people suppress`, `unsuppress` and `suppressed`. No output contains an email.

use enrich_lib::email::Email;
use serde_json::json;

use crate::args::{Format, OptOutArgs};
use crate::directory::Directory;
use crate::failure::Failure;
use crate::output::{self, rfc3339};

/// Opts people out. `open` is called only if all emails are valid.
pub fn suppress(open: impl FnOnce() -> Result<Directory, Failure>, args: &OptOutArgs) -> Result<(), Failure> {
    let emails = parse(&args.emails)?;
    let changed = open()?.suppress(&emails)?;
    let effect = "lookups stop finding them within a second, and imports do not change that";
    show_changes("opted out", "had opted out before", changed, &emails, effect, args.format)
}

pub fn unsuppress(
    open: impl FnOnce() -> Result<Directory, Failure>,
    args: &OptOutArgs,
) -> Result<(), Failure> {
    let emails = parse(&args.emails)?;
    let changed = open()?.unsuppress(&emails)?;
    let effect = "vendors receive requests for them within a second, and the next import adds them";
    show_changes("withdrew the opt-out", "had not opted out", changed, &emails, effect, args.format)
}

/// Shows whether a person opted out.
pub fn show(
    open: impl FnOnce() -> Result<Directory, Failure>,
    email: &str,
    format: Format,
) -> Result<(), Failure> {
    let email = Email::parse(email.trim()).map_err(|error| Failure::usage(error.to_string()))?;
    let opt_out = open()?.opt_out(&email)?;
    if format.json {
        let since = opt_out.map(|opt_out| rfc3339(opt_out.at));
        return output::json(&json!({ "suppressed": since.is_some(), "since": since }));
    }
    output::line(match opt_out {
        Some(opt_out) => format!("opted out since {}", rfc3339(opt_out.at)),
        None => "not opted out".to_owned(),
    })
}

/// Parses emails. Errors name an email by its position.
fn parse(emails: &[String]) -> Result<Vec<Email>, Failure> {
    let number = |n: usize| if emails.len() == 1 { String::new() } else { format!("email {}: ", n + 1) };
    let parsed = emails.iter().enumerate().map(|(n, email)| {
        Email::parse(email.trim()).map_err(|error| Failure::usage(format!("{}{error}", number(n))))
    });
    let mut emails: Vec<_> = parsed.collect::<Result<_, _>>()?;
    // Spellings of one person's addresses are one opt-out.
    emails.sort_by_cached_key(Email::opt_out_form);
    emails.dedup_by_key(|email| email.opt_out_form());
    Ok(emails)
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
