//! The order of the settings in a table, which is that of the fields of its structure.

use schemars::Schema;
use serde::de::{Deserialize, Deserializer, Visitor, value};
use serde::forward_to_deserialize_any;
use serde_json::json;

/// The order of the properties of a table. JSON objects have none.
pub const ORDER: &str = "x-order";

/// Adds the order of a structure's fields to its schema.
pub fn in_order<T: for<'de> Deserialize<'de>>(schema: &mut Schema) {
    let mut fields: &[&str] = &[];
    // Fails, after it has received the fields.
    let _ = T::deserialize(Fields(&mut fields));
    schema.insert(ORDER.to_owned(), json!(fields));
}

/// A deserializer that receives the fields of a structure.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        self.deserialize_any_error()
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        self.deserialize_any_error()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl Fields<'_> {
    fn deserialize_any_error<T>(self) -> Result<T, value::Error> {
        Err(serde::de::Error::custom("only the fields are read"))
    }
}
