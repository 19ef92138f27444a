//! The example of the settings file has every setting, its default and its range.

use enrich_vendors::provider::read_table;
use toml::{Table, Value};

use super::{ACME, mistakes, read};
use crate::settings::EXAMPLE;
use crate::settings::config::{CacheConfig, Config};
use crate::settings::vendor_config::BreakerConfig;

/// Returns the example with the settings in comments.
pub fn example() -> Table {
    let is_setting = |text: &str| {
        text.starts_with('[') || text.split_once(" = ").is_some_and(|(name, _)| !name.contains(' '))
    };
    let lines =
        EXAMPLE.lines().map(|line| line.strip_prefix("# ").filter(|it| is_setting(it)).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n").parse().unwrap()
}

/// Returns the table of settings in a value. Vendors are represented by the first one.
pub fn section(value: &mut Value) -> Option<&mut Table> {
    match value {
        Value::Table(table) if !table.contains_key("file") && !table.contains_key("env") => Some(table),
        Value::Array(items) => items.first_mut()?.as_table_mut(),
        _ => None,
    }
}

/// Visits each table of the example with its path, from which the indexes of vendors are left out.
pub fn tables(path: &str, table: &mut Table, visit: &mut impl FnMut(&str, &mut Table)) {
    visit(path, table);
    for (name, value) in table {
        let Some(inner) = section(value) else { continue };
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        tables(&path, inner, visit);
    }
}

#[test]
fn example_has_the_defaults() {
    assert_eq!(read(EXAMPLE).unwrap().0, read("").unwrap().0);
    let with_comments: Config = read_table(example()).unwrap();
    assert_eq!(with_comments.cache, Some(CacheConfig::default()));
    assert_eq!(with_comments.vendors[0].breaker, Some(BreakerConfig::default()));
    assert_eq!(with_comments.data, read("").unwrap().0.data);
}

#[test]
fn example_has_every_setting() {
    let mut paths = Vec::new();
    tables("", &mut example(), &mut |path, _| paths.push(path.to_owned()));
    assert_eq!(paths.len(), 14, "{paths:?}");
    for wrong in paths {
        let (mut text, mut expected) = (example(), Vec::new());
        tables("", &mut text, &mut |path, table| {
            if path == wrong {
                expected = table.keys().cloned().collect();
                table.insert("zzz".to_owned(), 1.into());
            }
        });
        let error = read_table::<Config>(text).unwrap_err();
        let mut known: Vec<_> = error.why().split('`').skip(3).step_by(2).collect();
        known.sort_unstable();
        assert_eq!(known, expected, "{error}");
    }
}

#[test]
fn example_states_each_range() {
    let (mut table, mut range, mut ranges) = ("", None, 0);
    for line in EXAMPLE.lines() {
        let text = line.strip_prefix("# ").unwrap_or(line);
        if let Some(stated) = text.strip_prefix("It must be ").and_then(|text| text.strip_suffix('.')) {
            range = Some(stated);
        } else if text.starts_with('[') {
            table = text.trim_matches(['[', ']']);
        } else if let (Some((name, _)), Some(range)) = (text.split_once(" = "), range.take()) {
            let numbers: Vec<f64> = range.split(' ').filter_map(|word| word.parse().ok()).collect();
            let step = if range.ends_with("to 1") { 0.001 } else { 1.0 };
            let text = |number: f64| match table.strip_prefix("vendors") {
                Some("") => format!("{ACME}{name} = {number}"),
                Some(part) => format!("{ACME}{}.{name} = {number}", &part[1..]),
                None => format!("{table}.{name} = {number}\n{ACME}").trim_start_matches('.').to_owned(),
            };
            for outside in
                [Some(numbers[0] - step), numbers.get(1).map(|max| max + step)].into_iter().flatten()
            {
                let error = mistakes(&text(outside));
                assert!(
                    error.contains(&format!("{name}: ")) && error.ends_with(range)
                        || error.contains("at least 1"),
                    "{error}"
                );
            }
            ranges += 1;
        }
    }
    assert_eq!(ranges, 21);
}
