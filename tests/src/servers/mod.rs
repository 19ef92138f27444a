//! Real servers, each in a directory of its own, that end with the test.

mod postgres;

pub use postgres::Postgres;
