//! Each setting changes a value that the server takes from the settings. A setting without a row fails.

use std::collections::BTreeSet;

use enrich_node::sources::Source;

use super::example::{example, section, tables};
use super::{ACME, read};

/// Settings of which `serve` itself uses the value in the file. Tests of the program prove their effect.
const USED_BY_SERVE: [&str; 21] = [
    "listen",
    "data",
    "workers",
    "log_format",
    "log_client_address",
    "database",
    "windows",
    "windows_ca",
    "tls.cert",
    "tls.key",
    "console.listen",
    "console.url",
    "console.api_url",
    "admin.listen",
    "people.key",
    "people.confidence_min",
    "connections.max",
    "credits.show_available",
    "vendors.use",
    "vendors.file",
    "vendors.secret",
];

/// Each of the other settings, and lines that give it another value than the default.
const CHANGES: [(&str, &str); 30] = [
    ("client_address", "client_address = \"forwarded\"\ntrusted_proxies = [\"::1\"]"),
    ("trusted_proxies", "client_address = \"forwarded\"\ntrusted_proxies = [\"::2\"]"),
    ("plaintext", "plaintext = true"),
    ("price.found", "price.found = 7"),
    ("price.not_found", "price.not_found = 7"),
    ("credits.in_doubt_ms", "credits.in_doubt_ms = 7"),
    ("credits.keep_spends_days", "credits.keep_spends_days = 7"),
    ("resolver.deadline_ms", "resolver.deadline_ms = 7"),
    ("emails.refuse_disposable", "emails.refuse_disposable = false"),
    ("emails.disposable_file", "emails.disposable_file = \"disposable.txt\""),
    ("emails.refuse_relays", "emails.refuse_relays = false"),
    ("emails.refuse_roles", "emails.refuse_roles = false"),
    ("emails.providers_allowed", "emails.providers_allowed = [\"gmail.com\"]"),
    ("connections.per_address_max", "connections.per_address_max = 7"),
    ("connections.head_ms", "connections.head_ms = 7"),
    ("connections.body_ms", "connections.body_ms = 7"),
    ("connections.idle_ms", "connections.idle_ms = 7"),
    ("connections.shutdown_delay_ms", "connections.shutdown_delay_ms = 7"),
    ("cache.found_seconds", "[cache]\nfound_seconds = 7"),
    ("cache.not_found_seconds", "[cache]\nnot_found_seconds = 7"),
    ("cache.entries", "[cache]\nentries = 7"),
    ("vendors.queue", "queue = 7"),
    ("vendors.limits.deadline_ms", "limits = { deadline_ms = 7 }"),
    ("vendors.limits.concurrency", "limits = { concurrency = 7 }"),
    ("vendors.limits.tries", "limits = { tries = 5 }"),
    ("vendors.breaker.window_calls", "breaker = { window_calls = 77 }"),
    ("vendors.breaker.calls_min", "breaker = { calls_min = 7 }"),
    ("vendors.breaker.failure_rate", "breaker = { failure_rate = 0.7 }"),
    ("vendors.breaker.pause_ms", "breaker = { pause_ms = 7 }"),
    ("vendors.breaker.probes", "breaker = { probes = 7 }"),
];

/// Returns the values that the server takes from a settings file with one vendor.
fn values(before: &str, vendor: &str) -> String {
    let (config, sources) = read(&format!("{before}\n{ACME}{vendor}\n")).unwrap();
    let [Source::Vendor(acme)] = &sources.list[..] else { panic!("{sources:?}") };
    let stops = (config.keep_spends(), config.shutdown_delay());
    let lookups = (config.price(), config.email_policy(), config.client_address());
    format!("{:?}", (config.limits(1_000), stops, lookups, sources.deadline, sources.cache, acme.policy))
}

#[test]
fn each_setting_has_a_row() {
    let mut settings = BTreeSet::new();
    tables("", &mut example(), &mut |path, table| {
        let names = table.iter_mut().filter_map(|(name, value)| section(value).is_none().then_some(name));
        settings.extend(names.map(|name| format!("{path}.{name}").trim_start_matches('.').to_owned()));
    });
    let rows = CHANGES.iter().map(|(setting, _)| *setting).chain(USED_BY_SERVE);
    assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), settings);
}

#[test]
fn each_setting_has_an_effect() {
    let mut seen = BTreeSet::from([values("", ""), values("[cache]", "")]);
    for (setting, lines) in CHANGES {
        let (before, vendor) = if setting.starts_with("vendors") { ("", lines) } else { (lines, "") };
        assert!(
            seen.insert(values(before, vendor)),
            "{setting} changes nothing, or the same as another setting"
        );
    }
}
