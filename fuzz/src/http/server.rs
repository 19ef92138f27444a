//! A server with one workspace, one key and one person.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use enrich_host::{Arrivals, Listener, Services, run};
use enrich_lib::credit::Balance;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp, WorkspaceId};
use enrich_lib::receipt::ReceiptKey;
use enrich_lib::window::{Quota, Workspace};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Timeout of a connection: 75 s idle and 5 s to close, or 5 s for a body, with a margin.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// Small values, so that an input with few requests also reaches the 402 and the 429.
const CREDITS: u64 = 3;
const LIMIT: u32 = 5;

pub(super) struct Server {
    services: Services,
    accounts: Arc<AccountTable>,
    demo: WorkspaceId,
}

/// The bytes received over a connection, and the balance after it.
pub(super) struct ConnectionResult {
    pub(super) bytes: Vec<u8>,
    balance: Balance,
}

impl ConnectionResult {
    /// Returns the spent credits. Panics if any are held.
    pub(super) fn spent(&self) -> usize {
        assert_eq!(self.balance.held, 0, "{:?}", self.balance);
        self.balance.spent.try_into().expect("few credits")
    }
}

impl Server {
    pub(super) fn new() -> Self {
        let demo: WorkspaceId = "demo".parse().expect("a name");
        let quota = Quota::new(LIMIT, 60).expect("a quota");
        let (keys, accounts) = (KeyTable::default(), Arc::new(AccountTable::default()));
        keys.insert(ApiKey::generate(|| 7).digest(), Workspace::new(demo.clone(), quota));
        accounts.grant(&demo, CREDITS).expect("no overflow");
        let people = Directory::default();
        let (ada, profile) = (Email::parse("ada.marlowe@gmail.com"), ProfileUrl::from_name("ada-marlowe"));
        people.insert(&ada.expect("an email"), profile.expect("a profile"));

        let windows = Arc::new(WindowTable::default());
        let mut service = Service::new(Arc::new(keys), windows, accounts.clone(), Arc::new(people));
        service.policy = Arc::new(Policy::default().with_receipts(ReceiptKey::new([7; 16])));
        let arrivals = Arc::new(FixedTimeArrivals::default());
        let services = Services { arrivals, date_header: false, ..Services::new(service) };
        Self { services, accounts, demo }
    }

    /// Sends `pieces`, waits until the server closes the connection, and stops the server.
    pub(super) async fn exchange(self, pieces: &[&[u8]]) -> ConnectionResult {
        let Self { services, accounts, demo } = self;
        let (client, stream) = duplex(64 * 1_024);
        let stop = CancellationToken::new();
        let host = tokio::spawn(run(OneConnection(Some(stream)), services, stop.clone().cancelled_owned()));

        let bytes = timeout(CONNECTION_TIMEOUT, send_and_receive(client, pieces))
            .await
            .expect("the connection closes in time");
        stop.cancel();
        host.await.expect("no panic in the host");
        ConnectionResult { bytes, balance: accounts.balance(&demo) }
    }
}

async fn send_and_receive(io: DuplexStream, pieces: &[&[u8]]) -> Vec<u8> {
    let (mut reader, mut writer) = split(io);
    let send = async {
        for (i, piece) in pieces.iter().enumerate() {
            if i > 0 {
                sleep(Duration::from_secs(1)).await;
            }
            // The server may have closed the connection already. Only its replies matter.
            let _ = writer.write_all(piece).await;
        }
    };
    let mut received = Vec::new();
    let ((), result) = tokio::join!(send, reader.read_to_end(&mut received));
    result.expect("an in-memory stream has no resets");
    received
}

struct OneConnection(Option<DuplexStream>);

impl Listener for OneConnection {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.take() {
            Some(io) => Ok((io, (Ipv4Addr::LOCALHOST, 0).into())),
            None => std::future::pending().await,
        }
    }
}

/// Arrivals at a fixed time, each with a different identity.
#[derive(Default)]
struct FixedTimeArrivals(AtomicU64);

impl Arrivals for FixedTimeArrivals {
    fn arrive(&self) -> Arrival {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), random)
    }
}
