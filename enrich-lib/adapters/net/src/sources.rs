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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_the_error_inside_an_io_error() {
        let error = io::Error::other(io::Error::from(io::ErrorKind::TimedOut));
        let last = sources(&error).last().and_then(|error| error.downcast_ref::<io::Error>());
        assert_eq!((sources(&error).count(), last.map(io::Error::kind)), (2, Some(io::ErrorKind::TimedOut)));
    }
}
