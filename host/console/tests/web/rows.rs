//! The rows of all tables, and what a request changed in them.

use std::collections::{BTreeMap, BTreeSet};

use enrich_lib::model::Timestamp;
use enrich_sqlite::DataDir;
use rusqlite::Connection;
use rusqlite::types::Value;

type Row = BTreeMap<String, Value>;

/// All rows by table and key. The table of a workspace other than `shop` begins with its name.
#[derive(PartialEq)]
pub struct Rows(BTreeMap<(String, String), Row>);

/// Columns without a meaning of their own, and the last use of a session.
const HIDDEN: [&str; 9] =
    ["rowid", "id", "workspace", "revised", "last_seen_at", "user_agent", "address", "masked", "digest"];

impl Rows {
    pub fn read(dir: &DataDir) -> Self {
        let db = Connection::open(dir.path().join("accounts.db")).unwrap();
        let names = |select| -> BTreeMap<i64, String> {
            let mut select = db.prepare(select).unwrap();
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
            rows.map(Result::unwrap).collect()
        };
        let (workspaces, emails, members) = (
            names("SELECT rowid, id FROM workspace"),
            names("SELECT rowid, email FROM member"),
            names("SELECT m.rowid, w.id FROM member m JOIN workspace w ON w.rowid = m.workspace"),
        );
        let tables =
            names("SELECT rowid, name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
        let mut all = BTreeMap::new();
        for table in tables.values() {
            let mut select = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns: Vec<_> = select.column_names().map(str::to_owned).collect();
            let mut rows = select.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                let cells = columns.iter().map(|name| (name.clone(), row.get_unwrap(name.as_str())));
                let mut row: Row = cells.collect();
                let mut owner = match row.get("workspace") {
                    Some(Value::Integer(id)) => workspaces.get(id),
                    _ => None,
                };
                // A session keeps its user and the date of its creation when its token is renewed.
                let mut key = format!("{:?}", row[&columns[0]]);
                if let Some(Value::Integer(id)) = row.get("member").cloned() {
                    owner = members.get(&id);
                    key = format!("{id} {:?}", row.get("created_at").unwrap_or(&row["digest"]));
                    row.insert("member".to_owned(), Value::Text(emails[&id].clone()));
                }
                if table == "usage_day" {
                    key = format!("{row:?}");
                }
                let other = owner.filter(|owner| *owner != "shop");
                let table = other.map_or(table.clone(), |owner| format!("{owner}/{table}"));
                all.insert((table, key), row);
            }
        }
        Self(all)
    }

    /// Returns what was changed since `before`, such as `+api_key(ada crm), ada key.created key (crm)`: the
    /// rows with their visible columns, and then the events. Times are relative to `now`.
    pub fn since(&self, before: &Self, now: Timestamp) -> String {
        let now = i64::try_from(now.unix_ms()).unwrap();
        let (mut changes, mut events, mut revised) = (Vec::new(), Vec::new(), BTreeSet::new());
        let keys: BTreeSet<_> = self.0.keys().chain(before.0.keys()).collect();
        for key @ (table, _) in keys {
            match (before.0.get(key), self.0.get(key)) {
                (None, Some(event)) if table.ends_with("audit_event") => {
                    let is_now = event["at"] == Value::Integer(now);
                    let is_here = event["address"] == Value::Text("192.0.2.1".to_owned());
                    assert!(is_now && is_here, "{event:?}");
                    let of = table.strip_suffix("audit_event").unwrap();
                    let [actor, action, subject] =
                        ["actor", "action", "subject"].map(|name| text(&event[name], None));
                    events.push(format!("{of}{actor} {action} {subject}"));
                    assert!(revised.len() <= 2);
                }
                (None, Some(row)) => changes.push(format!("+{table}({})", shown(row, Some(now)))),
                (Some(row), None) => changes.push(format!("-{table}({})", shown(row, None))),
                (Some(old), Some(row)) => {
                    if old.get("revised") != row.get("revised") {
                        revised.insert(text(&row["id"], None));
                    }
                    let name = ["email", "label", "member"].iter().find_map(|name| row.get(*name));
                    let name = name.map_or(String::new(), |name| format!("({})", text(name, None)));
                    for (column, value) in row.iter().filter(|(column, value)| old[*column] != **value) {
                        match value {
                            _ if HIDDEN[..7].contains(&column.as_str()) => {}
                            Value::Blob(_) => changes.push(format!("{table}{name}.{column}")),
                            _ if column == "password_hash" || column == "totp_last_step" => {
                                changes.push(format!("{table}{name}.{column}"));
                            }
                            value => changes.push(format!(
                                "{table}{name}.{column}={}",
                                text(value, is_time(column).then_some(now))
                            )),
                        }
                    }
                }
                (None, None) => {}
            }
        }
        // Other nodes read a workspace again when its revision has changed.
        for event in &events {
            let workspace = event.split_once('/').map_or("shop", |(workspace, _)| workspace);
            assert!(revised.contains(workspace), "{event} without a revision");
        }
        changes.sort();
        let mut counted: Vec<(String, usize)> = Vec::new();
        for change in changes.into_iter().chain(events) {
            match counted.iter_mut().find(|(same, _)| *same == change) {
                Some((_, count)) => *count += 1,
                None => counted.push((change, 1)),
            }
        }
        let texts = counted.into_iter().map(|(change, count)| match count {
            1 => change,
            _ => format!("{count} {change}"),
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the visible values of a row: with `now`, also times other than `now`.
fn shown(row: &Row, now: Option<i64>) -> String {
    let is_shown = |column: &str, value: &Value| match value {
        Value::Null | Value::Integer(0) | Value::Blob(_) => false,
        Value::Integer(at) if is_time(column) => now.is_some_and(|now| now != *at),
        _ => !HIDDEN.contains(&column) && column != "password_hash",
    };
    let values = row.iter().filter(|(column, value)| is_shown(column, value));
    let values = values.map(|(column, value)| match is_time(column) {
        true => format!("{column}={}", text(value, now)),
        false => text(value, None),
    });
    values.collect::<Vec<_>>().join(" ")
}

fn is_time(column: &str) -> bool {
    column.ends_with("_at") || column == "at"
}

/// Returns a value without what differs between two runs: `now` makes it a number of seconds.
fn text(value: &Value, now: Option<i64>) -> String {
    match (value, now) {
        (Value::Integer(at), Some(now)) if *at == now => "now".to_owned(),
        (Value::Integer(at), Some(now)) => format!("{:+}s", (at - now) / 1_000),
        (Value::Integer(number), None) => number.to_string(),
        (Value::Text(text), _) => {
            let text = text.replace("@example.com", "");
            let mut parts = text.split("key_");
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| format!("{text}key{}", &part[8..]))
        }
        (Value::Null, _) => "null".to_owned(),
        (value, _) => format!("{value:?}"),
    }
}
