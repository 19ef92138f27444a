//! Snapshots: another directory has the same people afterwards, or is unchanged.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::{Fetched, People};
use proptest::collection::btree_map;
use proptest::prelude::*;
use rusqlite::Connection;

use crate::people::{Directory, parse};
use crate::world::{Files, START, message};

fn publish(directory: &Directory, name: &str, seconds: u64) -> PathBuf {
    let path = directory.files.path(name);
    directory.people.publish(&path, START + Duration::from_secs(seconds)).unwrap();
    path
}

fn fetch(directory: &Directory, path: &Path) -> Fetched {
    let fetched = directory.people.fetch(path).unwrap();
    directory.refresh();
    fetched
}

#[test]
fn fetch_adds_changes_and_removes_people() {
    let [from, to] = [Directory::new(), Directory::new()];
    for (email, profile, confidence) in [("ada", "ada", 0.9), ("bob", "bob", 0.9), ("eve", "eve", 0.5)] {
        from.import(&format!("{email}@posteo.net"), profile, confidence);
    }
    for (email, profile) in [("bob", "robert"), ("eve", "eve"), ("ian", "ian")] {
        to.import(&format!("{email}@posteo.net"), profile, 0.9);
    }
    let snapshot = publish(&from, "people.snapshot", 0);
    assert_eq!(fetch(&to, &snapshot), Fetched { people: 3, changed: 3, removed: 1 });
    for name in ["ada", "bob", "eve", "ian"] {
        let email = format!("{name}@posteo.net");
        assert_eq!(to.find(&email), from.find(&email), "{name}");
    }
    assert_eq!(to.people.stats().unwrap(), from.people.stats().unwrap());
    assert_eq!(fetch(&to, &snapshot), Fetched { people: 3, changed: 0, removed: 0 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn directories_are_equal_after_fetch(
        people in btree_map(0..40_u8, any::<u8>(), 0..40),
        before in btree_map(0..40_u8, any::<u8>(), 0..40),
    ) {
        let [from, to] = [(&people, Directory::new()), (&before, Directory::new())].map(|(people, directory)| {
            let mut import = directory.people.import().unwrap();
            for (person, profile) in people {
                let profile = ProfileUrl::from_name(&format!("p-{profile}")).unwrap();
                import.add(&parse(&format!("p{person}@posteo.net")), &profile, 1.0).unwrap();
            }
            import.finish().unwrap();
            directory.refresh();
            directory
        });
        fetch(&to, &publish(&from, "people.snapshot", 0));
        for person in 0..40 {
            let email = format!("p{person}@posteo.net");
            prop_assert_eq!(to.find(&email), from.find(&email));
        }
    }
}

#[test]
fn fetch_does_not_restore_opted_out_person() {
    let [from, to] = [Directory::new(), Directory::new()];
    from.import("ada@posteo.net", "ada", 0.9);
    from.import("bob@posteo.net", "bob", 0.9);
    to.opt_out("ada@posteo.net");
    assert_eq!(fetch(&to, &publish(&from, "people.snapshot", 0)).changed, 1);
    assert_eq!((to.find("ada@posteo.net"), to.find("bob@posteo.net").as_deref()), (None, Some("bob")));
    assert_eq!(to.people.stats().unwrap().people, 1);
    assert!(to.has_opted_out("ada@posteo.net"), "opt-outs stay");
}

#[test]
fn snapshot_is_one_private_file_without_key() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "ada", 0.9);
    directory.opt_out("bob@posteo.net");
    let snapshot = publish(&directory, "people.snapshot", 0);
    publish(&directory, "people.snapshot", 1); // replaces it
    let content = fs::read(&snapshot).unwrap();
    assert!(
        !content.windows(16).any(|bytes| bytes == [7; 16]) && !content.windows(6).any(|b| b == b"posteo")
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&snapshot).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let names = fs::read_dir(snapshot.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.filter(|name| name.to_string_lossy().contains("snapshot")).collect();
    assert_eq!(names, ["people.snapshot"]);
}

#[test]
fn publish_replaces_only_snapshots() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "ada", 0.9);
    let snapshot = publish(&directory, "people.snapshot", 0);
    let [text, empty, link] = ["text", "empty", "link"].map(|name| directory.files.path(name));
    fs::write(&text, "precious").unwrap();
    fs::write(&empty, "").unwrap();
    std::os::unix::fs::symlink(&snapshot, &link).unwrap();
    let folder = directory.files.path("");
    let database = directory.files.path("people.db");
    for path in [&text, &empty, &link, &folder, &database] {
        let before = fs::read(path).ok();
        let refused = message(directory.people.publish(path, START));
        assert!(refused.contains("exists and is not a snapshot"), "{}: {refused}", path.display());
        assert_eq!(fs::read(path).ok(), before);
    }
    assert!(link.is_symlink());
    publish(&directory, "people.snapshot", 1);
}

#[test]
fn refused_snapshot_changes_nothing() {
    let [from, to] = [Directory::new(), Directory::new()];
    from.import("ada@posteo.net", "ada-marlowe", 0.9);
    to.import("bob@posteo.net", "bob", 0.9);
    let old = publish(&from, "old.snapshot", 0);
    let new = publish(&from, "new.snapshot", 1);
    let [damaged, cut, text, empty] =
        ["damaged", "cut", "text", "empty"].map(|name| from.files.path(&format!("{name}.snapshot")));
    let content = fs::read(&new).unwrap();
    let at = content.windows(11).position(|bytes| bytes == b"ada-marlowe").unwrap();
    let mut changed = content.clone();
    changed[at] = b'b';
    fs::write(&damaged, changed).unwrap();
    fs::write(&cut, &content[..content.len() - 4096]).unwrap();
    fs::write(&text, "email,linkedin_url\n".repeat(100)).unwrap();
    fs::write(&empty, "").unwrap();
    let files = Files::new();
    let stranger = People::open(&files.dir, People::CONFIDENCE_MIN, [8; 16]).unwrap();

    for (people, path, expected) in [
        (&to.people, &damaged, "is damaged; publish or copy it again"),
        (&to.people, &cut, "is damaged; publish or copy it again"),
        (&to.people, &text, "is not a snapshot"),
        (&to.people, &empty, "is not a snapshot"),
        (&to.people, &from.files.path("people.db"), "is not a snapshot"),
        (&to.people, &from.files.path(""), "is not a snapshot"),
        (&to.people, &from.files.path("missing"), "cannot use"),
        (&stranger, &new, "was published with another people.key"),
    ] {
        let refused = message(people.fetch(path));
        assert!(refused.contains(expected), "{}: {refused}", path.display());
    }
    to.refresh();
    assert_eq!(to.find("bob@posteo.net").as_deref(), Some("bob"));

    fetch(&to, &new);
    for directory in [&from, &to] {
        let refused = message(directory.people.fetch(&old));
        assert!(refused.contains("is older than the last snapshot"), "{refused}");
    }
    // The next snapshot is newer, also if the clock went back.
    fetch(&to, &publish(&from, "next.snapshot", 0));
}

#[test]
fn fetch_is_one_commit() {
    let [from, to] = [Directory::new(), Directory::new()];
    from.import("ada@posteo.net", "ada", 0.9);
    to.import("bob@posteo.net", "bob", 0.9);
    let snapshot = publish(&from, "people.snapshot", 0);
    let db = Connection::open(to.files.path("people.db")).unwrap();
    db.execute_batch(
        "CREATE TRIGGER fails BEFORE INSERT ON newest_snapshot BEGIN SELECT raise(ABORT, 'no'); END",
    )
    .unwrap();
    to.people.fetch(&snapshot).unwrap_err();
    to.refresh();
    assert_eq!((to.find("ada@posteo.net"), to.find("bob@posteo.net").as_deref()), (None, Some("bob")));
}
