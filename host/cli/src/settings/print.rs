//! Printing the settings: a file with all defaults, and the list of variables.

use std::fmt::Write;

use serde_json::Value;

use super::schema::{self, Kind, Node, join};
use super::variables;

const HEAD: &str = "\
# Settings of Enrich: every setting with its default. A setting in a comment has no default or is off by
# default. `enrich config check FILE` reports every mistake in a file. Paths are relative to this file. A
# variable overrides a setting, such as ENRICH_PRICE_FOUND for `found` of [price]; vendors have none.
";

/// Returns a settings file with all settings and their defaults.
pub fn example() -> String {
    let mut text = HEAD.to_owned();
    write_table(&mut text, "", Node::root(), "");
    text
}

/// Writes the settings of a table and then the tables in it. `mark` makes the lines comments.
fn write_table(text: &mut String, path: &str, table: Node<'_>, mark: &str) {
    for (name, setting) in table.settings().filter(|(_, setting)| matches!(setting.kind(), Kind::Value)) {
        if path.is_empty() {
            text.push('\n');
        }
        write_manual(text, setting);
        let (mark, value) = match (setting.default(), setting.example()) {
            (Some(default), _) if setting.is_unset() => ("# ", default),
            (Some(default), _) => (mark, default),
            (None, example) => ("# ", example.unwrap_or(&Value::Null)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark}{name} = {}", to_toml(value));
    }
    for (name, setting) in table.settings() {
        let (table, header) = match setting.kind() {
            Kind::Value => continue,
            Kind::Table(table) => (table, format!("[{}]", join(path, name))),
            Kind::Tables(table) => (table, format!("[[{}]]", join(path, name))),
        };
        text.push('\n');
        write_manual(text, setting);
        let mark = if setting.default().is_some() { mark } else { "# " };
        let _ = writeln!(text, "{mark}{header}");
        write_table(text, &join(path, name), table, mark);
    }
}

fn write_manual(text: &mut String, setting: Node<'_>) {
    for line in setting.text().lines() {
        let _ = writeln!(text, "# {line}");
    }
    if let Some(range) = setting.range() {
        let _ = writeln!(text, "# It must be {range}.");
    }
}

fn to_toml(value: &Value) -> String {
    toml::Value::try_from(value).map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the variables with their defaults, one per row.
pub fn variable_rows() -> Vec<[String; 3]> {
    let rows = schema::settings().into_iter().map(|(setting, node)| {
        let default = node.default().map(to_toml).unwrap_or_default();
        [variables::name(&setting), setting, default]
    });
    rows.collect()
}
