//! Opt-outs hide all addresses that may reach the person: compared with a model that knows them by
//! construction.

use std::collections::{BTreeMap, BTreeSet};

use enrich_store::PeopleStats;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::people::Directory;

/// The mailboxes of each person, with the spellings of each.
const PEOPLE: [&[&[&str]]; 4] = [
    &[
        &["bea@company.com", "Bea@Company.com"],
        &["bea+news@company.com", "BEA+News@company.com"],
        &["bea+shop@company.com"],
    ],
    &[&["ada.m@proton.me", "Ada.M+x@proton.me"], &["adam@protonmail.com"], &["ada_m@pm.me"]],
    &[&["eve.m@icloud.com", "eve.m+x@icloud.com"], &["Eve.M@me.com"]],
    &[&["eve.m@company.com"], &["eve.m+x@company.com"]],
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Import,
    OptOut,
    Withdraw,
    /// An import of one mailbox replaces all people.
    Replace,
    Reopen,
}

fn step() -> impl Strategy<Value = (Step, usize, usize, usize)> {
    use Step::*;
    let step = prop_oneof![4 => Just(Import), 2 => Just(OptOut), 1 => Just(Withdraw), 1 => Just(Replace), 1 => Just(Reopen)];
    (step, 0..PEOPLE.len(), any::<usize>(), any::<usize>())
}

/// A mailbox: the number of its person, and its own.
type Mailbox = (usize, usize);

#[derive(Default)]
struct Model {
    records: BTreeMap<Mailbox, String>,
    opted_out: BTreeSet<usize>,
}

impl Model {
    fn opt_out(&mut self, person: usize) {
        self.opted_out.insert(person);
        self.records.retain(|(owner, _), _| *owner != person);
    }

    fn check(&self, directory: &Directory) -> Result<(), TestCaseError> {
        directory.refresh();
        for (person, mailboxes) in PEOPLE.iter().enumerate() {
            for (mailbox, spellings) in mailboxes.iter().enumerate() {
                for email in *spellings {
                    let expected = self.records.get(&(person, mailbox)).cloned();
                    prop_assert_eq!(directory.find(email), expected, "{}", email);
                    prop_assert_eq!(
                        directory.has_opted_out(email),
                        self.opted_out.contains(&person),
                        "{}",
                        email
                    );
                }
            }
        }
        let PeopleStats { people, opt_outs, .. } = directory.people.stats().unwrap();
        prop_assert_eq!(people, self.records.len() as u64, "no record of a person who opted out is left");
        prop_assert_eq!(opt_outs, self.opted_out.len() as u64);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn opt_outs_apply_to_all_addresses_of_a_person(steps in vec(step(), 1..16)) {
        let (mut directory, mut model) = (Directory::new(), Model::default());
        for (at, (step, person, mailbox, spelling)) in steps.into_iter().enumerate() {
            let mailbox = mailbox % PEOPLE[person].len();
            let spellings = PEOPLE[person][mailbox];
            let (email, name) = (spellings[spelling % spellings.len()], format!("name-{at}"));
            match step {
                Step::Import => {
                    directory.import(email, &name, 1.0);
                    if !model.opted_out.contains(&person) {
                        model.records.insert((person, mailbox), name);
                    }
                }
                Step::Reopen => directory = Directory::over(directory.files),
                Step::OptOut => {
                    directory.opt_out(email);
                    model.opt_out(person);
                }
                Step::Withdraw => {
                    let expected = u64::from(model.opted_out.remove(&person));
                    prop_assert_eq!(directory.withdraw(email), expected);
                }
                Step::Replace => {
                    directory.replace(email, &name);
                    model.records.clear();
                    if !model.opted_out.contains(&person) {
                        model.records.insert((person, mailbox), name);
                    }
                }
            }
            model.check(&directory)?;
        }
    }
}
