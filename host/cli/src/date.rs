//! Days in UTC, such as `2026-11-22`.

use enrich_host::SystemArrivals;
use enrich_store::usage::Day;
use jiff::ToSpan;
use jiff::civil::Date;

/// The first day.
const EPOCH: Date = Date::constant(1970, 1, 1);

/// Parses a day from 1970-01-01 to 9999-12-31.
pub fn parse(text: &str) -> Result<Day, String> {
    let date: Option<Date> = text.parse().ok().filter(|_| text.len() == "2026-11-22".len());
    let days = date.map(|date| date.duration_since(EPOCH).as_hours() / 24);
    let number = days.and_then(|days| u32::try_from(days).ok());
    number.map(Day::from_number).ok_or_else(|| "expected a day from 1970 on, such as 2026-11-22".to_owned())
}

/// Formats a day.
pub fn format(day: Day) -> String {
    EPOCH.saturating_add(i64::from(day.number()).days()).to_string()
}

/// Returns the current day.
pub fn today() -> Day {
    Day::from_timestamp(SystemArrivals::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_days_that_it_formats() {
        for (text, number) in
            [("1970-01-01", 0), ("2024-02-29", 19_782), ("2026-11-22", 20_779), ("9999-12-31", 2_932_896)]
        {
            assert_eq!(parse(text).map(Day::number), Ok(number), "{text}");
            assert_eq!(format(Day::from_number(number)), text);
        }
    }

    #[test]
    fn rejects_other_texts() {
        for text in [
            "",
            "today",
            "2026-02-29",
            "1969-12-31",
            "2026-1-1",
            "20261122",
            "2026-11-22T00:00",
            "10000-01-01",
        ] {
            assert!(parse(text).unwrap_err().contains("such as 2026-11-22"), "{text}");
        }
    }
}
