//! Numbers in settings.

use std::fmt::Display;
use std::time::Duration;

use enrich_provider::SettingError;

/// Checks that a number is from `min` to `max`, inclusive.
pub fn check_range<T: Copy + PartialOrd + Display>(
    setting: &str,
    number: T,
    min: T,
    max: T,
) -> Result<(), SettingError> {
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(SettingError::new(setting, format!("must be from {min} to {max}")))
}

pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
