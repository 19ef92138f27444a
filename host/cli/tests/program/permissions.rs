//! Commands of a user who may not read the files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::enrich::Enrich;

/// A user without permissions, on every system.
const NOBODY: u32 = 65_534;

/// Gives a directory and its files to [`NOBODY`].
fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path()));
    }
}

/// The files belong to the user, without permissions, because root could read all files of others.
#[test]
fn denied_permission_is_neither_damage_nor_absence() {
    let (enrich, _) = Enrich::with_ada(1, 500);
    let program = enrich.path("enrich");
    fs::copy(env!("CARGO_BIN_EXE_enrich"), &program).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        give(&enrich.path(""));
    }
    let serve = "serve --listen 127.0.0.1:0";
    for (denied, commands) in [
        ("data/people.key", &["people stats", "people opt-out eva@gmail.com", "check", serve][..]),
        ("data/accounts.db", &["workspace list", "check", serve]),
        ("data/people.db", &["people stats", "check"]),
        ("data", &["workspace list", "people stats", "check", serve, "serve --sample --listen 127.0.0.1:0"]),
    ] {
        let path = enrich.path(denied);
        let mode = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        for line in commands {
            let mut command =
                enrich.command_of(program.to_str().unwrap(), &line.split(' ').collect::<Vec<_>>());
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            let out = command.output().unwrap();
            let (code, text) = (out.status.code(), String::from_utf8(out.stderr).unwrap());
            let what = format!("{}", path.display());
            assert!(code == Some(1) && text.contains(&what), "{denied}, {line}: {text}");
            assert!(
                text.contains("Permission denied") && text.contains("has mode 0000;"),
                "{denied}, {line}: {text}"
            );
            assert!(!text.contains("backup") && !text.contains("no data"), "{denied}, {line}: {text}");
        }
        fs::set_permissions(&path, mode).unwrap();
    }
}
