//! Error chains on one line.

use std::error::Error;
use std::iter::successors;

/// Joins an error and its sources with `: `, outermost first.
pub fn chain(error: &dyn Error) -> String {
    let texts: Vec<_> = successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
    texts.join(": ")
}
