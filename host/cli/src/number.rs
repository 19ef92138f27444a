//! Parsers of whole numbers and percentages.

use std::fmt::Display;
use std::num::NonZeroI64;
use std::ops::RangeInclusive;
use std::str::FromStr;

use enrich_store::RemovalLimit;

/// Returns a parser of numbers in a range.
pub fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let number = |text: &str| text.parse().ok().filter(|number| range.contains(number));
        number(text).ok_or_else(|| match number(&text.replace([',', '_', '\'', ' '], "")) {
            Some(number) => format!("write {number}, without separators"),
            None => format!("expected a whole number from {} to {}", range.start(), range.end()),
        })
    }
}

/// Parses a number of credits to grant, or to withdraw if it is negative.
pub fn signed_credits(text: &str) -> Result<NonZeroI64, String> {
    let credits = within(i64::MIN..=i64::MAX)(text)?;
    NonZeroI64::new(credits).ok_or_else(|| "must not be 0".to_owned())
}

/// Parses a number of people, or a percentage such as `20%`.
pub fn removal_limit(text: &str) -> Result<RemovalLimit, String> {
    match text.strip_suffix('%') {
        Some(percent) => within(0..=100_u8)(percent.trim_end()).map(RemovalLimit::Percent),
        None => within(0..=u64::MAX)(text).map(RemovalLimit::People),
    }
    .map_err(|error| format!("{error}, or a percentage such as 20%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_mistakes() {
        let parse = within(1..=20_000_u64);
        assert_eq!(parse("20000"), Ok(20_000));
        for text in ["10,000", "10_000", "10'000", "10 000"] {
            assert_eq!(parse(text), Err("write 10000, without separators".to_owned()));
        }
        for text in ["", "0", "-5", "20001", "20,001", "1.5", "1e3", "ten", "99999999999999999999"] {
            assert_eq!(parse(text), Err("expected a whole number from 1 to 20000".to_owned()), "{text}");
        }
    }
}
