//! `enrich usage`

use std::collections::BTreeMap;

use enrich_host::SystemArrivals;
use enrich_lib::key::KeyId;
use enrich_lib::model::Timestamp;
use enrich_store::usage::{Day, UsageRow};
use serde_json::json;

use crate::accounts::StoreLocation;
use crate::args::UsageArgs;
use crate::failure::Failure;
use crate::output;

/// Prints one row per day, key and outcome.
pub fn run(store: StoreLocation, args: &UsageArgs) -> Result<(), Failure> {
    let UsageArgs { workspace, days, csv, format } = args;
    let today = Day::of(SystemArrivals::now());
    let first = today.minus(days - 1);
    let (rows, keys) = store.open()?.run(async |admin| {
        let rows = admin.usage(workspace, first, today).await?;
        Ok((rows, admin.keys(workspace, today).await?))
    })?;
    if format.json {
        let rows = rows.iter().map(|UsageRow { day, key, outcome, lookups, credits }| {
            json!({
                "day": date(*day),
                "key": key.to_string(),
                "outcome": outcome,
                "lookups": lookups,
                "credits": credits,
            })
        });
        return output::json(&rows.collect::<Vec<_>>());
    }
    if *csv {
        output::line("day,key,outcome,lookups,credits")?;
        // None of the cells needs quotes.
        return rows.iter().try_for_each(|UsageRow { day, key, outcome, lookups, credits }| {
            output::line(format!("{},{key},{outcome},{lookups},{credits}", date(*day)))
        });
    }
    let labels: BTreeMap<KeyId, &str> = keys.iter().map(|key| (key.id, key.label.as_str())).collect();
    let rows = rows.iter().map(|UsageRow { day, key, outcome, lookups, credits }| {
        let label = labels.get(key).copied().unwrap_or("-").to_owned();
        let [lookups, credits] = [*lookups, *credits].map(output::grouped);
        [date(*day), key.to_string(), label, outcome.clone(), lookups, credits]
    });
    output::table(["DAY", "KEY", "LABEL", "OUTCOME", "LOOKUPS", "CREDITS"], rows)
}

/// Formats a day in UTC, such as `2026-11-22`.
fn date(day: Day) -> String {
    let start: Timestamp = day.starts_at();
    output::rfc3339(start).chars().take(10).collect()
}
