//! An error as the log tells it.

use std::error::Error;
use std::iter::successors;

/// The error and its sources, outermost first.
pub(crate) fn chain(error: &dyn Error) -> String {
    let texts: Vec<_> = successors(Some(error), |&error| error.source()).map(ToString::to_string).collect();
    texts.join(": ")
}
