//! `enrich credits ledger`
//!
//! A workspace can have millions of spends, so they are printed while they are read.

use std::iter::Peekable;
use std::vec::IntoIter;

use enrich_lib::model::Timestamp;
use enrich_store::records::{GrantRow, SpendRow};
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::args::LedgerArgs;
use crate::failure::Failure;
use crate::output::{self, Format, Rows};

/// Prints the grants, adjustments, refunds and spends of a period, oldest first.
pub fn run(store: StoreLocation, args: &LedgerArgs, format: Format) -> Result<(), Failure> {
    let LedgerArgs { workspace, period, rows } = args;
    let (first, last) = period.range()?;
    let mut accounts = store.open()?;
    let (mut next, end) = (Some(first.first_lookup()), last.next().first_lookup());
    let mut grants = accounts.run(async |admin| admin.grants(workspace).await)?;
    let (from, to) = (first.starts_at(), last.next().starts_at());
    grants.retain(|grant| (from..to).contains(&grant.at));
    grants.sort_by_key(|grant| grant.at);
    let mut grants = grants.into_iter().peekable();
    let mut printer = Printer::begin(format, rows.csv)?;
    while let Some(from) = next {
        let page = accounts.run(async |admin| admin.spends(workspace, from, end).await)?;
        for spend in &page.rows {
            grants_until(&mut grants, spend.at)
                .try_for_each(|grant| printer.print(&Entry::of_grant(&grant)))?;
            printer.print(&Entry::of_spend(spend))?;
        }
        next = page.next;
    }
    grants.try_for_each(|grant| printer.print(&Entry::of_grant(&grant)))?;
    printer.rows.end()
}

fn grants_until(
    grants: &mut Peekable<IntoIter<GrantRow>>,
    time: Timestamp,
) -> impl Iterator<Item = GrantRow> {
    std::iter::from_fn(move || grants.next_if(|grant| grant.at <= time))
}

/// A movement of credits.
struct Entry {
    at: Timestamp,
    kind: &'static str,
    /// Negative if the workspace has fewer credits afterwards.
    credits: i64,
    lookup_id: Option<String>,
    key: Option<String>,
    reason: String,
}

impl Entry {
    fn of_grant(grant: &GrantRow) -> Self {
        let GrantRow { kind, credits, reason, at } = grant;
        let lookup_id = kind.lookup_id().map(|lookup_id| lookup_id.to_string());
        Self { at: *at, kind: kind.as_str(), credits: *credits, lookup_id, key: None, reason: reason.clone() }
    }

    fn of_spend(spend: &SpendRow) -> Self {
        let SpendRow { lookup_id, key, credits, at, .. } = spend;
        let (lookup_id, key) = (Some(lookup_id.to_string()), Some(key.to_string()));
        let credits = i64::try_from(*credits).map_or(i64::MIN, |credits| -credits);
        Self { at: *at, kind: "spend", credits, lookup_id, key, reason: String::new() }
    }

    fn to_json(&self) -> Value {
        let Self { at, kind, credits, lookup_id, key, reason } = self;
        json!({
            "at": output::rfc3339(*at),
            "kind": kind,
            "credits": credits,
            "lookup_id": lookup_id,
            "key": key,
            "reason": reason,
        })
    }

    /// Returns a line of CSV. Only the reason may need quotes.
    fn to_csv(&self) -> String {
        let Self { at, kind, credits, lookup_id, key, reason } = self;
        let [lookup_id, key] = [lookup_id, key].map(|cell| cell.as_deref().unwrap_or_default());
        let reason = if reason.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", reason.replace('"', "\"\""))
        } else {
            reason.clone()
        };
        format!("{},{kind},{credits},{lookup_id},{key},{reason}", output::rfc3339(*at))
    }

    /// Returns a line of the table. The columns have fixed widths, because the following rows have not been
    /// read yet.
    fn to_line(&self) -> String {
        let Self { at, kind, credits, lookup_id, key, reason } = self;
        let sign = if *credits < 0 { "-" } else { "" };
        let credits = format!("{sign}{}", output::grouped(credits.unsigned_abs()));
        let [lookup_id, key] = [lookup_id, key].map(|cell| cell.as_deref().unwrap_or("-"));
        line([&output::rfc3339(*at), kind, &credits, lookup_id, key, &output::printable(reason)])
    }
}

struct Printer {
    is_csv: bool,
    rows: Rows,
}

impl Printer {
    fn begin(format: Format, is_csv: bool) -> Result<Self, Failure> {
        let header = line(["AT", "KIND", "CREDITS", "LOOKUP", "KEY", "REASON"]);
        let header = if is_csv { "at,kind,credits,lookup_id,key,reason" } else { &header };
        Ok(Self { is_csv, rows: Rows::begin(format, header)? })
    }

    fn print(&mut self, entry: &Entry) -> Result<(), Failure> {
        let text = || if self.is_csv { entry.to_csv() } else { entry.to_line() };
        self.rows.print(|| entry.to_json(), text)
    }
}

fn line([at, kind, credits, lookup_id, key, reason]: [&str; 6]) -> String {
    let line = format!("{at:24}  {kind:10}  {credits:>9}  {lookup_id:39}  {key:12}  {reason}");
    line.trim_end().to_owned()
}
