//! Credit arithmetic that the stores share.

use enrich_lib::credit::{AccountError, Balance};

/// Converts a number of granted credits to a column value.
pub fn granted(credits: u64) -> Result<i64, AccountError> {
    i64::try_from(credits).map_err(|_| AccountError::TooLarge)
}

/// Adds `credits`, which may be negative, to the total `granted`. Returns the new total as a column value.
pub fn add_grant(granted: i64, credits: i64) -> Result<i64, AccountError> {
    granted.checked_add(credits).ok_or(AccountError::TooLarge)
}

/// Returns the balance for `granted`, `spent` and `held` credits. Limits the held credits to those that are
/// not spent.
pub fn balance(granted: u64, spent: u64, held: u64) -> Balance {
    let unspent = granted.saturating_sub(spent);
    let held = held.min(unspent);
    Balance { granted, available: unspent - held, held, spent }
}
