//! Usage: lookups by day, outcome and key, the credits, and CSV downloads.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use enrich_lib::key::KeyId;
use enrich_lib::model::Timestamp;
use enrich_store::grouped;
use enrich_store::records::{GrantKind, GrantRow, KeyRow, WorkspaceRow};
use enrich_store::usage::{Day, TEST, UsageRow};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde::Deserialize;

use crate::console::Console;
use crate::error::Error;
use crate::extract::Query;
use crate::pages::usage::chart::Chart;
use crate::pages::usage::sums::Sums;
use crate::session::Member;
use crate::view::{Moment as _, Shell, date, few_credits, page};

pub(crate) mod chart;
mod sums;

/// The periods that the page offers, in days.
const PERIODS: [u32; 3] = [7, 30, 90];

/// The maximum number of grants on the page.
const GRANTS: usize = 50;

/// The maximum number of keys on the page.
const KEYS: usize = 100;

#[derive(Debug, Deserialize)]
pub(crate) struct Period {
    days: Option<u32>,
}

impl Period {
    fn days(&self) -> u32 {
        self.days.filter(|days| PERIODS.contains(days)).unwrap_or(30)
    }
}

/// A row of a table: its name, and its numbers.
struct Line {
    name: String,
    cells: [String; 6],
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    shell: Shell,
    base: String,
    quick_start: String,
    days: u32,
    /// Available, spent and granted.
    credits: [String; 3],
    /// If few credits are left: these, the low balance, and all that were granted.
    bar: Option<[u64; 3]>,
    /// How many days few credits last, if they are spent as in the last 7 days.
    days_left: Option<String>,
    total: [String; 6],
    /// Lookups with test keys, which no table counts.
    tests: Option<String>,
    chart: Chart,
    /// The days with lookups, newest first.
    by_day: Vec<Line>,
    /// The keys that were used most.
    by_key: Vec<Line>,
    has_more_keys: bool,
    /// Lookups by outcome, most frequent first.
    outcomes: Vec<(String, String)>,
    /// The newest grants.
    grants: Vec<Grant>,
    has_more_grants: bool,
}

/// A line of the table of grants.
struct Grant {
    at: Timestamp,
    kind: &'static str,
    /// The refunded lookup, and the reason of a refund or an adjustment.
    note: String,
    credits: String,
}

impl Grant {
    fn of(row: &GrantRow) -> Self {
        let (kind, note) = match row.kind {
            GrantKind::Grant => ("Grant", String::new()),
            GrantKind::Adjustment => ("Adjustment", row.reason.clone()),
            GrantKind::Refund(lookup_id) if row.reason.is_empty() => ("Refund", lookup_id.to_string()),
            GrantKind::Refund(lookup_id) => ("Refund", format!("{lookup_id}: {}", row.reason)),
        };
        let sign = if row.credits < 0 { "−" } else { "" };
        let credits = format!("{sign}{}", grouped(row.credits.unsigned_abs()));
        Self { at: row.at, kind, note, credits }
    }
}

impl UsagePage {
    fn is_period(&self, days: &u32) -> bool {
        self.days == *days
    }
}

pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    member: Member,
    Query(period): Query<Period>,
) -> Result<Response, Error> {
    let (days, today) = (period.days(), Day::from_timestamp(console.now()));
    let mut accounts = console.accounts().await?;
    let mut rows = accounts.usage(member.workspace(), today.minus(days - 1), today).await?;
    let keys = accounts.keys(member.workspace(), today).await?;
    let grants = accounts.grants(member.workspace()).await?;
    drop(accounts);

    let tests: u64 = rows.extract_if(.., |row| row.outcome == TEST).map(|row| row.lookups).sum();
    let WorkspaceRow { balance, properties, .. } = &member.signed_in.workspace;
    let left = few_credits(&member.signed_in.workspace);
    let week = rows.iter().filter(|row| row.day >= today.minus(6)).map(|row| row.credits).sum();
    let days_left = left.and_then(|left| left.saturating_mul(7).checked_div(week));
    let by_day = by_day(&rows, today, days);
    let mut by_key = by_key(&rows, &keys);
    let has_more_keys = by_key.len() > KEYS;
    by_key.truncate(KEYS);
    let total = rows.iter().fold(Sums::default(), |mut total, row| {
        total.add(row);
        total
    });
    Ok(page(&UsagePage {
        shell: Shell::of_user(&member.signed_in, "usage", None),
        base: member.path("usage"),
        quick_start: member.path("quick-start"),
        days,
        credits: [balance.available, balance.spent, balance.granted].map(grouped),
        bar: left.map(|left| [left, properties.low_balance, balance.granted]),
        days_left: days_left.map(grouped),
        total: total.cells(),
        tests: (tests > 0).then(|| grouped(tests)),
        chart: Chart::of(&by_day),
        by_day: lines(&by_day),
        by_key,
        has_more_keys,
        outcomes: outcomes(&rows),
        has_more_grants: grants.len() > GRANTS,
        grants: grants.iter().rev().take(GRANTS).map(Grant::of).collect(),
    }))
}

/// Returns the sums of each day, also of those without lookups.
fn by_day(rows: &[UsageRow], today: Day, days: u32) -> Vec<(Day, Sums)> {
    let mut sums: BTreeMap<_, Sums> = (0..days).map(|n| (today.minus(n), Sums::default())).collect();
    for row in rows {
        sums.entry(row.day).or_default().add(row);
    }
    sums.into_iter().collect()
}

/// Returns a line for each day with lookups, newest first.
fn lines(days: &[(Day, Sums)]) -> Vec<Line> {
    let used = days.iter().rev().filter(|(_, sums)| sums.lookups() > 0);
    used.map(|(day, sums)| Line { name: date(*day), cells: sums.cells() }).collect()
}

fn by_key(rows: &[UsageRow], keys: &[KeyRow]) -> Vec<Line> {
    let mut sums = BTreeMap::<KeyId, Sums>::new();
    for row in rows {
        sums.entry(row.key).or_default().add(row);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.lookups()));
    let keys: BTreeMap<_, _> = keys.iter().map(|key| (key.id, key)).collect();
    let name = |id: KeyId| {
        let key = keys.get(&id);
        key.map_or(id.to_string(), |key| format!("{} ({})", key.label, key.masked))
    };
    sums.into_iter().map(|(id, sums)| Line { name: name(id), cells: sums.cells() }).collect()
}

fn outcomes(rows: &[UsageRow]) -> Vec<(String, String)> {
    let mut lookups = BTreeMap::<&str, u64>::new();
    for row in rows {
        *lookups.entry(&row.outcome).or_default() += row.lookups;
    }
    let mut lookups: Vec<_> = lookups.into_iter().collect();
    lookups.sort_by_key(|(_, lookups)| std::cmp::Reverse(*lookups));
    lookups.into_iter().map(|(outcome, lookups)| (outcome.to_owned(), grouped(lookups))).collect()
}

/// Downloads the usage: one line per day, key and outcome.
pub(crate) async fn usage_csv(
    State(console): State<Arc<Console>>,
    member: Member,
    Query(period): Query<Period>,
) -> Result<Response, Error> {
    let today = Day::from_timestamp(console.now());
    let mut accounts = console.accounts().await?;
    let rows = accounts.usage(member.workspace(), today.minus(period.days() - 1), today).await?;
    let mut csv = "day,key,outcome,lookups,credits\n".to_owned();
    for UsageRow { day, key, outcome, lookups, credits } in &rows {
        let _ = writeln!(csv, "{},{key},{outcome},{lookups},{credits}", date(*day));
    }
    Ok(download(&format!("usage-{}.csv", member.workspace()), csv))
}

/// Downloads the ledger: grants, and the credits spent per day, oldest first.
pub(crate) async fn ledger_csv(
    State(console): State<Arc<Console>>,
    member: Member,
) -> Result<Response, Error> {
    let today = Day::from_timestamp(console.now());
    let mut accounts = console.accounts().await?;
    let spent = accounts.spent_by_day(member.workspace(), today).await?;
    let grants = accounts.grants(member.workspace()).await?;
    // The spends of a day come after its grants.
    let mut lines: Vec<(Day, bool, String)> = Vec::new();
    for grant in &grants {
        let (at, note) = (grant.at.iso(), cell(&Grant::of(grant).note));
        let line = format!("{at},{},{},{note}", grant.kind.as_str(), grant.credits);
        lines.push((Day::from_timestamp(grant.at), false, line));
    }
    for (day, credits) in spent {
        lines.push((day, true, format!("{},spent,-{credits},", date(day))));
    }
    lines.sort_by_key(|(day, is_spent, _)| (*day, *is_spent));
    let mut csv = "at,entry,credits,note\n".to_owned();
    for (_, _, line) in &lines {
        let _ = writeln!(csv, "{line}");
    }
    Ok(download(&format!("ledger-{}.csv", member.workspace()), csv))
}

/// Returns a cell of CSV with any text.
fn cell(text: &str) -> String {
    // Spreadsheets would take the text for a formula.
    let prefix = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    if text.is_empty() { String::new() } else { format!("\"{prefix}{}\"", text.replace('"', "\"\"")) }
}

fn download(name: &str, csv: String) -> Response {
    // A workspace's name has no characters that need quoting.
    let disposition = format!("attachment; filename=\"{name}\"");
    ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, disposition)], csv)
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_without_lookups_have_no_line() {
        let used = Sums { not_found: 1, ..Sums::default() };
        let days = [19_000, 19_001, 19_002, 19_003].map(Day::from_number);
        let days: Vec<_> = days.into_iter().zip([used, Sums::default(), used, Sums::default()]).collect();
        let names: Vec<_> = lines(&days).into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["2022-01-10", "2022-01-08"]);
        assert!(lines(&days[1..2]).is_empty());
    }
}
