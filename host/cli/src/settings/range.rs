//! Ranges of numbers in settings.

use serde::de::{Deserialize, Deserializer, Error};

/// Reads a whole number from `MIN` to `MAX`.
pub fn whole<'de, D, N, const MIN: i64, const MAX: i64>(number: D) -> Result<N, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<i64>,
{
    let number = i64::deserialize(number)?;
    let is_within = (MIN..=MAX).contains(&number);
    N::try_from(number).ok().filter(|_| is_within).ok_or_else(|| match MAX {
        i64::MAX => D::Error::custom(format!("must be at least {MIN}")),
        _ => D::Error::custom(format!("must be from {MIN} to {MAX}")),
    })
}

/// Like [`whole`], for a setting without a default.
pub fn optional<'de, D, N, const MIN: i64, const MAX: i64>(number: D) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: TryFrom<i64>,
{
    whole::<D, N, MIN, MAX>(number).map(Some)
}

/// Reads a number from `PERCENT_MIN` hundredths to 1.
pub fn fraction<'de, D: Deserializer<'de>, const PERCENT_MIN: u8>(number: D) -> Result<f64, D::Error> {
    let (number, min) = (f64::deserialize(number)?, f64::from(PERCENT_MIN) / 100.0);
    if (min..=1.0).contains(&number) {
        return Ok(number);
    }
    Err(D::Error::custom(format!("must be from {min} to 1")))
}
