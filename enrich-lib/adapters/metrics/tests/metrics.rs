//! The metrics of a service in memory, as a gateway uses them.

#![allow(clippy::unwrap_used, reason = "everything here runs inside a test, where a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use enrich_lib::drive::Service;
use enrich_lib::key::ApiKey;
use enrich_lib::memory::{AccountTable, KeyTable, WindowTable};
use enrich_lib::model::{Arrival, ProfileUrl, Timestamp};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use enrich_lib::window::{Quota, Workspace};
use enrich_lib::wire;
use enrich_metrics::{LookupMetrics, VendorMetrics};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::time::{advance, sleep, timeout};

/// A vendor that finds Ada, is unavailable for Bea, and takes a second.
struct Vendor;

#[async_trait]
impl Resolver for Vendor {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        sleep(Duration::from_secs(1)).await;
        match query.email.canonical().as_str() {
            "ada@gmail.com" => ProfileUrl::from_name("ada").map(Answer::from).map_err(PortError::new),
            "bea@gmail.com" => Err(VendorErrorKind::Unavailable.into()),
            _ => Ok(Answer::default()),
        }
    }
}

/// A service with metrics.
struct World {
    service: Service,
    key: ApiKey,
    lookups: Arc<LookupMetrics>,
    vendors: Arc<VendorMetrics>,
    /// The number of lookups so far, from which their ids are made.
    count: AtomicU8,
}

impl World {
    fn new() -> Self {
        let acme = Workspace::new("acme".parse().unwrap(), Quota::default());
        let (key, keys, credits) = (ApiKey::generate(|| 7), KeyTable::default(), AccountTable::default());
        credits.grant(&acme.id, 10).unwrap();
        keys.insert(key.digest(), acme);
        let vendors = Arc::<VendorMetrics>::default();
        let resolver = vendors.observe("alpha", Arc::new(Vendor));
        let windows = Arc::new(WindowTable::default());
        let service = Service::new(Arc::new(keys), windows, Arc::new(credits), resolver);
        Self { service, key, lookups: Arc::default(), vendors, count: AtomicU8::new(0) }
    }

    async fn look_up(&self, email: &str) {
        let mut headers = http::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {}", self.key.reveal()).parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        let request = wire::request(&headers, Ok(format!("{{\"email\":\"{email}\"}}").into()));
        let id = [self.count.fetch_add(1, Ordering::Relaxed); 10];
        let arrival = Arrival::new(Timestamp::from_unix_ms(1_700_000_000_000), id);
        self.service.answer_with(arrival, request, &*self.lookups).await;
    }

    fn scrape(&self) -> String {
        let mut registry = Registry::default();
        self.lookups.register(&mut registry);
        self.vendors.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|other| other == *line), "{line}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn counts_lookups_ports_and_vendor_requests() {
    let world = World::new();
    world.look_up("ada@gmail.com").await;
    world.look_up("cleo@gmail.com").await;
    world.look_up("bea@gmail.com").await;
    world.look_up("bea").await;
    let text = world.scrape();
    assert_lines(
        &text,
        &[
            "# TYPE enrich_lookups counter",
            "enrich_lookups_total{outcome=\"found\"} 1",
            "enrich_lookups_total{outcome=\"not_found\"} 1",
            "enrich_lookups_total{outcome=\"lookup_error\"} 1",
            "enrich_lookups_total{outcome=\"invalid_email\"} 1",
            "enrich_lookup_duration_seconds_sum 3.0",
            "enrich_lookup_duration_seconds_count 4",
            "enrich_lookup_duration_seconds_bucket{le=\"0.0001\"} 1",
            "enrich_lookup_duration_seconds_bucket{le=\"0.8192\"} 1",
            "enrich_lookup_duration_seconds_bucket{le=\"1.6384\"} 4",
            "enrich_lookup_duration_seconds_bucket{le=\"+Inf\"} 4",
            "enrich_port_duration_seconds_sum{port=\"resolver\"} 3.0",
            "enrich_port_duration_seconds_count{port=\"settle\"} 3",
            "enrich_port_failures_total{port=\"resolver\"} 1",
            "enrich_port_failures_total{port=\"settle\"} 0",
            "enrich_credits_spent_total 1",
            "enrich_vendor_requests_total{vendor=\"alpha\",outcome=\"found\"} 1",
            "enrich_vendor_requests_total{vendor=\"alpha\",outcome=\"not_found\"} 1",
            "enrich_vendor_requests_total{vendor=\"alpha\",outcome=\"unavailable\"} 1",
            "enrich_vendor_duration_seconds_sum{vendor=\"alpha\"} 3.0",
        ],
    );
    assert!(!text.contains("acme") && !text.contains("gmail"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn counts_a_cancelled_lookup_and_its_request() {
    let world = World::new();
    assert!(timeout(Duration::from_millis(300), world.look_up("ada@gmail.com")).await.is_err());
    let lines = [
        "enrich_lookups_total{outcome=\"abandoned\"} 1",
        "enrich_vendor_requests_total{vendor=\"alpha\",outcome=\"timed_out\"} 1",
        "enrich_vendor_duration_seconds_sum{vendor=\"alpha\"} 0.3",
    ];
    assert_lines(&world.scrape(), &lines);
}

#[tokio::test(start_paused = true)]
async fn times_the_ports_of_one_lookup_in_10_ms() {
    let world = World::new();
    for _ in 0..8 {
        world.look_up("not an email").await;
        advance(Duration::from_millis(5)).await;
    }
    let lines = [
        "enrich_lookup_duration_seconds_count 8",
        "enrich_port_duration_seconds_count{port=\"keys\"} 4",
        "enrich_port_duration_seconds_count{port=\"windows\"} 4",
    ];
    assert_lines(&world.scrape(), &lines);
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_is_opened_again_continues_its_counts() {
    let mut world = World::new();
    world.look_up("ada@gmail.com").await;
    world.service.resolver = world.vendors.observe("alpha", Arc::new(Vendor));
    world.look_up("ada@gmail.com").await;
    assert_lines(&world.scrape(), &["enrich_vendor_requests_total{vendor=\"alpha\",outcome=\"found\"} 2"]);
}

#[test]
fn adds_up_the_counts_of_all_threads() {
    const THREADS: u64 = 40;
    let world = Arc::new(World::new());
    let look_up = |world: Arc<World>| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        std::thread::spawn(move || runtime.block_on(world.look_up("bea")))
    };
    let threads: Vec<_> = (0..THREADS).map(|_| look_up(world.clone())).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_lines(&world.scrape(), &["enrich_lookups_total{outcome=\"invalid_email\"} 40"]);
}
