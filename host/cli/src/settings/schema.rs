//! The JSON schema of the settings: its tables and settings in the order of the fields, the ranges, and what
//! a reload applies.

use std::sync::LazyLock;

use enrich_provider::{SettingError, SettingErrors};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::config::Config;
use super::order::ORDER;

const RELOAD: &str = "x-reload";
const UNSET: &str = "x-unset";

/// Returns the JSON schema of the settings file.
pub fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        settings.into_generator().into_root_schema_for::<Config>().to_value()
    });
    &SCHEMA
}

/// The kinds of settings.
pub enum Kind<'a> {
    /// One value.
    Value,
    /// Other settings.
    Table(Node<'a>),
    /// A list of tables.
    Tables(Node<'a>),
}

/// The schema of a setting.
#[derive(Clone, Copy)]
pub struct Node<'a>(&'a Map<String, Value>);

impl<'a> Node<'a> {
    /// Returns the schema of the file.
    pub fn root() -> Node<'static> {
        Node(schema().as_object().expect("a schema is an object"))
    }

    /// Iterates over the settings of a table, in the order of the fields.
    pub fn settings(self) -> impl Iterator<Item = (&'a str, Node<'a>)> {
        let properties = self.0.get("properties").and_then(Value::as_object);
        let names = self.0.get(ORDER).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(move |name| {
            let (name, schema) = properties?.get_key_value(name.as_str()?)?;
            Some((name.as_str(), Node(schema.as_object()?)))
        })
    }

    pub fn kind(self) -> Kind<'a> {
        if let Some(table) = self.table() {
            return Kind::Table(table);
        }
        let items = self.0.get("items").and_then(Value::as_object).and_then(|items| Node(items).table());
        items.map_or(Kind::Value, Kind::Tables)
    }

    /// Returns the schema of a table, also of one that may be missing.
    fn table(self) -> Option<Self> {
        if self.0.contains_key(ORDER) {
            return Some(self);
        }
        let any_of = self.0.get("anyOf")?.as_array()?;
        any_of.iter().filter_map(Value::as_object).map(Node).find_map(Node::table)
    }

    /// Returns the manual.
    pub fn text(self) -> &'a str {
        self.0.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the default, unless the setting is off or empty by default.
    pub fn default(self) -> Option<&'a Value> {
        let default = self.0.get("default")?;
        let is_empty = default.is_null() || default.as_array().is_some_and(Vec::is_empty);
        (!is_empty).then_some(default)
    }

    /// Returns an example of a setting without a default.
    pub fn example(self) -> Option<&'a Value> {
        self.0.get("examples")?.as_array()?.first()
    }

    /// Returns whether the value may have this type of JSON.
    pub fn permits(self, kind: &str) -> bool {
        match self.0.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|other| other == kind),
            _ => {
                let any_of = self.0.get("anyOf").and_then(Value::as_array).into_iter().flatten();
                let enumerated =
                    kind == "string" && (self.0.contains_key("enum") || self.0.contains_key("oneOf"));
                enumerated || any_of.filter_map(Value::as_object).any(|schema| Node(schema).permits(kind))
            }
        }
    }

    /// Returns whether the default differs from the same value in a file, for example a path.
    pub fn is_unset(self) -> bool {
        self.0.get(UNSET) == Some(&Value::Bool(true))
    }

    fn is_reloaded(self) -> bool {
        self.0.get(RELOAD) == Some(&Value::Bool(true))
    }

    /// Returns the range of a number, as readable text.
    pub fn range(self) -> Option<String> {
        let bound = |name| self.0.get(name).and_then(Value::as_f64);
        // Those of 32-bit numbers are enforced by their type.
        match (bound("minimum")?, bound("maximum").filter(|max| *max < f64::from(u32::MAX))) {
            (min, Some(max)) => Some(format!("from {min} to {max}")),
            (min, None) if min > 0.0 => Some(format!("at least {min}")),
            _ => None,
        }
    }

    fn is_in_range(self, number: f64) -> bool {
        let bound = |name, default| self.0.get(name).and_then(Value::as_f64).unwrap_or(default);
        (bound("minimum", f64::NEG_INFINITY)..=bound("maximum", f64::INFINITY)).contains(&number)
    }

    /// Checks the ranges of all numbers in `value`, the settings at `path`.
    pub fn check(self, path: &str, value: &Value, errors: &mut SettingErrors) {
        match (self.kind(), value) {
            (Kind::Table(table), Value::Object(values)) => {
                for (name, setting) in table.settings() {
                    let value = values.get(name).unwrap_or(&Value::Null);
                    setting.check(&join(path, name), value, errors);
                }
            }
            (Kind::Tables(table), Value::Array(values)) => {
                for (index, value) in values.iter().enumerate() {
                    table.check(&join(path, &index.to_string()), value, errors);
                }
            }
            (Kind::Value, value) => {
                // JSON has no NaN, and writes it as null.
                let is_nan = value.is_null() && !self.permits("null");
                let is_wrong = value.as_f64().map_or(is_nan, |number| !self.is_in_range(number));
                if let (true, Some(range)) = (is_wrong, self.range()) {
                    errors.push(SettingError::new(path, format!("must be {range}")));
                }
            }
            _ => {}
        }
    }

    /// Adds the settings at `path` that differ and that a reload does not apply.
    pub fn differences(self, path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
        if self.is_reloaded() || before == after {
            return;
        }
        match (self.kind(), before, after) {
            (Kind::Table(table), Value::Object(before), Value::Object(after)) => {
                for (name, setting) in table.settings() {
                    let value = |values: &Map<String, Value>| values.get(name).cloned().unwrap_or_default();
                    setting.differences(&join(path, name), &value(before), &value(after), found);
                }
            }
            _ => found.push(path.to_owned()),
        }
    }
}

/// Returns the path of the setting `name` in the table `path`.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns all settings that a variable can set, with their paths.
pub fn settings() -> Vec<(String, Node<'static>)> {
    fn collect(path: &str, table: Node<'static>, found: &mut Vec<(String, Node<'static>)>) {
        for (name, node) in table.settings() {
            let path = join(path, name);
            match node.kind() {
                Kind::Table(table) => collect(&path, table, found),
                Kind::Value => found.push((path, node)),
                Kind::Tables(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    collect("", Node::root(), &mut found);
    found
}
