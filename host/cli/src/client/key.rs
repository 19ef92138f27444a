//! The API key, from a flag, a file or the environment.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::args::AccessArgs;
use crate::failure::Failure;
use crate::path::is_dash;

/// The environment variable with the key, used if no flag sets it.
const VARIABLE: &str = "ENRICH_KEY";

/// A file of this size or larger is rejected.
const FILE_BYTES_MAX: usize = 4096;

/// Returns the value of an environment variable. An empty one counts as unset.
pub fn variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

/// Reads the key. Errors name its source and never quote it.
pub fn read(args: &AccessArgs) -> Result<String, Failure> {
    let (key, source) = match (&args.key, &args.key_file) {
        (Some(key), _) => (key.clone(), "--key".to_owned()),
        (None, Some(path)) => from_file(path)?,
        (None, None) => match variable(VARIABLE) {
            Some(key) => (key, VARIABLE.to_owned()),
            None => {
                return Err(Failure::usage("no API key is given")
                    .advise(format!("set {VARIABLE}, or use --key-file FILE")));
            }
        },
    };
    check(&key, &source)?;
    Ok(key)
}

/// Reads the value of a flag: a key, or `@FILE` for the key in a file.
pub fn of_flag(flag: &str, value: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(value) = value else { return Ok(None) };
    let (key, source) = match value.strip_prefix('@') {
        Some(path) => from_file(Path::new(path))?,
        None => (value.to_owned(), flag.to_owned()),
    };
    check(&key, &source)?;
    Ok(Some(key))
}

fn check(key: &str, source: &str) -> Result<(), Failure> {
    if key.is_empty() {
        return Err(Failure::usage(format!("{source} is empty; it must contain an API key")));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage(format!(
            "{source} does not contain an API key alone; remove spaces, line breaks and special characters"
        )));
    }
    Ok(())
}

/// Reads a file without its final line break. Returns the text and the file's name.
fn from_file(path: &Path) -> Result<(String, String), Failure> {
    let is_stdin = is_dash(path);
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = Vec::new();
    let limit = FILE_BYTES_MAX as u64;
    let read = if is_stdin {
        io::stdin().take(limit).read_to_end(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text))
    };
    read.map_err(|e| Failure::usage(format!("cannot read the API key from {name}: {e}")))?;
    if text.len() == FILE_BYTES_MAX {
        return Err(Failure::usage(format!("{name} is too long for an API key")));
    }
    let text = String::from_utf8_lossy(&text);
    let key = text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    Ok((key.to_owned(), name))
}
