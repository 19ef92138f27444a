//! Arguments and results of statements.

use bytes::{BufMut, Bytes, BytesMut};
use pgwire::messages::data::{DataRow, FieldDescription};
use postgres_types::{FromSql, Type};
use rusqlite::types::Value;

use crate::protocol;

/// Converts an argument to a value of SQLite.
pub(super) fn argument(oid: u32, bytes: Option<&Bytes>) -> Result<Value, String> {
    let Some(bytes) = bytes else { return Ok(Value::Null) };
    let type_ = Type::from_oid(oid).ok_or_else(|| format!("the type {oid} is unknown"))?;
    let value = match type_ {
        Type::INT8 => i64::from_sql(&type_, bytes).map(Value::from),
        Type::INT4 => i32::from_sql(&type_, bytes).map(Value::from),
        Type::TEXT | Type::VARCHAR => String::from_sql(&type_, bytes).map(Value::from),
        Type::BYTEA => Ok(Value::Blob(bytes.to_vec())),
        other => return Err(format!("arguments of type {other} are not supported; use query_typed")),
    };
    value.map_err(|error| error.to_string())
}

/// Describes the columns of a result by the values of its rows. A column of NULLs is a BIGINT.
pub(super) fn columns(names: &[String], rows: &[Vec<Value>]) -> Vec<FieldDescription> {
    let type_of = |column: usize| {
        let value = rows.iter().map(|row| &row[column]).find(|value| **value != Value::Null);
        match value {
            Some(Value::Text(_)) => Type::TEXT,
            Some(Value::Blob(_)) => Type::BYTEA,
            Some(Value::Real(_)) => Type::FLOAT8,
            Some(Value::Integer(_) | Value::Null) | None => Type::INT8,
        }
    };
    names.iter().enumerate().map(|(column, name)| protocol::field(name, &type_of(column))).collect()
}

/// Encodes a row in binary.
pub(super) fn row(values: &[Value]) -> DataRow {
    let mut data = BytesMut::new();
    for value in values {
        match value {
            Value::Null => data.put_i32(-1),
            Value::Integer(number) => field(&mut data, &number.to_be_bytes()),
            Value::Real(number) => field(&mut data, &number.to_be_bytes()),
            Value::Text(text) => field(&mut data, text.as_bytes()),
            Value::Blob(bytes) => field(&mut data, bytes),
        }
    }
    DataRow::new(data, values.len() as i16)
}

fn field(data: &mut BytesMut, bytes: &[u8]) {
    data.put_i32(bytes.len() as i32);
    data.put_slice(bytes);
}
