//! `/metrics`: the state of the server, read at each scrape.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use enrich_host::ConnectionStatistics;
use enrich_metrics::exposition::{Exposition, UNLABELLED};
use enrich_node::Ticks;
use enrich_store::statistics::{Commits, LedgerStatistics};
use enrich_vendors::middleware::BreakerState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::health::{self, Check, Health};
use super::node::{Monitored, Running};
use super::text_format::TextFormat;
use super::{VERSION, process};
use crate::settings::certificate;

/// Returns all metrics in this format.
pub async fn scrape(
    node: &Arc<Monitored>,
    health: &Health,
    format: TextFormat,
) -> Result<String, fmt::Error> {
    let checks = health.checks().await;
    let mut registry = Registry::default();
    node.lookups.register(&mut registry);
    node.vendors.register(&mut registry);
    registry.register_collector(Box::new(NodeCollector { node: node.clone(), checks }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(format.convert(text))
}

#[derive(derive_more::Debug)]
#[debug("NodeCollector {{ .. }}")]
struct NodeCollector {
    node: Arc<Monitored>,
    checks: Vec<Check>,
}

impl Collector for NodeCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Exposition::new(encoder);
        let build = [("version", VERSION), ("commit", super::COMMIT.unwrap_or_default())];
        out.gauge("enrich_build_info", "The version of the program.", [(&build[..], 1)])?;
        self.encode_health(&mut out)?;
        let ConnectionStatistics { active, idle, accepted, evicted, refused } =
            self.node.connections.statistics();
        let states = [(&[("state", "active")][..], active), (&[("state", "idle")], idle)];
        out.gauge("enrich_connections", "Open connections; active ones have a request in flight.", states)?;
        out.counter("enrich_connections_accepted", "Accepted connections.", [(UNLABELLED, accepted)])?;
        out.counter(
            "enrich_connections_evicted",
            "Connections closed at the limit for new ones.",
            [(UNLABELLED, evicted)],
        )?;
        let help = "Connections refused because their address had too many.";
        out.counter("enrich_connections_refused", help, [(UNLABELLED, refused)])?;
        let lost = self.node.lost_lines.count();
        out.counter("enrich_log_lines_dropped", "Log lines that were lost.", [(UNLABELLED, lost)])?;
        let is_reloaded = self.node.is_reloaded.load(Ordering::Relaxed);
        let help = "1 unless the last reload of the settings failed.";
        out.gauge("enrich_config_last_reload_successful", help, [(UNLABELLED, u64::from(is_reloaded))])?;
        let low = self.node.running().map_or(0, |running| running.node.low_balances());
        let help = "Workspaces with fewer credits than their low balance, without suspended ones.";
        out.gauge("enrich_low_balances", help, [(UNLABELLED, low)])?;
        if let Some(running) = self.node.running() {
            encode_running(&mut out, running)?;
        }
        process::encode(&mut out, self.node.started_at)
    }
}

impl NodeCollector {
    fn encode_health(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let is_ready = self.checks.iter().all(Check::is_ok);
        out.gauge("enrich_ready", "1 if the server is ready.", [(UNLABELLED, u64::from(is_ready))])?;
        let labels: Vec<_> = self.checks.iter().map(|check| [("check", check.name())]).collect();
        let values = self.checks.iter().map(|check| u64::from(check.is_ok()));
        let samples = labels.iter().map(|labels| &labels[..]).zip(values);
        out.gauge("enrich_check_ok", "1 if the check of /readyz succeeds.", samples)?;
        let Some(running) = self.node.running() else { return Ok(()) };
        let up = |name: &str| {
            self.checks.iter().find(|check| check.name() == name).map(|check| u64::from(check.is_ok()))
        };
        let accounts = [("store", running.node.accounts.database())];
        let stores = [
            up(health::ACCOUNTS).map(|up| (&accounts[..], up)),
            up(health::RATE_LIMITS)
                .filter(|_| running.node.windows.is_redis())
                .map(|up| (&[("store", "redis")][..], up)),
        ];
        out.gauge("enrich_store_up", "1 if the store is usable.", stores.into_iter().flatten())
    }
}

fn encode_running(out: &mut Exposition<'_>, running: &Running) -> fmt::Result {
    let max = running.connections_max as u64;
    out.gauge("enrich_connections_max", "Maximum number of connections.", [(UNLABELLED, max)])?;
    let validity = running.certificate.as_ref().and_then(|served| certificate::validity(&served.load()).ok());
    let expiry = validity.map(|validity| (UNLABELLED, validity.not_after.to_unix_duration().as_secs()));
    let help = "End of the certificate that is served, in Unix time.";
    out.gauge("enrich_certificate_expiry_time_seconds", help, expiry)?;
    encode_accounts(out, running)?;
    encode_vendors(out, running)
}

fn encode_accounts(out: &mut Exposition<'_>, running: &Running) -> fmt::Result {
    let LedgerStatistics { credits_held, queue_depth, commits } = running.node.accounts.statistics();
    let Commits { sizes, durations, failed } = commits;
    out.gauge("enrich_credits_held", "Credits held by lookups on this node.", [(UNLABELLED, credits_held)])?;
    out.gauge("enrich_spend_queue_depth", "Spends that wait for a commit.", [(UNLABELLED, queue_depth)])?;
    out.histogram("enrich_commit_spends", "Spends in a commit.", 1.0, [(UNLABELLED, sizes)])?;
    out.histogram("enrich_commit_duration_seconds", "Duration of a commit.", 1e9, [(UNLABELLED, durations)])?;
    out.counter("enrich_commit_failures", "Failed commits.", [(UNLABELLED, failed)])?;
    let age = |ticks: &Ticks| (UNLABELLED, ticks.age().as_secs_f64());
    let help = "Time since the accounts were last refreshed.";
    out.gauge("enrich_tick_lag_seconds", help, [age(&running.node.ticks)])?;
    // SQLite writes the statistics with the spends.
    let lag = (running.node.accounts.database() != "sqlite").then(|| age(&running.node.statistics));
    let help = "Time since usage was last written and credits were returned.";
    out.gauge("enrich_statistics_lag_seconds", help, lag)
}

fn encode_vendors(out: &mut Exposition<'_>, running: &Running) -> fmt::Result {
    let stack = running.node.stack();
    let states = [
        ("closed", BreakerState::Closed),
        ("half_open", BreakerState::HalfOpen),
        ("open", BreakerState::Open),
    ];
    let samples: Vec<_> = stack
        .breakers()
        .flat_map(|(vendor, current)| {
            states.map(|(name, state)| ([("vendor", vendor), ("state", name)], u64::from(state == current)))
        })
        .collect();
    let samples = samples.iter().map(|(labels, value)| (&labels[..], *value));
    out.gauge("enrich_vendor_breaker_state", "1 for the state of the vendor's circuit breaker.", samples)?;
    let cache = stack.cache();
    let hits = cache.map(|cache| (UNLABELLED, cache.hits));
    out.counter("enrich_cache_hits", "Lookups that the cache answered.", hits)?;
    let misses = cache.map(|cache| (UNLABELLED, cache.misses));
    out.counter("enrich_cache_misses", "Lookups that the cache did not answer.", misses)?;
    let entries = cache.map(|cache| (UNLABELLED, cache.entries));
    out.gauge("enrich_cache_entries", "Entries of the cache.", entries)
}
