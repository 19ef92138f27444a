//! The format of the log.

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One line of text per event.
    Text,
    /// One JSON object per event.
    Json,
}
