//! A person's row and its errors.

use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::model::ProfileUrl;

use super::text::FileError;

/// The names of the CSV columns or JSON fields. CSV headers are compared case-insensitively.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Column of the email.
    pub email: String,
    /// Column of the LinkedIn profile's URL.
    pub url: String,
    /// Column of the match confidence, from 0 to 1. A missing value means 1.
    pub confidence: String,
}

/// The column of the confidence that a file may lack.
const CONFIDENCE: &str = "confidence";

impl Columns {
    /// Returns whether each file must have the confidence, because another name than the default was set for it.
    pub(crate) fn needs_confidence(&self) -> bool {
        self.confidence != CONFIDENCE
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self { email: "email".to_owned(), url: "linkedin_url".to_owned(), confidence: CONFIDENCE.to_owned() }
    }
}

/// A valid row.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    /// The email, which satisfies the default [`EmailPolicy`].
    pub email: Email,
    /// The profile in its canonical form.
    pub profile: ProfileUrl,
    /// The match confidence, from 0 to 1.
    pub confidence: f64,
}

/// An error that affects a row or the rest of the file.
#[derive(Debug)]
pub enum RowError {
    /// The row is invalid. The following rows can still be read.
    Rejected {
        /// The line on which the row starts, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// The rest of the file cannot be read.
    Unreadable(FileError),
}

pub(crate) type Row = Result<Person, RowError>;

/// Checks the fields of a row.
pub(crate) fn person(email: &str, url: &str, confidence: Option<f64>) -> Result<Person, String> {
    let email = Email::parse(email.trim()).map_err(|error| error.to_string())?;
    EmailPolicy::default().check(&email).map_err(|why| why.to_string())?;
    let profile = ProfileUrl::parse(url).map_err(|error| format!("the URL is {error}"))?;
    if profile.names_nobody() {
        return Err(
            "the URL is not a person's profile: the name is a placeholder or has invisible characters"
                .to_owned(),
        );
    }
    let confidence = confidence.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&confidence) {
        return Err("the confidence is not between 0 and 1".to_owned());
    }
    Ok(Person { email, profile, confidence })
}

pub(crate) fn rejected(line: u64, reason: String) -> Row {
    Err(RowError::Rejected { line, reason })
}
