//! Parameters and columns of SQL statements: numbers, texts and bytes. Times are milliseconds since the Unix
//! epoch.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use enrich_lib::key::{KeyDigest, KeyId};
use enrich_lib::model::{LookupId, Timestamp, WorkspaceId};

use crate::error::StoreError;
use crate::token::TokenDigest;
use crate::usage::Day;
use crate::users::{Role, UserEmail, UserId};

/// A parameter, or the value of a column.
#[derive(Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// A number.
    Int(i64),
    /// A borrowed text.
    Text(&'a str),
    /// Borrowed bytes.
    Bytes(&'a [u8]),
    /// An owned text.
    OwnedText(String),
    /// Owned bytes.
    OwnedBytes(Vec<u8>),
}

/// Omits the value, which may be an email or a hash.
impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

impl Value<'_> {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Int(_) => "a number",
            Self::Text(_) | Self::OwnedText(_) => "a text",
            Self::Bytes(_) | Self::OwnedBytes(_) => "bytes",
        }
    }
}

/// Converts each argument to a [`Value`], for the parameters of a statement.
#[macro_export]
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::value::Value::from($value)),*] };
}

pub use values;

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

/// Numbers above `i64::MAX` saturate.
impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Self::OwnedText(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a LookupId> for Value<'a> {
    fn from(id: &'a LookupId) -> Self {
        Self::Bytes(id.as_bytes())
    }
}

impl<'a> From<&'a TokenDigest> for Value<'a> {
    fn from(digest: &'a TokenDigest) -> Self {
        Self::Bytes(digest.as_bytes())
    }
}

impl<'a> From<&'a KeyDigest> for Value<'a> {
    fn from(digest: &'a KeyDigest) -> Self {
        Self::Bytes(digest.as_bytes())
    }
}

impl<'a> From<&'a WorkspaceId> for Value<'a> {
    fn from(id: &'a WorkspaceId) -> Self {
        Self::Text(id.as_str())
    }
}

impl<'a> From<&'a UserEmail> for Value<'a> {
    fn from(email: &'a UserEmail) -> Self {
        Self::Text(email.as_str())
    }
}

impl From<Role> for Value<'_> {
    fn from(role: Role) -> Self {
        Self::Text(role.as_str())
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(time: Timestamp) -> Self {
        time.unix_ms().into()
    }
}

impl From<KeyId> for Value<'_> {
    fn from(id: KeyId) -> Self {
        id.number().into()
    }
}

impl From<Day> for Value<'_> {
    fn from(day: Day) -> Self {
        day.number().into()
    }
}

impl From<UserId> for Value<'_> {
    fn from(id: UserId) -> Self {
        Self::Int(id.0)
    }
}

impl From<IpAddr> for Value<'_> {
    fn from(address: IpAddr) -> Self {
        Self::OwnedText(address.to_string())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row of a result. Its columns are read in order.
#[derive(Debug, Default)]
pub struct Row {
    values: std::vec::IntoIter<Value<'static>>,
}

impl Row {
    /// Creates a row from the values of its columns.
    pub fn new(values: Vec<Value<'static>>) -> Self {
        Self { values: values.into_iter() }
    }

    /// Returns the values of the columns that were not read.
    pub fn into_values(self) -> Vec<Value<'static>> {
        self.values.collect()
    }

    /// Reads the next column.
    ///
    /// Errors: [`StoreError::Column`] if it has another type, or no valid value.
    pub fn read<T: FromValue>(&mut self) -> Result<T, StoreError> {
        T::from_value(self.values.next().unwrap_or(Value::Null))
    }
}

/// A type that a column is read as.
pub trait FromValue: Sized {
    /// Converts the value of a column.
    ///
    /// Errors: [`StoreError::Column`].
    fn from_value(value: Value<'static>) -> Result<Self, StoreError>;
}

fn unexpected(value: &Value<'_>, expected: &str) -> StoreError {
    StoreError::Column(format!("expected {expected}, found {}", value.type_name()))
}

fn invalid(error: impl Error) -> StoreError {
    StoreError::Column(error.to_string())
}

impl FromValue for i64 {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        match value {
            Value::Int(number) => Ok(number),
            value => Err(unexpected(&value, "a number")),
        }
    }
}

impl FromValue for String {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        match value {
            Value::OwnedText(text) => Ok(text),
            Value::Text(text) => Ok(text.to_owned()),
            value => Err(unexpected(&value, "a text")),
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        match value {
            Value::OwnedBytes(bytes) => Ok(bytes),
            Value::Bytes(bytes) => Ok(bytes.to_owned()),
            value => Err(unexpected(&value, "bytes")),
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<const N: usize> FromValue for [u8; N] {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        let bytes = Vec::from_value(value)?;
        Self::try_from(bytes.as_slice()).map_err(invalid)
    }
}

impl FromValue for bool {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        Ok(i64::from_value(value)? != 0)
    }
}

impl FromValue for u32 {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        Self::try_from(i64::from_value(value)?).map_err(invalid)
    }
}

impl FromValue for u64 {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        Self::try_from(i64::from_value(value)?).map_err(invalid)
    }
}

impl FromValue for Timestamp {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        let ms = i64::from_value(value)?;
        Ok(Self::from_unix_ms(u64::try_from(ms).unwrap_or_default()))
    }
}

impl FromValue for KeyId {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        u32::from_value(value).map(Self::from_number)
    }
}

impl FromValue for Day {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        u32::from_value(value).map(Self::from_number)
    }
}

impl FromValue for UserId {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        i64::from_value(value).map(Self)
    }
}

impl FromValue for LookupId {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        <[u8; 16]>::from_value(value).map(Self::from_bytes)
    }
}

impl FromValue for TokenDigest {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        <[u8; 32]>::from_value(value).map(Self::from_bytes)
    }
}

impl FromValue for KeyDigest {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        <[u8; 32]>::from_value(value).map(Self::from_bytes)
    }
}

impl FromValue for WorkspaceId {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        parse(value)
    }
}

impl FromValue for UserEmail {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        parse(value)
    }
}

impl FromValue for Role {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        parse(value)
    }
}

impl FromValue for IpAddr {
    fn from_value(value: Value<'static>) -> Result<Self, StoreError> {
        parse(value)
    }
}

fn parse<T: FromStr<Err: Error>>(value: Value<'static>) -> Result<T, StoreError> {
    String::from_value(value)?.parse().map_err(invalid)
}
