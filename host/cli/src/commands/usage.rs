//! `enrich usage`

use std::collections::BTreeMap;

use enrich_lib::key::KeyId;
use enrich_store::usage::{Day, UsageRow};
use serde_json::{Value, json};

use crate::accounts::StoreLocation;
use crate::args::{Grouping, UsageArgs};
use crate::date;
use crate::failure::Failure;
use crate::output::{self, Format, Rows};

/// Maximum number of days in one query.
const DAYS_MAX: u32 = 31;

/// Prints one row per day, key and outcome, or per two of them.
pub fn run(store: StoreLocation, args: &UsageArgs, format: Format) -> Result<(), Failure> {
    let (mut first, last) = args.period.range()?;
    let mut accounts = store.open()?;
    let header = match args.by {
        None => "day,key,outcome,lookups,credits",
        Some(Grouping::Day) => "day,outcome,lookups,credits",
        Some(Grouping::Key) => "key,outcome,lookups,credits",
    };
    let is_list = format.json || args.rows.csv;
    let mut rows = is_list.then(|| Rows::begin(format, header)).transpose()?;
    let mut sums = Sums::default();
    while first <= last {
        let end = Day::from_number(first.number().saturating_add(DAYS_MAX - 1)).min(last);
        sums.add(accounts.run(async |admin| admin.usage(&args.workspace, first, end).await)?, args.by);
        // A day is in one part, so that each part can be printed at once.
        if let Some(rows) = rows.as_mut().filter(|_| args.by != Some(Grouping::Key)) {
            std::mem::take(&mut sums).print_rows(rows)?;
        }
        first = end.next();
    }
    if let Some(mut rows) = rows {
        sums.print_rows(&mut rows)?;
        return rows.end();
    }
    let keys = accounts.run(async |admin| admin.keys(&args.workspace, last).await)?;
    sums.print_table(&keys.iter().map(|key| (key.id, key.label.as_str())).collect())
}

/// The numbers of lookups and credits of each group.
#[derive(Default)]
struct Sums(BTreeMap<Group, (u64, u64)>);

/// A day, a key and an outcome. The day or the key is `None` if its rows are added up.
type Group = (Option<Day>, Option<KeyId>, String);

impl Sums {
    fn add(&mut self, rows: Vec<UsageRow>, by: Option<Grouping>) {
        for UsageRow { day, key, outcome, lookups, credits } in rows {
            let day = (by != Some(Grouping::Key)).then_some(day);
            let key = (by != Some(Grouping::Day)).then_some(key);
            let sum = self.0.entry((day, key, outcome)).or_default();
            *sum = (sum.0 + lookups, sum.1 + credits);
        }
    }

    fn print_rows(&self, rows: &mut Rows) -> Result<(), Failure> {
        self.0.iter().try_for_each(|((day, key, outcome), (lookups, credits))| {
            let (day, key) = (day.map(date::format), key.map(|key| key.to_string()));
            let value = || {
                let mut row = json!({ "outcome": outcome, "lookups": lookups, "credits": credits });
                for (name, value) in [("day", &day), ("key", &key)] {
                    if let Some(value) = value {
                        row[name] = Value::from(value.as_str());
                    }
                }
                row
            };
            // None of the cells needs quotes.
            let (lookups, credits) = (lookups.to_string(), credits.to_string());
            let cells = [day.as_ref(), key.as_ref(), Some(outcome), Some(&lookups), Some(&credits)];
            rows.print(value, || {
                cells.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(",")
            })
        })
    }

    fn print_table(&self, labels: &BTreeMap<KeyId, &str>) -> Result<(), Failure> {
        let rows = self.0.iter().map(|((day, key, outcome), (lookups, credits))| {
            let all = || "all".to_owned();
            let label = key.and_then(|key| labels.get(&key).copied()).unwrap_or("-").to_owned();
            let [lookups, credits] = [*lookups, *credits].map(output::grouped);
            let key = key.map_or_else(all, |key| key.to_string());
            [day.map_or_else(all, date::format), key, label, outcome.clone(), lookups, credits]
        });
        output::table(["DAY", "KEY", "LABEL", "OUTCOME", "LOOKUPS", "CREDITS"], rows)
    }
}
