//! The pieces of a lookup, for separate measurement.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use enrich_host::{Arrivals, SystemArrivals};
use enrich_lib::body;
use enrich_lib::credit::{Account, Hold};
use enrich_lib::email::{Email, EmailPolicy};
use enrich_lib::key::{KeyDigest, KeyId};
use enrich_lib::lookup::{Outcome, Reply};
use enrich_lib::memory::WindowTable;
use enrich_lib::model::{Arrival, LookupId, ProfileUrl, Timestamp};
use enrich_lib::observe::{Durations, Ending, LookupEvent, Observer};
use enrich_lib::ports::Windows;
use enrich_lib::refusal::Refusal;
use enrich_lib::window::{Quota, Workspace};
use enrich_lib::wire;
use enrich_metrics::LookupMetrics;
use enrich_sqlite::{DataDir, People};
use futures_util::FutureExt;
use strum::{IntoStaticStr, VariantArray};
use tempfile::TempDir;

use crate::dataset;
use crate::memory::CREDITS;

/// Number of people in the directory.
const PEOPLE: usize = 1_000;

/// A piece of a lookup, in the order of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Piece {
    /// Assignment of the id and the time.
    Arrival,
    /// Validation and hashing of the key.
    Key,
    /// Rate limiting of the request.
    Window,
    /// Parsing of the body: one JSON object with one field.
    Body,
    /// Validation of the email: its syntax and whether it is supported.
    Email,
    /// A hold and a spend of one credit.
    Account,
    /// A search in the directory on disk that finds the person.
    Person,
    /// Serialization of the reply.
    Reply,
    /// The metrics of a lookup, when 20,000 start per second.
    Metrics,
}

/// The inputs and stores of all pieces.
#[derive(Debug)]
pub struct Pieces {
    key: String,
    body: Vec<u8>,
    address: String,
    email: Email,
    policy: EmailPolicy,
    workspace: Workspace,
    windows: WindowTable,
    account: Account,
    people: People,
    reply: Reply,
    metrics: Arc<LookupMetrics>,
    /// A lookup whose ports are not timed, and one whose ports are.
    events: [LookupEvent<'static>; 2],
    now: Timestamp,
    runs: u64,
    _dir: TempDir,
}

impl Pieces {
    /// Creates the inputs and stores.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let workspace = Workspace::new("bench".parse()?, Quota::new(u32::MAX, 60)?);
        let mut account = Account::default();
        account.grant(CREDITS)?;
        let dir = TempDir::new()?;
        let people = people(&DataDir::create(dir.path().join("data"))?, PEOPLE)?;
        let mut reply = Reply::unauthenticated(Arrival::new(now, [7; 10]).id, Refusal::Unauthorized);
        reply.workspace = Some(workspace.id.clone());
        reply.key = Some(KeyId::from_number(1));
        reply.rate_limit = workspace.quota.window(&workspace.id, now).admit(1, now).ok();
        reply.result = Ok(Outcome::Found(ProfileUrl::from_name(&dataset::profile(1))?));
        reply.credits_spent = 1;
        let address = dataset::email(1);
        Ok(Self {
            key: dataset::key(1).reveal().to_owned(),
            body: format!(r#"{{"email":"{address}"}}"#).into_bytes(),
            email: Email::parse(&address)?,
            address,
            policy: EmailPolicy::default(),
            workspace,
            windows: WindowTable::default(),
            account,
            people,
            events: [None, Some(Duration::from_micros(90))].map(|port| event(reply.lookup_id, port)),
            metrics: Arc::default(),
            reply,
            now,
            runs: 0,
            _dir: dir,
        })
    }

    /// Runs a piece once. Panics if it fails.
    pub fn run(&mut self, piece: Piece) {
        let succeeded = match piece {
            Piece::Arrival => black_box(SystemArrivals.arrive()).now > self.now,
            Piece::Body => black_box(body::read(black_box(&self.body))).is_ok(),
            Piece::Email => {
                let email = black_box(Email::parse(black_box(&self.address)));
                email.is_ok_and(|email| self.policy.check(&email).is_ok())
            }
            Piece::Key => black_box(KeyDigest::from_key(black_box(self.key.as_bytes()))).is_some(),
            Piece::Window => self.count_one(),
            Piece::Account => self.spend_one(),
            Piece::Person => matches!(self.people.get(&self.email), Ok(Some(_))),
            Piece::Reply => black_box(wire::response(black_box(&self.reply))).status() == 200,
            Piece::Metrics => self.count_lookup(),
        };
        assert!(succeeded, "{} failed", piece.into_str());
    }

    fn count_one(&self) -> bool {
        let Workspace { id, quota, .. } = black_box(&self.workspace);
        let window = quota.window(id, self.now);
        let counted = self.windows.count(&window).now_or_never();
        matches!(counted, Some(Ok(count)) if window.admit(count, self.now).is_ok())
    }

    fn spend_one(&mut self) -> bool {
        self.runs += 1;
        let now = self.now + Duration::from_millis(self.runs);
        if self.runs.is_multiple_of(1_024) {
            self.account.advance(Duration::from_millis(now.unix_ms())); // periodic, as in a server
        }
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.runs.to_be_bytes());
        let hold = Hold::new(Arrival::new(now, random).id, self.workspace.id.clone(), 1);
        let is_spent = self.account.hold(&hold).is_ok() && self.account.begin_spend(&hold, 1).is_ok();
        self.account.commit_spend(hold.lookup_id);
        is_spent
    }

    fn count_lookup(&mut self) -> bool {
        self.runs += 1;
        let metrics: &dyn Observer = black_box(&*self.metrics);
        let is_timed = metrics.times_ports(Duration::from_micros(50 * self.runs));
        metrics.finished(&self.events[usize::from(is_timed)]);
        true
    }
}

/// Returns a finished lookup, whose port calls took the given time.
fn event(lookup_id: LookupId, port: Option<Duration>) -> LookupEvent<'static> {
    let total = Duration::from_micros(450);
    let mut event = LookupEvent::new(lookup_id, Ending::Found);
    event.credits_spent = 1;
    let Durations { keys, windows, hold, resolver, settle, .. } = &mut event.durations;
    [*keys, *windows, *hold, *resolver, *settle] = [port; 5];
    event.durations.total = total;
    event
}

/// Creates a directory of `number` people.
pub fn people(dir: &DataDir, number: usize) -> Result<People, Box<dyn Error>> {
    let people = People::open(dir, People::CONFIDENCE_MIN, [7; 16])?;
    let mut import = people.import()?;
    for person in 0..number {
        import.add(
            &Email::parse(&dataset::email(person))?,
            &ProfileUrl::from_name(&dataset::profile(person))?,
            1.0,
        )?;
    }
    import.finish()?;
    Ok(people)
}
