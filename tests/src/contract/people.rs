//! Random imports, opt-outs and withdrawals of a store with people: after each one, what lookups find and all
//! counts are those of a model, which knows by construction which addresses reach one person.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_store::{Imported, PeopleStats, RefusedRemoval, RemovalLimit};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Builder;

/// The mailboxes of the first people, with the spellings of each. The others have one mailbox each.
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

/// The minimum confidence of a trusted match, which the store must have.
pub const CONFIDENCE_MIN: f64 = 0.8;

/// A row of an import.
pub type Row = (Email, ProfileUrl, f64);

/// The end of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Finished,
    /// When the rows are written, it is decided to keep the other people.
    KeepsOthers,
    Dropped,
}

/// A store with people, its operator and its nodes. Changes are visible when a call returns.
#[async_trait]
pub trait PeopleStore: Sized {
    /// Imports rows. With `removal`, they replace all people.
    async fn import(&mut self, rows: &[Row], removal: Option<RemovalLimit>, end: End) -> Imported;
    /// Opts people out, or withdraws their opt-outs. Returns how many people that changes.
    async fn change(&mut self, emails: &[Email], is_withdrawn: bool) -> u64;
    /// Returns what a lookup finds, and whether vendors must not receive the address.
    async fn find(&self, email: &Email) -> (Option<ProfileUrl>, bool);
    /// Returns the counts.
    async fn stats(&mut self) -> PeopleStats;
    /// Opens the store again.
    async fn reopen(self) -> Self;
}

/// A person, one of the person's mailboxes, and its spelling.
type Address = (usize, usize, usize);

fn email((person, mailbox, spelling): Address) -> Email {
    match PEOPLE.get(person) {
        Some(mailboxes) => {
            let spellings = mailboxes[mailbox % mailboxes.len()];
            Email::parse(spellings[spelling % spellings.len()]).unwrap()
        }
        None => Email::parse(&format!("p{person}@posteo.net")).unwrap(),
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Imports the addresses, with the number of a profile and tenths of confidence, around this number of others.
    Import(Vec<(Address, u8, u8)>, usize, Option<RemovalLimit>, End),
    DropImport(Address),
    /// Changes the addresses, and this number of others before them.
    Change(Vec<Address>, usize, bool),
    Reopen,
}

fn step(others_max: usize) -> impl Strategy<Value = Step> {
    let address = || (0..PEOPLE.len() + 3, 0..6_usize, 0..6_usize);
    let row = (address(), 0..3_u8, 0..=10_u8);
    let others = prop_oneof![4 => Just(0), 2 => 1..9_usize, 2 => others_max - 9..=others_max];
    let people = (0..9_u64).prop_map(RemovalLimit::People);
    let all = Just(RemovalLimit::Percent(100));
    let limit = prop_oneof![people, (0..=100_u8).prop_map(RemovalLimit::Percent), all];
    // Many rows are sorted by another algorithm than few.
    let rows = prop_oneof![3 => vec(row.clone(), 0..8), 1 => vec(row, 60..90)];
    let end = prop_oneof![4 => Just(End::Finished), 1 => Just(End::KeepsOthers)];
    // With more than a batch of changes.
    let changed = prop_oneof![4 => Just(0), 1 => 1_001..1_100_usize];
    let change = (vec(address(), 1..4), changed, any::<bool>());
    let import = (rows, others, option::of(limit), end);
    prop_oneof![
        4 => import.prop_map(|(rows, others, limit, end)| Step::Import(rows, others, limit, end)),
        1 => address().prop_map(Step::DropImport),
        3 => change.prop_map(|(addresses, others, is_withdrawn)| Step::Change(addresses, others, is_withdrawn)),
        1 => Just(Step::Reopen),
    ]
}

/// A mailbox: the number of its person, and its own.
type Mailbox = (usize, usize);

fn mailbox((person, mailbox, _): Address) -> Mailbox {
    (person, PEOPLE.get(person).map_or(0, |mailboxes| mailbox % mailboxes.len()))
}

#[derive(Default)]
struct Model {
    /// The profile of each mailbox, and its confidence in tenths.
    records: BTreeMap<Mailbox, (u8, u8)>,
    opted_out: BTreeSet<usize>,
}

impl Model {
    /// Imports rows. Returns the result, with the most rows that may count as changed, and the fewest: a store may
    /// count a mailbox for each of its rows, or once.
    fn import(
        &mut self,
        rows: &[(Address, u8, u8)],
        limit: Option<RemovalLimit>,
        end: End,
    ) -> (Imported, u64) {
        let before = self.records.clone();
        let mut done = Imported::default();
        for &(address, profile, tenths) in
            rows.iter().filter(|(address, ..)| !self.opted_out.contains(&address.0))
        {
            let row = (profile, tenths);
            done.changed += u64::from(self.records.insert(mailbox(address), row) != Some(row));
        }
        let once =
            self.records.iter().filter(|(mailbox, row)| before.get(mailbox) != Some(row)).count() as u64;
        let imported: BTreeSet<_> = rows.iter().map(|(address, ..)| mailbox(*address)).collect();
        if let Some(limit) = limit {
            let (of, people) = (
                before.len() as u64,
                before.keys().filter(|mailbox| !imported.contains(mailbox)).count() as u64,
            );
            let is_allowed = match limit {
                RemovalLimit::People(max) => people <= max,
                RemovalLimit::Percent(max) => people * 100 <= of * u64::from(max),
                limit => panic!("{limit:?}"),
            };
            if !is_allowed {
                self.records = before;
                let refused = Some(RefusedRemoval { people, of });
                return (Imported { refused, ..Imported::default() }, 0);
            }
            if end == End::Finished {
                self.records.retain(|mailbox, _| imported.contains(mailbox));
                done.removed = people;
            }
        }
        (done, once)
    }

    fn change(&mut self, addresses: &[Address], is_withdrawn: bool) -> u64 {
        let before = self.opted_out.len();
        for (person, ..) in addresses {
            if is_withdrawn {
                self.opted_out.remove(person);
            } else {
                self.opted_out.insert(*person);
            }
        }
        self.records.retain(|(owner, _), _| !self.opted_out.contains(owner));
        self.opted_out.len().abs_diff(before) as u64
    }

    async fn check(&self, store: &mut impl PeopleStore, others_max: usize) -> Result<(), TestCaseError> {
        for person in (0..PEOPLE.len() + 3).chain([PEOPLE.len() + others_max - 1]) {
            for address in (0..3).flat_map(|mailbox| [(person, mailbox, 0), (person, mailbox, 1)]) {
                let trusted = self.records.get(&mailbox(address)).filter(|(_, tenths)| *tenths >= 8);
                let expected =
                    (trusted.map(|(number, _)| profile(*number)), self.opted_out.contains(&person));
                prop_assert_eq!(store.find(&email(address)).await, expected, "{:?}", address);
            }
        }
        let untrusted = self.records.values().filter(|(_, tenths)| *tenths < 8).count();
        let [people, untrusted, opt_outs] =
            [self.records.len(), untrusted, self.opted_out.len()].map(|count| count as u64);
        prop_assert_eq!(store.stats().await, PeopleStats { people, untrusted, opt_outs });
        Ok(())
    }
}

fn profile(number: u8) -> ProfileUrl {
    ProfileUrl::from_name(&format!("profile-{number}")).unwrap()
}

fn row(&(address, number, tenths): &(Address, u8, u8)) -> Row {
    (email(address), profile(number), f64::from(tenths) / 10.0)
}

/// Runs random sequences of steps on new stores, with imports of up to `others_max` people: several times as many
/// as a batch of the store has. The variable `STORE_MACHINE_CASES` replaces the number of `cases`.
///
/// Panics with the shortest sequence after which the store differs from the model.
pub fn compare<S: PeopleStore>(cases: u32, others_max: usize, open: impl AsyncFn() -> S) {
    let cases = enrich_contract::cases(cases);
    let config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 40, cases, ..Default::default() };
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let compared = TestRunner::new(config).run(&vec(step(others_max), 1..16), |steps| {
        runtime.block_on(async {
            let (mut store, mut model) = (open().await, Model::default());
            for step in steps {
                store = take(store, &mut model, step).await?;
                model.check(&mut store, others_max).await?;
            }
            Ok(())
        })
    });
    if let Err(difference) = compared {
        panic!("the store differs from the model: {difference}");
    }
}

async fn take<S: PeopleStore>(mut store: S, model: &mut Model, step: Step) -> Result<S, TestCaseError> {
    match step {
        Step::Import(mut rows, others, limit, end) => {
            let (profile, tenths) = ((others % 3) as u8, 10 - (others % 4) as u8);
            let others =
                (PEOPLE.len()..PEOPLE.len() + others).map(|person| ((person, 0, 0), profile, tenths));
            // In different batches, if a mailbox occurs twice.
            let last = rows.split_off(rows.len() / 2);
            rows.extend(others.chain(last));
            let done = store.import(&rows.iter().map(row).collect::<Vec<_>>(), limit, end).await;
            let (expected, once) = model.import(&rows, limit, end);
            let changed = once..=expected.changed;
            prop_assert!(changed.contains(&done.changed), "{:?} instead of {:?}", done, changed);
            let stored = if expected.refused.is_some() { 0 } else { rows.len() as u64 };
            prop_assert_eq!(done.changed + done.unchanged, stored);
            prop_assert_eq!((done.removed, done.refused), (expected.removed, expected.refused));
        }
        Step::DropImport(address) => {
            store.import(&[row(&(address, 2, 10))], None, End::Dropped).await;
        }
        Step::Change(addresses, others, is_withdrawn) => {
            let others = (PEOPLE.len()..PEOPLE.len() + others).map(|person| (person, 0, 0));
            let addresses: Vec<_> = others.chain(addresses).collect();
            let emails: Vec<_> = addresses.iter().copied().map(email).collect();
            let expected = model.change(&addresses, is_withdrawn);
            prop_assert_eq!(store.change(&emails, is_withdrawn).await, expected);
        }
        Step::Reopen => return Ok(store.reopen().await),
    }
    Ok(store)
}
