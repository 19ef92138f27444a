//! `enrich spends`
//!
//! A workspace can have millions of spends, so they are printed while they are read.

use enrich_store::records::SpendRow;
use serde_json::json;

use crate::accounts::StoreLocation;
use crate::args::{RowFormat, SpendsArgs};
use crate::failure::Failure;
use crate::{output, period};

/// Prints one row per billed lookup, oldest first.
pub fn run(store: StoreLocation, args: &SpendsArgs) -> Result<(), Failure> {
    let SpendsArgs { workspace, period, format } = args;
    let (first, last) = period::days(*period)?;
    let mut accounts = store.open()?;
    let (mut next, end) = (Some(first.first_lookup()), last.next().first_lookup());
    let mut has_header = false;
    while let Some(from) = next {
        let page = accounts.run(async |admin| admin.spends(workspace, from, end).await)?;
        if !std::mem::replace(&mut has_header, true) {
            print_header(*format)?;
        }
        page.rows.iter().try_for_each(|row| print(row, *format))?;
        next = page.next;
    }
    Ok(())
}

fn print_header(format: RowFormat) -> Result<(), Failure> {
    if format.csv {
        return output::line("at,lookup_id,key,credits,refunded_at");
    }
    if format.json { Ok(()) } else { print_line(["AT", "LOOKUP", "KEY", "CREDITS", "REFUNDED"]) }
}

fn print(row: &SpendRow, format: RowFormat) -> Result<(), Failure> {
    let SpendRow { lookup_id, key, credits, at, refunded_at } = row;
    let refunded_at = refunded_at.map(output::rfc3339);
    if format.json {
        return output::json(&json!({
            "at": output::rfc3339(*at),
            "lookup_id": lookup_id.to_string(),
            "key": key.to_string(),
            "credits": credits,
            "refunded_at": refunded_at,
        }));
    }
    let refunded_at = refunded_at.unwrap_or_default();
    if format.csv {
        // None of the cells needs quotes.
        return output::line(format!("{},{lookup_id},{key},{credits},{refunded_at}", output::rfc3339(*at)));
    }
    let (at, lookup_id, key) = (output::rfc3339(*at), lookup_id.to_string(), key.to_string());
    print_line([&at, &lookup_id, &key, &output::grouped(*credits), &refunded_at])
}

/// Prints a line of the table. The columns have fixed widths, because the following rows have not been read yet.
fn print_line([at, lookup_id, key, credits, refunded_at]: [&str; 5]) -> Result<(), Failure> {
    let line = format!("{at:24}  {lookup_id:39}  {key:12}  {credits:7}  {refunded_at}");
    output::line(line.trim_end())
}
