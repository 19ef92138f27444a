//! A conditional error.

/// Returns an error with the message of `otherwise` unless `condition` is true.
pub(super) fn ensure(condition: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise()) }
}
