//! The causes of an error.

use std::error::Error;
use std::io;
use std::iter::successors;

/// Iterates over an error and its causes, outermost first.
///
/// Includes the error inside an [`io::Error`], which `source` skips.
pub fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + Clone {
    successors(Some(error), |&error| match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn Error + 'static)),
        None => error.source(),
    })
}
