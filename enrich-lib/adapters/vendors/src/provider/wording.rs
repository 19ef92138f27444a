//! Rewording of serde's messages for readers who do not know Rust.

/// Minimum Jaro similarity of a suggestion, from 0 to 1.
const ALIKE_MIN: f64 = 0.75;

/// Returns the known name that resembles `name` most, if one does.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.into_iter().map(|known| (strsim::jaro(name, known), known));
    let closest = alike.filter(|(alike, _)| *alike > ALIKE_MIN).max_by(|a, b| a.0.total_cmp(&b.0));
    closest.map(|(_, known)| known)
}

/// Returns the name in a "missing field" message.
pub(crate) fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// Returns the message without names of Rust types. A text in the place of another type is not quoted, as it
/// could be a secret.
pub(crate) fn plain(message: &str) -> String {
    unknown_setting(message)
        .or_else(|| unknown_value(message))
        .or_else(|| wrong_type(message))
        .or_else(|| wrong_value(message))
        .unwrap_or_else(|| message.to_owned())
}

fn unknown_setting(message: &str) -> Option<String> {
    let (name, known) = unknown(message, "unknown field `")?;
    Some(match nearest(name, known.iter().copied()) {
        Some(closest) => format!("unknown setting `{name}`; did you mean `{closest}`?"),
        None => format!("unknown setting `{name}`{}", expected(&known)),
    })
}

fn unknown_value(message: &str) -> Option<String> {
    let (value, known) = unknown(message, "unknown variant `")?;
    Some(format!("unknown value `{value}`{}", expected(&known)))
}

/// Splits an "unknown" message into the unknown name and the known names.
fn unknown<'a>(message: &'a str, prefix: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let (name, rest) = message.strip_prefix(prefix)?.split_once('`')?;
    Some((name, rest.split('`').skip(1).step_by(2).collect()))
}

fn expected(known: &[&str]) -> String {
    match known {
        [] => String::new(),
        [only] => format!("; expected `{only}`"),
        _ => format!("; expected one of `{}`", known.join("`, `")),
    }
}

fn wrong_type(message: &str) -> Option<String> {
    let (found, expected) = message.strip_prefix("invalid type: ")?.rsplit_once(", expected ")?;
    let kind = match expected {
        "f32" | "f64" => "a number",
        "a string" => "text",
        "path string" => "a path",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        integer if range(integer).is_some() => "a whole number",
        table if table.starts_with("struct ") => "a table",
        other => other,
    };
    Some(format!("expected {kind}, got {}", found_kind(found)))
}

fn wrong_value(message: &str) -> Option<String> {
    let (found, expected) = message.strip_prefix("invalid value: ")?.rsplit_once(", expected ")?;
    let kind = range(expected).map_or(expected.to_owned(), |range| format!("a whole number {range}"));
    Some(format!("expected {kind}, got {}", found_kind(found)))
}

fn found_kind(found: &str) -> String {
    let quoted = found.split('`').nth(1);
    match (found, quoted) {
        (text, _) if text.starts_with("string") => "text".to_owned(),
        (boolean, Some(value)) if boolean.starts_with("boolean") => value.to_owned(),
        (number, Some(value)) if number.starts_with("integer") || number.starts_with("floating") => {
            format!("the number {value}")
        }
        ("sequence", _) => "a list".to_owned(),
        ("map", _) => "a table".to_owned(),
        (other, _) => other.to_owned(),
    }
}

/// Returns the range of an integer type.
fn range(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "u8" => "from 0 to 255",
        "u16" => "from 0 to 65535",
        "u32" => "from 0 to 4294967295",
        "u64" | "usize" => "of at least 0",
        "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => "of at least 1",
        "i64" => "from -9223372036854775808 to 9223372036854775807",
        _ => return None,
    })
}
