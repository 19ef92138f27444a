//! The documentation, the dashboard and the alerts agree with the metrics of real servers.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use crate::commands::status;
use crate::deploy::deployed;
use crate::enrich::admin::{ADMIN, Scrape, wait_until_ready};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, repository};
use enrich_tests::servers::Redis;
use serde_json::Value;

/// The scrapes of a server with a vendor, a cache and a certificate, and of a node on PostgreSQL and Redis.
static SCRAPES: LazyLock<[Scrape; 2]> = LazyLock::new(|| [single_server(), node()]);

fn single_server() -> Scrape {
    let enrich = Enrich::with_key(1, 500).0;
    enrich.certificate("127.0.0.1");
    let settings = "tls = { cert = \"cert.pem\", key = \"key.pem\" }\n[cache]";
    let config = Vendor::that(Behavior::NoMatch).configure(&enrich, settings);
    let server = enrich.serve(&[ADMIN, "--config", config.to_str().unwrap()]);
    wait_until_ready(server.admin());
    Scrape::of(server.admin())
}

fn node() -> Scrape {
    let enrich = Enrich::on_postgresql();
    let key = enrich.make_key(1, 500);
    let redis = Redis::start();
    let server = enrich.serve(&[ADMIN, "--windows", &redis.url()]);
    wait_until_ready(server.admin());
    assert_eq!(status(&server, &key, "bea@gmail.com"), 404);
    Scrape::of(server.admin())
}

/// A metric as Prometheus stores it.
#[derive(Debug, Default)]
struct Family {
    metric_type: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Returns all metrics by name. The name of a counter ends with `_total`.
fn families() -> BTreeMap<String, Family> {
    let mut families = BTreeMap::<String, Family>::new();
    for scrape in &*SCRAPES {
        let mut current = String::new();
        let mut help = String::new();
        for line in scrape.text().lines() {
            if let Some(described) = line.strip_prefix("# HELP ") {
                help = described.split_once(' ').unwrap().1.to_owned();
            } else if let Some(typed) = line.strip_prefix("# TYPE ") {
                let (name, metric_type) = typed.split_once(' ').unwrap();
                let suffix = if metric_type == "counter" { "_total" } else { "" };
                current = format!("{name}{suffix}");
                let family = families.entry(current.clone()).or_default();
                (family.metric_type, family.help) = (metric_type.to_owned(), help.clone());
            } else if let Some((_, labels)) = line.split_once('{') {
                let names = labels.split("\"").step_by(2).filter_map(|text| text.strip_suffix('='));
                let names = names.map(|name| name.trim_start_matches(',').to_owned());
                families.get_mut(&current).unwrap().labels.extend(names.filter(|name| name != "le"));
            }
        }
    }
    families
}

/// `UPDATE_DOCS=1` rewrites the table.
#[test]
fn the_documentation_lists_all_metrics() {
    let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, Family { metric_type, help, labels }) in families() {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        table += &format!("| `{name}` | {metric_type} | {} | {help} |\n", labels.join(", "));
    }
    let path = repository().join("host/docs/monitoring.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find("| metric | type |").expect("the page has the table");
    let end = start + page[start..].find("\n\n").unwrap() + 1;
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{}{table}{}", &page[..start], &page[end..])).unwrap();
    } else {
        assert_eq!(&page[start..end], table, "run it with UPDATE_DOCS=1");
    }
}

#[test]
fn no_label_identifies_a_workspace_or_a_person() {
    let labels: BTreeSet<_> = families().into_values().flat_map(|family| family.labels).collect();
    let known = ["check", "commit", "outcome", "port", "state", "store", "vendor", "version"];
    assert_eq!(labels, known.map(str::to_owned).into());
}

/// Asserts that an expression uses only metrics and label values that a scrape has.
fn check_expression(expression: &str) {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names: BTreeSet<_> = SCRAPES
        .iter()
        .flat_map(Scrape::samples)
        .map(|(sample, _)| sample.split('{').next().unwrap())
        .collect();
    let words = expression.split(|c| !is_name(c));
    let used: Vec<_> =
        words.filter(|word| word.starts_with("enrich_") || word.starts_with("process_")).collect();
    assert!(!used.is_empty() || expression.contains("up{"), "{expression}");
    for name in used {
        assert!(names.contains(name), "{name} does not exist: {expression}");
    }
    for selector in expression.split('{').skip(1).map(|text| text.split('}').next().unwrap()) {
        for matcher in
            selector.split(',').filter(|matcher| !matcher.contains("job") && !matcher.contains("instance"))
        {
            let (label, values) = matcher.split_once(['=', '!']).unwrap();
            for value in values.trim_matches(['=', '~', '"']).split('|') {
                let pair = format!("{}=\"{value}\"", label.trim());
                assert!(SCRAPES.iter().any(|scrape| scrape.text().contains(&pair)), "{pair}: {expression}");
            }
        }
    }
}

#[test]
fn alerts_use_existing_metrics() {
    let alerts = std::fs::read_to_string(deployed("alerts.yaml")).unwrap();
    let (alerts, _) = alerts.split_once("- name: machine").expect("the rules for other exporters follow");
    let expressions: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), alerts.matches("- alert: ").count());
    assert!(expressions.len() > 10);
    expressions.into_iter().for_each(check_expression);
}

#[test]
fn dashboard_uses_existing_metrics() {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(deployed("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 20);
    expressions.into_iter().for_each(check_expression);
}

/// Tests the alerts, which are evaluated at this interval.
#[cfg(feature = "tools")]
fn test_alerts(interval: &str, test: &str) {
    let (dir, rules) = (tempfile::tempdir().unwrap(), deployed("alerts.yaml"));
    let file = dir.path().join("test.yaml");
    let rules = format!("rule_files: [{}]\nevaluation_interval: {interval}\n", rules.display());
    std::fs::write(&file, format!("{rules}tests:\n- interval: {interval}\n{test}")).unwrap();
    let ran = Command::new("promtool").args(["test", "rules"]).arg(&file).output();
    let ran = ran.expect("promtool is installed: apt-get install prometheus");
    let [stdout, stderr] = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(ran.status.success(), "{stdout}{stderr}");
}

#[cfg(feature = "tools")]
const FIRING: &str = r#"count by (severity) (ALERTS{alertstate="firing"})"#;

#[cfg(feature = "tools")]
#[test]
fn alerts_of_a_certificate_do_not_resolve_when_it_ends() {
    let [warning, critical] = ["warning", "critical"]
        .map(|severity| format!("{{ labels: '{{severity=\"{severity}\"}}', value: 1 }}"));
    let mut test = format!(
        r#"
  input_series:
  - {{ series: 'up{{job="enrich"}}', values: 1x999 }}
  - {{ series: enrich_certificate_expiry_time_seconds, values: {}x999 }}
  promql_expr_test:"#,
        30 * 86_400,
    );
    for (day, samples) in [(15, ""), (17, &warning), (29, &warning), (31, &format!("{warning}, {critical}"))]
    {
        test += &format!("\n  - {{ expr: '{FIRING}', eval_time: {day}d, exp_samples: [{samples}] }}");
    }
    test_alerts("1h", &test);
}

#[cfg(feature = "tools")]
#[test]
fn node_that_restarts_again_and_again_fires_an_alert() {
    // It answers for about a second after each start.
    test_alerts(
        "15s",
        &format!(
            r#"
  input_series:
  - {{ series: 'up{{job="enrich"}}', values: '0 1 1 0 1 0 0 1 1 0 1 1 0 0' }}
  - {{ series: enrich_ready, values: 'stale 0 0 stale 0 stale stale 0 0 stale 0 0 stale stale' }}
  - {{ series: 'process_start_time_seconds{{job="enrich"}}', values: 'stale 1 2 stale 3 stale stale 4 5 stale 6 7 stale stale' }}
  promql_expr_test:
  - expr: '{FIRING}'
    eval_time: 195s
    exp_samples: [{{ labels: '{{severity="critical"}}', value: 1 }}, {{ labels: '{{severity="warning"}}', value: 1 }}]"#
        ),
    );
}

/// A restart that takes less than the interval is visible only as a later start.
#[cfg(feature = "tools")]
#[test]
fn node_that_restarts_once_an_hour_fires_an_alert() {
    let start = |hour: u32| format!("{hour}x59");
    let starts: Vec<_> = (1..=4).map(start).collect();
    test_alerts(
        "1m",
        &format!(
            r#"
  input_series:
  - {{ series: 'up{{job="enrich"}}', values: 1x239 }}
  - {{ series: 'process_start_time_seconds{{job="enrich"}}', values: '{}' }}
  promql_expr_test:
  - {{ expr: '{FIRING}', eval_time: 179m, exp_samples: [] }}
  - {{ expr: '{FIRING}', eval_time: 181m, exp_samples: [{{ labels: '{{severity="warning"}}', value: 1 }}] }}"#,
            starts.join(" ")
        ),
    );
}

/// One match is enough to fire none.
#[cfg(feature = "tools")]
#[test]
fn lookups_without_matches_fire_alerts() {
    let mut test = "\n  input_series:\n  - { series: 'up{job=\"enrich\"}', values: 1x60 }".to_owned();
    for (instance, found) in [("a", "7x60"), ("b", "7x20 8x39")] {
        for metric in ["enrich_lookups_total{", "enrich_vendor_requests_total{vendor=\"alpha\","] {
            for (outcome, values) in [("found", found), ("not_found", "0+60x60")] {
                let labels = format!("instance=\"{instance}\",outcome=\"{outcome}\"}}");
                test += &format!("\n  - {{ series: '{metric}{labels}', values: {values} }}");
            }
        }
    }
    let alerts = ["EnrichNoMatches", "EnrichVendorNoMatches"]
        .map(|name| format!("{{ labels: '{{alertname=\"{name}\",instance=\"a\"}}', value: 1 }}"));
    test += "\n  promql_expr_test:\n  - expr: count by (alertname, instance) (ALERTS{alertstate=\"firing\"})";
    test += &format!("\n    eval_time: 50m\n    exp_samples: [{}]", alerts.join(", "));
    test_alerts("1m", &test);
}

/// Refused requests, an answering vendor and a synchronized clock that is wrong hide no failure.
#[cfg(feature = "tools")]
#[test]
fn each_failure_fires_its_alert() {
    let series = |metric: &str, labels: &str, values: &str| {
        format!("\n  - {{ series: '{metric}{{instance=\"a\",{labels}}}', values: {values}x60 }}")
    };
    let lookups = |outcome, values| series("enrich_lookups_total", &format!("outcome=\"{outcome}\""), values);
    let requests = |vendor, outcome, values| {
        let labels = format!("vendor=\"{vendor}\",outcome=\"{outcome}\"");
        series("enrich_vendor_requests_total", &labels, values)
    };
    let mut test = "\n  input_series:".to_owned();
    test += &series("up", "job=\"enrich\"", "1");
    test += &lookups("found", "0+90");
    test += &lookups("lookup_error", "0+10");
    test += &lookups("unauthorized", "0+60000");
    test += &series("enrich_repeats_total", "job=\"enrich\"", "0+100");
    test += &requests("alpha", "found", "0");
    test += &requests("alpha", "request_rejected", "0+10");
    test += &requests("beta", "found", "0+10");
    test += &requests("beta", "too_many_open_files", "0+60");
    test += &requests("gamma", "found", "5");
    test += &requests("gamma", "timed_out", "0x29 1");
    test += &series("node_time_seconds", "", "30+60");
    test += &series("node_timex_sync_status", "", "1");
    test += &series("node_filesystem_files_free", "", "1");
    test += &series("node_filesystem_files", "", "100");
    let firing = ["EnrichErrors", "EnrichRepeats", "EnrichVendorFails", "EnrichInodesLow", "EnrichClockSkew"]
        .map(|name| format!("{{ labels: '{{alertname=\"{name}\"}}', value: 1 }}"));
    test += &format!(
        "\n  promql_expr_test:\n  - expr: 'count by (alertname) (ALERTS{{alertstate=\"firing\"}})'\n    \
         eval_time: 40m\n    exp_samples: [{}]",
        firing.join(", ")
    );
    test_alerts("1m", &test);
}
