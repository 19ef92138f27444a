//! Imports are idempotent, and the last row of a person wins.

use enrich_lib::model::ProfileUrl;
use enrich_sqlite::Imported;

use crate::people::{Town, parse};

#[test]
fn an_import_is_idempotent() {
    let rows = [("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.5)];
    let town = Town::new();
    assert_eq!(import(&town, &rows), Imported { changed: 2, unchanged: 0 });
    assert_eq!(import(&town, &rows), Imported { changed: 0, unchanged: 2 });
    assert_eq!(town.people.stats().unwrap().people, 2);
}

#[test]
fn a_row_that_differs_replaces_the_one_before() {
    let town = Town::new();
    import(&town, &[("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.5)]);
    let better = [("ada@posteo.net", "ada-m", 0.9), ("bob@posteo.net", "bob", 0.9)];
    assert_eq!(import(&town, &better), Imported { changed: 2, unchanged: 0 });
    assert_eq!(town.find("ada@posteo.net").as_deref(), Some("ada-m"));
    assert_eq!(town.find("bob@posteo.net").as_deref(), Some("bob"), "it is trusted now");
}

#[test]
fn the_last_row_of_a_person_counts() {
    let town = Town::new();
    import(
        &town,
        &[
            ("adamarlowe@gmail.com", "first", 0.9),
            ("bob@posteo.net", "bob", 0.9),
            ("ada.marlowe@gmail.com", "second", 0.95),
            ("Ada.Marlowe+x@googlemail.com", "last", 0.85),
        ],
    );
    assert_eq!(town.find("adamarlowe@gmail.com").as_deref(), Some("last"));
    assert_eq!(town.people.stats().unwrap().people, 2);
}

#[test]
fn the_last_row_counts_even_if_it_is_not_trusted() {
    let town = Town::new();
    import(&town, &[("ada@posteo.net", "ada", 0.9), ("ada@posteo.net", "ada", 0.1)]);
    assert_eq!(town.find("ada@posteo.net"), None);
}

#[test]
fn rows_of_people_who_opted_out_count_as_unchanged() {
    let town = Town::new();
    town.suppress("ada@posteo.net");
    let done = import(&town, &[("ada@posteo.net", "ada", 0.9), ("bob@posteo.net", "bob", 0.9)]);
    assert_eq!(done, Imported { changed: 1, unchanged: 1 });
}

#[test]
fn an_import_that_is_not_finished_leaves_nothing_of_its_last_batch() {
    let town = Town::new();
    let mut broken_off = town.people.import().unwrap();
    broken_off.add(&parse("ada@posteo.net"), &ProfileUrl::from_name("ada").unwrap(), 0.9).unwrap();
    drop(broken_off);
    assert_eq!(town.people.stats().unwrap().people, 0);
}

#[test]
fn a_confidence_that_is_none_is_refused() {
    let town = Town::new();
    for confidence in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let mut import = town.people.import().unwrap();
        import.add(&parse("ada@posteo.net"), &ProfileUrl::from_name("ada").unwrap(), confidence).unwrap();
        assert!(import.finish().is_err(), "{confidence}");
    }
    assert_eq!(town.people.stats().unwrap().people, 0);
}

#[test]
fn a_profile_comes_back_as_it_was_imported() {
    let town = Town::new();
    import(&town, &[("zoe@posteo.net", "zo%C3%AB-5", 0.9)]);
    assert_eq!(town.find("zoe@posteo.net").as_deref(), Some("zo%C3%AB-5"));
}

fn import(town: &Town, rows: &[(&str, &str, f64)]) -> Imported {
    let mut import = town.people.import().unwrap();
    for (email, profile, confidence) in rows {
        import.add(&parse(email), &ProfileUrl::from_name(profile).unwrap(), *confidence).unwrap();
    }
    let done = import.finish().unwrap();
    town.refresh();
    done
}
