//! Credit arithmetic that the stores share.

use enrich_lib::credit::{AccountError, Balance};

/// Adds a grant of `credits` to the total `granted`. Returns the credits and the new total as column values.
pub fn add_grant(granted: i64, credits: u64) -> Result<(i64, i64), AccountError> {
    let credits = i64::try_from(credits).map_err(|_| AccountError::TooLarge)?;
    let granted = granted.checked_add(credits).ok_or(AccountError::TooLarge)?;
    Ok((credits, granted))
}

/// Returns the balance for `granted`, `spent` and `held` credits. Limits the held credits to those that are not spent.
pub fn balance(granted: u64, spent: u64, held: u64) -> Balance {
    let unspent = granted.saturating_sub(spent);
    let held = held.min(unspent);
    Balance { granted, available: unspent - held, held, spent }
}
