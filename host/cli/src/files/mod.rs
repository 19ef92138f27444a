//! Rows of CSV or JSON Lines files, optionally compressed with gzip. The first bytes of a file determine its
//! format.
//!
//! [`read_people`] reads people, for an import. [`Table`] reads any file with a column of emails, for bulk lookups.
//!
//! Files are exports of other systems, so an invalid row is rejected individually and reported with its line
//! and reason. Errors never quote the row's content.

mod csv;
mod lines;
mod people;
mod person;
mod records;
mod table;
mod text;

pub use self::people::{Rows, read_people};
pub use self::person::{Columns, Person, RowError};
pub use self::table::{BadRow, Table, TableError, TableRow};
pub use self::text::{FileError, Form};
