//! Rows of CSV or JSON Lines files, optionally compressed with gzip. The first bytes of a file determine its
//! format.
//!
//! [`Rows`] reads people, for an import. [`Table`] reads any file with a column of emails, for bulk lookups.
//!
//! Files are exports of other systems, so an invalid row is rejected individually and reported with its line
//! and reason. Errors never quote the row's content.
//!
//! # Layout
//!
//! The modules in reading order. Each one depends only on those before it.
//!
//! - `text`: decompression and format detection
//! - `person`: a person's row and its errors
//! - `records`: CSV records with line numbers
//! - `csv`, `json_lines`: rows of people in each format
//! - `people`: [`Rows`]
//! - `table`: [`Table`]

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod text;

mod person;

mod records;

mod csv;

mod json_lines;

mod people;

mod table;

pub use crate::people::Rows;
pub use crate::person::{Columns, Person, RowError};
pub use crate::table::{BadRow, Table, TableError, TableRow};
pub use crate::text::{FileError, Form};
