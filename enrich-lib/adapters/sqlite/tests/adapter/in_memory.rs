//! The directory in memory and the directory on disk give the same answers after any sequence of changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::People;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::people::{Directory, find, open, parse};
use crate::world::START;

#[derive(Clone, Debug)]
enum Step {
    /// Rows with a person, a profile and a confidence.
    Import(Vec<(u8, u8, f64)>),
    OptOut(u8),
    Withdraw(u8),
    Refresh,
    /// Loads the whole directory into memory again.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let confidence = prop_oneof![Just(1.0), Just(People::CONFIDENCE_MIN), Just(0.799), Just(0.0), 0.0..=1.0];
    let step = prop_oneof![
        4 => vec((0..20_u8, any::<u8>(), confidence), 0..12).prop_map(Step::Import),
        1 => (0..20_u8).prop_map(Step::OptOut),
        1 => (0..20_u8).prop_map(Step::Withdraw),
        2 => Just(Step::Refresh),
        1 => Just(Step::Reopen),
    ];
    vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_disk_return_same_results(steps in steps()) {
        let mut directory = Directory::new();
        for step in steps {
            match step {
                Step::Import(rows) => {
                    let mut import = directory.people.import().unwrap();
                    for (person, profile, confidence) in rows {
                        import.add(&parse(&email(person)), &name(profile), confidence).unwrap();
                    }
                    import.finish().unwrap();
                }
                Step::OptOut(person) => {
                    directory.people.suppress(&[parse(&email(person))], START).unwrap();
                }
                Step::Withdraw(person) => {
                    directory.people.unsuppress(&[parse(&email(person))], START).unwrap();
                }
                Step::Refresh => {}
                Step::Reopen => directory.in_memory = open(&directory.files).in_memory().unwrap(),
            }
            directory.refresh();
            for person in 0..20 {
                let is_suppressed = directory.is_suppressed(&email(person));
                assert!(!(is_suppressed && directory.find(&email(person)).is_some()));
            }
        }
    }
}

#[test]
fn finds_all_people_of_large_import() {
    let directory = Directory::new();
    let mut import = directory.people.import().unwrap();
    for n in 0..3_000 {
        let name = ProfileUrl::from_name(&format!("p-{n}")).unwrap();
        import.add(&parse(&format!("p{n}@posteo.net")), &name, 1.0).unwrap();
    }
    assert_eq!(import.finish().unwrap().changed, 3_000);
    directory.refresh();
    for n in 0..3_000 {
        assert_eq!(directory.find(&format!("p{n}@posteo.net")), Some(format!("p-{n}")));
    }
}

#[test]
fn lookup_during_refresh_returns_old_or_new_profile() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "p-0", 1.0);
    directory.import("gone@posteo.net", "gone", 1.0);
    directory.suppress("gone@posteo.net");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut last, mut count) = (0, 0_u64);
            while !is_over.load(Ordering::Relaxed) || count == 0 {
                let found = find(&directory.in_memory, "ada@posteo.net").expect("she is always there");
                let profile: u32 = found.strip_prefix("p-").unwrap().parse().unwrap();
                assert!(profile >= last, "{profile} after {last}");
                assert_eq!(find(&directory.in_memory, "gone@posteo.net"), None);
                (last, count) = (profile, count + 1);
            }
        });
        for n in 1..50 {
            directory.import("ada@posteo.net", &format!("p-{n}"), 1.0);
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(directory.find("ada@posteo.net").as_deref(), Some("p-49"));
}

#[test]
fn changes_become_visible_with_refresh() {
    let directory = Directory::new();
    directory.import("ada@posteo.net", "ada", 1.0);
    let mut import = directory.people.import().unwrap();
    import.add(&parse("ada@posteo.net"), &name(7), 1.0).unwrap();
    import.finish().unwrap();
    assert_eq!(find(&directory.in_memory, "ada@posteo.net").as_deref(), Some("ada"));
    directory.refresh();
    assert_eq!(directory.find("ada@posteo.net").as_deref(), Some("p-7"));
}

fn email(person: u8) -> String {
    format!("person-{person}@posteo.net")
}

fn name(profile: u8) -> ProfileUrl {
    ProfileUrl::from_name(&format!("p-{profile}")).unwrap()
}
