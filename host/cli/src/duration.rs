//! Parser of durations such as `30m`, `24h` and `90d`.

use std::time::Duration;

/// Ten years.
const DAYS_MAX: u64 = 3_660;

/// Parses a whole number with one of the units `m`, `h` and `d`. The shortest duration is one minute.
pub fn parse(text: &str) -> Result<Duration, String> {
    let example = || "expected a number and a unit, such as 30m, 24h or 90d".to_owned();
    let unit = text.chars().next_back().ok_or_else(example)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(example()),
    };
    let digits = &text[..text.len() - unit.len_utf8()];
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(example());
    }
    let longest = DAYS_MAX * 86_400;
    let total = digits.parse().ok().and_then(|number: u64| number.checked_mul(seconds));
    match total {
        Some(total @ 1..) if total <= longest => Ok(Duration::from_secs(total)),
        _ => Err(format!("must be from 1m to {DAYS_MAX}d")),
    }
}

/// Parses a duration, or `0`.
pub fn parse_or_zero(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { parse(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_minutes_hours_and_days() {
        for (text, seconds) in [("1m", 60), ("24h", 86_400), ("090d", 7_776_000), ("3660d", 316_224_000)] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn grace_period_may_be_zero() {
        assert_eq!(parse_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(parse_or_zero("1m"), Ok(Duration::from_secs(60)));
        assert!(parse_or_zero("0m").is_err());
    }

    #[test]
    fn rejects_other_units_and_numbers() {
        for text in ["", "d", "90", "90s", "90 d", "-1d", "+1d", "1.5h", "1h30m", "1€", "€"] {
            assert!(parse(text).unwrap_err().contains("30m, 24h or 90d"), "{text}");
        }
        for text in ["0m", "3661d", "99999999999999999999d", "18446744073709551615h"] {
            assert_eq!(parse(text).unwrap_err(), "must be from 1m to 3660d", "{text}");
        }
    }
}
