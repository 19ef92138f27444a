//! Workloads whose instructions are counted: requests to a server, and pieces of requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use enrich_host::{Services, SystemArrivals};
use enrich_lib::drive::Service;
use enrich_lib::lookup::{Policy, Request};
use enrich_lib::memory::WindowTable;
use enrich_lib::window::Quota;
use enrich_sqlite::{DataDir, Ledger, accounts};
use enrich_store::records::NewKey;
use enrich_store::{Actor, Clocks};
use strum::VariantArray;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::dataset::{Case, Keys};
use crate::memory::{self, CREDITS};
use crate::pieces::{self, Piece, Pieces};
use crate::scripted_clients::ClientScript;
use crate::server_kind::ServerKind;
use crate::{bare, dataset};

/// Number of concurrent clients. Blocks of one size for each of 64 connections would fill a page of the
/// allocator, which then allocates and frees another page in each request.
const CLIENTS: usize = 60;

/// Number of people in the directory.
const PEOPLE: usize = 1_000;

/// A workload whose instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Bare hyper with a reply as long as that for a person who is found.
    Bare,
    /// Bare hyper with a reply as long as a refusal.
    BareRefusal,
    /// The server with in-memory stores.
    Memory(Case),
    /// The server with in-memory stores, and a log line for each lookup.
    Logged,
    /// The server with keys, credits and people in SQLite, for a person who is found.
    Sqlite,
    /// The same, and each request has an idempotency key of its own.
    SqliteKeyed,
    /// A piece of a lookup.
    Piece(Piece),
}

impl Workload {
    /// Iterates over all workloads.
    pub fn all() -> impl Iterator<Item = Self> {
        use Case::{Found, Invalid, NotFound, RateLimited, Unauthorized};
        let refusals = [Unauthorized, RateLimited, Invalid].map(Self::Memory);
        [
            Self::Bare,
            Self::Memory(Found),
            Self::Logged,
            Self::Memory(NotFound),
            Self::Sqlite,
            Self::SqliteKeyed,
            Self::BareRefusal,
        ]
        .into_iter()
        .chain(refusals)
        .chain(Piece::VARIANTS.iter().map(|piece| Self::Piece(*piece)))
    }

    /// Returns the name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::BareRefusal => "bare-refusal",
            Self::Memory(case) => case.into_str(),
            Self::Logged => "found-logged",
            Self::Sqlite => "found-sqlite",
            Self::SqliteKeyed => "keyed-sqlite",
            Self::Piece(piece) => piece.into_str(),
        }
    }

    /// Returns the server process with the same workload, if there is one.
    pub const fn server(self) -> Option<ServerKind> {
        match self {
            Self::Bare => Some(ServerKind::Bare),
            Self::Memory(Case::Found) => Some(ServerKind::Memory),
            Self::Sqlite => Some(ServerKind::Sqlite),
            _ => None,
        }
    }

    /// Returns the workload with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|workload| workload.name() == name)
    }

    /// Returns the number of repetitions in the shorter of the two runs, large enough that periodic work is
    /// negligible.
    pub const fn repetitions(self) -> usize {
        match self {
            Self::Piece(_) => 2_000,
            // The log drops lines if valgrind does not schedule its thread, so all lines must fit into its
            // buffer.
            Self::Logged => CLIENTS * 32,
            _ => CLIENTS * 64,
        }
    }

    /// Runs the workload `times` times.
    pub fn run(self, times: usize) -> Result<(), Box<dyn Error>> {
        let script = |case: Case, reply_head| ClientScript {
            requests: case.requests(&Keys::default(), PEOPLE).into(),
            reply_head,
            clients: CLIENTS,
            times: times / CLIENTS,
        };
        match self {
            Self::Bare => serve_bare(&script(Case::Found, "HTTP/1.1 200 ")),
            Self::BareRefusal => {
                let mut script = script(Case::Found, "HTTP/1.1 404 ");
                Arc::make_mut(&mut script.requests)
                    .iter_mut()
                    .for_each(|request| dataset::change_path(request));
                serve_bare(&script)
            }
            Self::Logged => {
                let _log = memory::start_log();
                Self::Memory(Case::Found).run(times)
            }
            Self::Memory(case) => {
                let (service, _) = memory::service(&Keys::default(), PEOPLE)?;
                let reply_head = match case {
                    Case::Found | Case::Keyed => "HTTP/1.1 200 ",
                    Case::NotFound => "HTTP/1.1 404 ",
                    Case::Unauthorized => "HTTP/1.1 401 ",
                    Case::RateLimited => "HTTP/1.1 429 ",
                    Case::Invalid => "HTTP/1.1 400 ",
                };
                let runtime = runtime()?;
                runtime.block_on(exhaust_rate_limit(&service));
                serve(&runtime, service, &script(case, reply_head));
                Ok(())
            }
            Self::Sqlite | Self::SqliteKeyed => {
                let dir = TempDir::new()?;
                let runtime = runtime()?;
                let service = runtime.block_on(sqlite_service(&DataDir::create(dir.path().join("data"))?))?;
                let mut script = script(Case::Found, "HTTP/1.1 200 ");
                if self == Self::SqliteKeyed {
                    let key = Keys::default().main;
                    let request = |n| dataset::keyed_request(key.reveal(), n % PEOPLE, n as u64);
                    script.requests = (0..times).map(request).collect();
                }
                serve(&runtime, service, &script);
                Ok(())
            }
            Self::Piece(piece) => {
                let mut pieces = Pieces::new()?;
                (0..times).for_each(|_| pieces.run(piece));
                Ok(())
            }
        }
    }
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn serve(runtime: &Runtime, service: Service, script: &ClientScript) {
    let (clients, completion) = script.start();
    runtime.block_on(enrich_host::run(clients, Services::new(service), completion.wait()));
}

fn serve_bare(script: &ClientScript) -> Result<(), Box<dyn Error>> {
    let (clients, completion) = script.start();
    runtime()?.block_on(async {
        for client in clients {
            tokio::spawn(bare::serve(client));
        }
        completion.wait().await;
    });
    Ok(())
}

/// Uses up the rate limit of the workspace that is limited to one request.
async fn exhaust_rate_limit(service: &Service) {
    use enrich_host::Arrivals;
    let request = Request::new(Some(Keys::default().limited.digest()), Ok("{}".into()));
    service.answer(SystemArrivals.arrive(), request).await;
}

/// Creates a service with SQLite stores. Its writer runs as a task instead of a thread, so that all runs are
/// alike.
async fn sqlite_service(dir: &DataDir) -> Result<Service, Box<dyn Error>> {
    let (now, id) = (SystemArrivals::now(), "bench".parse()?);
    let mut admin = accounts(dir)?;
    admin.create_workspace(&id, Quota::new(u32::MAX, Quota::WINDOW_SECONDS_MAX)?, CREDITS, now).await?;
    let key = Keys::default().main;
    admin.create_key(&NewKey::new(&id, "bench", &key), &Actor::operator(now)).await?;
    let (clocks, started) = (Clocks::simulated(now), Instant::now());
    let spawn = |work| drop(tokio::spawn(work));
    let ledger = Arc::new(Ledger::open(dir, clocks, move || started.elapsed(), spawn)?);
    let people = Arc::new(pieces::people(dir, PEOPLE)?);
    let mut service = Service::new(ledger.clone(), Arc::new(WindowTable::default()), ledger, people.clone());
    service.policy = Arc::new(Policy::default().with_receipts(people.hasher().receipts().clone()));
    Ok(service)
}
