//! The days of a report.

use enrich_store::usage::Day;

use crate::args::PeriodArgs;
use crate::date;
use crate::failure::Failure;

/// Returns the first and the last day.
pub fn days(args: PeriodArgs) -> Result<(Day, Day), Failure> {
    let last = args.to.unwrap_or_else(date::today);
    let first = args.from.unwrap_or_else(|| last.minus(args.days - 1));
    if first > last {
        let (first, last) = (date::format(first), date::format(last));
        return Err(Failure::usage(format!("--from {first} is after --to {last}; exchange them")));
    }
    Ok((first, last))
}
