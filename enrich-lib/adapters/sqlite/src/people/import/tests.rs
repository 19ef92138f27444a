//! Random imports, compared with a model.

use std::collections::BTreeMap;

use enrich_lib::model::Timestamp;
use enrich_store::PeopleStats;
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::{DataDir, People};

/// So small that the rows of one person are in several chunks and batches.
const LIMITS: Limits =
    Limits { first_chunk_rows: 7, chunk_rows_max: 100, chunk_name_bytes_max: 500, batch_rows: 5 };

const PEOPLE: u32 = 200;

/// Returns one of the spellings of the address of a person.
fn email(person: u32, spelling: u8) -> Email {
    let address = match spelling {
        0 => format!("ada{person}@gmail.com"),
        1 => format!("a.d.a{person}@googlemail.com"),
        2 => format!("Ada{person}+news@Gmail.com"),
        _ => format!("ADA{person}@GMAIL.COM"),
    };
    Email::parse(&address).unwrap()
}

fn limit() -> impl Strategy<Value = RemovalLimit> {
    prop_oneof![(0..100_u64).prop_map(RemovalLimit::People), (0..=100_u8).prop_map(RemovalLimit::Percent)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn last_row_of_each_person_wins_unless_the_person_opted_out(
        imports in vec((option::of(limit()), vec((0..PEOPLE, 0..4_u8, 0..9_u8, 0..=10_u8), 0..2_000)), 1..4),
        opted_out in btree_set(0..PEOPLE, 0..20),
    ) {
        let tmp = TempDir::new().unwrap();
        let dir = DataDir::create(tmp.path()).unwrap();
        let people = People::open(&dir, People::CONFIDENCE_MIN, [7; 16]).unwrap();
        let emails: Vec<_> = opted_out.iter().map(|person| email(*person, 2)).collect();
        people.opt_out(&emails, Timestamp::from_unix_ms(0)).unwrap();
        let mut expected = BTreeMap::new();
        for (limit, rows) in imports {
            let mut import = people.start_import(LIMITS, limit).unwrap();
            let before: BTreeMap<_, _> = std::mem::take(&mut expected);
            let mut different = 0;
            for (person, spelling, profile, tenths) in &rows {
                let profile = ProfileUrl::from_name(&format!("p-{profile}")).unwrap();
                let confidence = f64::from(*tenths) / 10.0;
                import.add(&email(*person, *spelling), &profile, confidence).unwrap();
                if !opted_out.contains(person) {
                    let row = (profile, confidence);
                    let last = expected.get(person).or(before.get(person));
                    different += u64::from(last != Some(&row));
                    expected.insert(*person, row);
                }
            }
            let Imported { changed, unchanged, removed, refused } = import.finish().unwrap();
            prop_assert_eq!((changed, unchanged), (different, rows.len() as u64 - different));
            let others = before.keys().filter(|person| !expected.contains_key(person)).count() as u64;
            let of = before.len() as u64;
            let are_allowed = match limit {
                Some(RemovalLimit::People(max)) => others <= max,
                Some(RemovalLimit::Percent(max)) => others as f64 / of.max(1) as f64 <= f64::from(max) / 100.0,
                _ => false,
            };
            let is_refused = limit.is_some() && !are_allowed;
            prop_assert_eq!(refused, is_refused.then_some(RefusedRemoval { people: others, of }));
            prop_assert_eq!(removed, if are_allowed { others } else { 0 });
            if !are_allowed {
                let after = std::mem::replace(&mut expected, before);
                expected.extend(after);
            }
        }
        people.refresh().unwrap();
        let untrusted = expected.values().filter(|(_, confidence)| *confidence < People::CONFIDENCE_MIN).count();
        let [count, untrusted, opt_outs] = [expected.len(), untrusted, opted_out.len()].map(|n| n as u64);
        prop_assert_eq!(people.stats().unwrap(), PeopleStats { people: count, untrusted, opt_outs });
        for person in 0..PEOPLE {
            let row = expected.get(&person).filter(|(_, confidence)| *confidence >= People::CONFIDENCE_MIN);
            let profile = row.map(|(profile, _)| profile.clone());
            prop_assert_eq!(people.get(&email(person, 1)).unwrap(), profile, "{}", person);
        }
    }
}
