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

macro_rules! value_from {
    ($($(#[$doc:meta])* $name:ident: $source:ty => $value:expr;)*) => {$(
        $(#[$doc])*
        impl<'a> From<$source> for Value<'a> {
            fn from($name: $source) -> Self {
                $value
            }
        }
    )*};
}

value_from! {
    number: i64 => Self::Int(number);
    number: u32 => Self::Int(number.into());
    /// Numbers above `i64::MAX` saturate.
    number: u64 => Self::Int(i64::try_from(number).unwrap_or(i64::MAX));
    text: &'a str => Self::Text(text);
    text: &'a String => Self::Text(text);
    text: String => Self::OwnedText(text);
    bytes: &'a [u8] => Self::Bytes(bytes);
    bytes: &'a Vec<u8> => Self::Bytes(bytes);
    id: &'a LookupId => Self::Bytes(id.as_bytes());
    digest: &'a TokenDigest => Self::Bytes(digest.as_bytes());
    digest: &'a KeyDigest => Self::Bytes(digest.as_bytes());
    id: &'a WorkspaceId => Self::Text(id.as_str());
    email: &'a UserEmail => Self::Text(email.as_str());
    role: Role => Self::Text(role.as_str());
    time: Timestamp => time.unix_ms().into();
    id: KeyId => id.number().into();
    day: Day => day.number().into();
    id: UserId => Self::Int(id.0);
    address: IpAddr => Self::OwnedText(address.to_string());
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

macro_rules! from_value {
    ($($target:ty = $value:ident => $result:expr;)*) => {$(
        impl FromValue for $target {
            fn from_value($value: Value<'static>) -> Result<Self, StoreError> {
                $result
            }
        }
    )*};
}

from_value! {
    bool = value => Ok(i64::from_value(value)? != 0);
    u32 = value => Self::try_from(i64::from_value(value)?).map_err(invalid);
    u64 = value => Self::try_from(i64::from_value(value)?).map_err(invalid);
    Timestamp = value => {
        let ms = i64::from_value(value)?;
        Ok(Self::from_unix_ms(u64::try_from(ms).unwrap_or_default()))
    };
    KeyId = value => u32::from_value(value).map(Self::from_number);
    Day = value => u32::from_value(value).map(Self::from_number);
    UserId = value => i64::from_value(value).map(Self);
    LookupId = value => <[u8; 16]>::from_value(value).map(Self::from_bytes);
    TokenDigest = value => <[u8; 32]>::from_value(value).map(Self::from_bytes);
    KeyDigest = value => <[u8; 32]>::from_value(value).map(Self::from_bytes);
    WorkspaceId = value => parse(value);
    UserEmail = value => parse(value);
    Role = value => parse(value);
    IpAddr = value => parse(value);
}

fn parse<T: FromStr<Err: Error>>(value: Value<'static>) -> Result<T, StoreError> {
    String::from_value(value)?.parse().map_err(invalid)
}
