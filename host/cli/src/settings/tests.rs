mod effects;

use std::path::Path;
use std::time::Duration;

use enrich_host::{ClientAddress, Limits};
use enrich_lib::credit::Price;
use enrich_lib::email::EmailPolicy;
use enrich_lib::lookup::Policy;
use enrich_middleware::Deadline;
use enrich_node::sources::Sources;
use enrich_postgres::Ledger;
use enrich_provider::parse_toml;
use enrich_redis::RedisPolicy;

use super::config::{CacheConfig, Config, Tls};
use super::layers::{Layers, Merged};
use super::vendor_config::VendorConfig;
use super::{example, with_sources};
use crate::values::RESOLVER_DEADLINE_MAX;

/// Invalid lines of a list of domains.
const NO_DOMAINS: [&str; 7] = [
    "ada@gmail.com",
    "mailhost",
    "*.marlowe.name",
    "marlowe.name, x.name",
    "bücher.ch",
    "[127.0.0.1]",
    "a.name # ours",
];

/// Reads a settings file with this text, in a directory that contains the vendor `acme.toml`.
fn read(text: &str) -> Result<(Config, Sources), String> {
    let dir = tempfile::tempdir().unwrap();
    let acme = "name = \"acme\"\nbills = \"requests\"\n[request]\nmethod = \"GET\"\nurl = \"https://acme.example/{email}\"\n\
                [answer]\nprofile = [\"/url\"]\n";
    std::fs::write(dir.path().join("acme.toml"), acme).unwrap();
    std::fs::write(dir.path().join("bad.toml"), acme.replace("GET", "PUT")).unwrap();
    std::fs::write(dir.path().join("short.toml"), acme.replace("[\"/url\"]", "[]")).unwrap();
    std::fs::write(dir.path().join("key"), "s3cret\n").unwrap();
    let domains = "\u{feff}# ours\r\n\r\nThrowaway.name \r\nxn--bcher-kva.ch";
    std::fs::write(dir.path().join("disposable.txt"), domains).unwrap();
    for (number, line) in (1..).zip(NO_DOMAINS) {
        std::fs::write(dir.path().join(format!("bad-{number}.txt")), format!("# ours\nfine.name\n{line}\n"))
            .unwrap();
    }
    let path = dir.path().join("enrich.toml");
    std::fs::write(&path, text).unwrap();
    let place = format!("{}/", dir.path().display());
    let checked =
        with_sources(&Layers::new(Some(path))).and_then(|(Merged { config, errors, .. }, sources)| {
            if errors.is_empty() { Ok((config, sources)) } else { Err(errors) }
        });
    checked.map_err(|errors| errors.to_string().replace(&place, ""))
}

fn mistakes(text: &str) -> String {
    read(text).map(drop).expect_err(text)
}

#[test]
fn empty_file_has_the_defaults() {
    let (config, vendors) = read("").unwrap();
    assert_eq!(config, Config::default());
    assert_eq!((config.price(), vendors.deadline), (Price::default(), Deadline::BUDGET));
    let limits = Limits { lookup_timeout: Duration::from_millis(59_100), ..Limits::default() };
    assert_eq!(format!("{:?}", config.limits(10_000)), format!("{limits:?}"));
    assert!(vendors.list.is_empty() && vendors.cache.is_none());
}

#[test]
fn timeouts_follow_from_the_deadlines() {
    let limits = |text| read(text).unwrap().0.limits(10);
    let slow = limits("resolver.deadline_ms = 20000");
    assert_eq!(slow.shutdown_timeout, Duration::from_secs(20) + Ledger::SETTLE_TIMEOUT);
    assert_eq!(slow.lookup_timeout, limits("").lookup_timeout, "a reload can change the deadline");
    let in_doubt = limits("credits.in_doubt_ms = 31000");
    assert_eq!(in_doubt.lookup_timeout - limits("").lookup_timeout, Duration::from_secs(1));
}

#[test]
fn half_of_the_connections_are_for_one_address_without_a_proxy() {
    let per_address = |text| read(text).unwrap().0.limits(11).connections_per_address_max;
    assert_eq!(per_address(""), 6);
    assert_eq!(per_address("plaintext = true"), 11);
    assert_eq!(per_address("connections.per_address_max = 3"), 3);
    let zero = mistakes("connections.per_address_max = 0");
    assert!(zero.contains("connections.per_address_max: must be at least 1"), "{zero}");
}

#[test]
fn the_example_shows_the_defaults() {
    assert_eq!(parse_toml::<Config>(&example()).0.unwrap(), Config::default());
}

#[test]
fn the_example_has_every_setting_and_its_manual() {
    let is_setting = |text: &str| {
        text.starts_with('[') || text.split_once(" = ").is_some_and(|(name, _)| !name.contains(' '))
    };
    let text = example();
    let lines =
        text.lines().map(|line| line.strip_prefix("# ").filter(|line| is_setting(line)).unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let (config, errors) = parse_toml::<Config>(&text);
    let config = config.unwrap_or_else(|| panic!("{errors}\n{text}"));
    assert_eq!(config.cache, Some(CacheConfig::default()));
    let Config { workers, database, windows, windows_ca, tls, vendors, .. } = &config;
    assert!(workers.is_some() && database.is_some() && windows.is_some() && windows_ca.is_some());
    assert!(tls.is_some());
    let [VendorConfig { name, file, secret, queue, limits, breaker }] = &vendors[..] else {
        panic!("{vendors:?}")
    };
    assert!(name.is_some() && file.is_some() && secret.is_some() && queue.is_some());
    assert!(limits.is_some() && breaker.is_some());
    let after_nothing = text.lines().zip(text.lines().skip(1)).filter(|(before, _)| before.is_empty());
    let undocumented: Vec<_> =
        after_nothing.map(|(_, line)| line).filter(|line| !line.starts_with('#')).collect();
    assert_eq!(undocumented, ["[credits]", "[resolver]", "[connections]"]);
}

#[test]
fn mistakes_name_their_line_and_setting() {
    for (text, message) in [
        (
            "plaintext = true\n[people]\nconfidence = 1",
            "line 3, people.confidence: unknown setting `confidence`; did you mean `confidence_min`?",
        ),
        ("[people]\nconfidence_min = 1.5", "line 2, people.confidence_min: must be from 0 to 1"),
        ("[people]\nconfidence_min = nan", "line 2, people.confidence_min: must be from 0 to 1"),
        ("[resolver]\ndeadline_ms = 0", "line 2, resolver.deadline_ms: must be from 1 to 20000"),
        ("\n[resolver]\ndeadline_ms = 20001", "line 3, resolver.deadline_ms: must be from 1 to 20000"),
        ("[connections]\nmax = 0", "line 2, connections.max: must be at least 1"),
        ("[connections]\nhead_ms = 0", "line 2, connections.head_ms:"),
        ("connections = { body_ms = 3600001 }", "line 1, connections.body_ms:"),
        ("[connections]\nidle_ms = 0", "line 2, connections.idle_ms:"),
        ("client_address = \"off\"", "line 1, client_address: unknown value `off`"),
        ("client_address = \"forwarded\"", "line 1, client_address: needs `trusted_proxies`"),
        (
            "plaintext = true\ntrusted_proxies = [\"10.0.0.0/8\"]",
            "line 2, trusted_proxies: needs client_address",
        ),
        ("[cache]\nentries = 0", "line 2, cache.entries:"),
        ("[cache]\nfound_seconds = 40000000", "line 2, cache.found_seconds:"),
        ("[cache]", "line 1, cache: needs a vendor"),
        ("[cache]\n[[vendors]]\nuse = \"people\"", "line 1, cache: needs a vendor"),
    ] {
        let found = mistakes(text);
        assert!(found.starts_with(&format!("enrich.toml, {message}")), "{found}");
    }
}

#[test]
fn reports_every_mistake_by_line() {
    let text = "lisen = \":80\"\nworkers = 0\nlog_format = \"jsn\"\n[price]\nfound = \"one\"\nnot_found = -1\n\
                [people]\nconfidence_min = 2\n[[vendors]]\nfile = \"bad.toml\"\nqueue = 10001\n[[vendors]]\n\
                fiel = \"acme.toml\"\n[[vendors]]\nuse = 5\n[[vendors]]\nuse = \"people\"\nqueue = 1\n";
    assert_eq!(
        mistakes(text).replace("enrich.toml, ", ""),
        "bad.toml, line 4, request.method: unknown value `PUT`; expected one of `GET`, `POST`\n\
         line 1, lisen: unknown setting `lisen`; did you mean `listen`?\n\
         line 2, workers: expected a whole number of at least 1, got the number 0\n\
         line 3, log_format: unknown value `jsn`; expected one of `text`, `json`\n\
         line 5, price.found: expected a whole number, got text\n\
         line 6, price.not_found: expected a whole number from 0 to 4294967295, got the number -1\n\
         line 8, people.confidence_min: must be from 0 to 1\n\
         line 11, vendors.queue: must be from 0 to 10000\n\
         line 13, vendors.fiel: unknown setting `fiel`; did you mean `file`?\n\
         line 15, vendors.use: expected text, got the number 5\n\
         line 18, vendors.queue: applies to vendors only, not to the people directory"
    );
}

#[test]
fn each_email_rule_has_a_setting() {
    let policy = |text: &str| read(&format!("[emails]\n{text}")).unwrap().0.email_policy();
    let refused = EmailPolicy::default();
    assert_eq!(policy(""), refused);
    type Change = fn(&mut EmailPolicy);
    let changes: [(&str, Change); 5] = [
        ("refuse_disposable = false", |policy| policy.refuse_disposable = false),
        ("refuse_relays = false", |policy| policy.refuse_relays = false),
        ("refuse_roles = false", |policy| policy.refuse_roles = false),
        ("providers_allowed = [\"GMail.com\"]", |policy| {
            policy.providers_allowed = Some(["gmail.com".to_owned()].into());
        }),
        ("disposable_file = \"disposable.txt\"", |policy| {
            policy.disposable_domains = ["throwaway.name", "xn--bcher-kva.ch"].map(str::to_owned).into();
        }),
    ];
    for (text, change) in changes {
        let mut expected = refused.clone();
        change(&mut expected);
        assert_eq!(policy(text), expected, "{text}");
    }
}

#[test]
fn invalid_disposable_domain_is_reported_by_line_and_not_quoted() {
    for (number, line) in (1..).zip(NO_DOMAINS) {
        let message =
            mistakes(&format!("[emails]\nrefuse_roles = true\ndisposable_file = \"bad-{number}.txt\""));
        let expected = format!("emails.disposable_file: bad-{number}.txt, line 3: must be one domain");
        assert_eq!(message, format!("enrich.toml, line 3, {expected}"), "{line}");
    }
    let message = mistakes("[emails]\ndisposable_file = \"no.txt\"");
    assert!(
        message.starts_with("enrich.toml, line 2, emails.disposable_file: cannot read no.txt: "),
        "{message}"
    );
    let message = mistakes("[emails]\nrefuse_disposable = false\ndisposable_file = \"disposable.txt\"");
    assert!(message.starts_with("enrich.toml, line 3, emails.disposable_file: requires"), "{message}");
}

#[test]
fn reports_all_numbers_out_of_range_and_a_wrong_key() {
    let text = "people.key = \"beef\"\nresolver.deadline_ms = 0\nconnections.max = 0\n[[vendors]]\nfile = \"acme.toml\"\n\
         queue = 10001\nlimits = { tries = 6, concurrency = 0 }\nbreaker = { probes = 0, pause_ms = 0 }\n";
    let message = mistakes(text);
    let settings: Vec<_> = message.lines().filter_map(|line| line.split(": ").next()).collect();
    let expected = [
        "enrich.toml, line 1, people.key",
        "enrich.toml, line 2, resolver.deadline_ms",
        "enrich.toml, line 3, connections.max",
        "enrich.toml, line 6, vendors.queue",
        "enrich.toml, line 7, vendors.limits.concurrency",
        "enrich.toml, line 7, vendors.limits.tries",
        "enrich.toml, line 8, vendors.breaker.pause_ms",
        "enrich.toml, line 8, vendors.breaker.probes",
    ];
    assert_eq!(settings, expected, "{message}");
    assert!(!message.contains("beef"), "{message}");
}

#[test]
fn longest_lookup_ends_before_its_hold_expires() {
    let longest = mistakes("resolver.deadline_ms = 20001");
    assert!(longest.ends_with(&format!("from 1 to {}", RESOLVER_DEADLINE_MAX.as_millis())), "{longest}");
    let held = Ledger::HOLD_TIMEOUT + RESOLVER_DEADLINE_MAX + Ledger::SETTLE_TIMEOUT;
    assert!(held <= Policy::default().hold_ttl);
    let before_resolver = Ledger::KEY_TIMEOUT + RedisPolicy::default().timeout + Ledger::HOLD_TIMEOUT;
    assert!(before_resolver < Duration::from_secs(5), "as several-nodes.md states");
}

#[test]
fn reads_the_source_of_client_addresses() {
    let setting = |text: &str| read(text).unwrap().0.client_address();
    assert_eq!(setting(""), ClientAddress::Peer);
    let text = "client_address = \"forwarded\"\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]";
    let proxies = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
    assert_eq!(setting(text), ClientAddress::Forwarded(proxies.into()));
    for text in ["", "10", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.1/8", "::/129", "localhost"] {
        let error = mistakes(&format!("trusted_proxies = [{text:?}]"));
        assert!(error.contains(&format!("line 1, trusted_proxies: {text:?} must be an address")), "{error}");
    }
}

#[test]
fn names_settings_that_need_a_restart() {
    let change = |text| read(text).unwrap().0.fixed_differences(&Config::default());
    let names = ["price.found", "connections.max"];
    assert_eq!(change("[price]\nfound = 2\n[connections]\nmax = 1"), names);
    assert_eq!(change("[credits]\nin_doubt_ms = 1000"), ["credits.in_doubt_ms"]);
    assert_eq!(change("[credits]\nin_doubt_ms = 30000"), [""; 0]);
    assert_eq!(change("[emails]\ndisposable_file = \"disposable.txt\""), ["emails.disposable_file"]);
    assert_eq!(change("workers = 2\nlog_format = \"json\""), ["workers", "log_format"]);
    let forwarded =
        "log_client_address = true\nclient_address = \"x-forwarded-for\"\ntrusted_proxies = [\"::1\"]";
    assert_eq!(change(forwarded), ["client_address", "trusted_proxies", "log_client_address"]);
    assert_eq!(change("tls = { cert = \"c.pem\", key = \"k.pem\" }"), ["tls"]);
    assert!(change("[resolver]\ndeadline_ms = 1\n[[vendors]]\nuse = \"people\"").is_empty());
}

#[test]
fn paths_are_relative_to_the_file_that_names_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("enrich.toml");
    std::fs::write(&path, "data = \"d\"\ntls = { cert = \"c.pem\", key = \"/k.pem\" }").unwrap();
    let layers = Layers::new(Some(path.clone()));
    let Merged { config, .. } = layers.clone().merge().unwrap();
    assert_eq!(config.data, dir.path().join("d"));
    assert_eq!(config.tls, Some(Tls { cert: dir.path().join("c.pem"), key: "/k.pem".into() }));
    let Merged { config, .. } = layers.flag("--data", "data", Some("e")).merge().unwrap();
    assert_eq!(config.data, Path::new("e"));
    std::fs::write(&path, "").unwrap();
    assert_eq!(Layers::new(Some(path)).merge().unwrap().config.data, Config::default().data);
}

mod vendor {
    use super::*;
    use enrich_node::sources::Source;

    const ACME: &str = "[[vendors]]\nfile = \"acme.toml\"\n";
    const PDL: &str = "[[vendors]]\nuse = \"people-data-labs\"\nsecret = { file = \"key\" }\n";

    #[test]
    fn vendors_keep_the_order_and_settings_of_the_file() {
        let more = "limits = { tries = 5 }\nqueue = 7\nbreaker = { probes = 1 }\n";
        let text = format!("{ACME}[[vendors]]\nuse = \"people\"\n{PDL}{more}[cache]\nfound_seconds = 60\n");
        let (_, vendors) = read(&text).unwrap();
        let [Source::Vendor(acme), Source::People, Source::Vendor(pdl)] = &vendors.list[..] else {
            panic!("{vendors:?}")
        };
        assert_eq!((acme.name(), acme.policy.queue_max), ("acme", 100));
        assert_eq!((pdl.name(), pdl.policy.queue_max), ("people-data-labs", 7));
        let limits = pdl.provider.description().limits();
        assert_eq!((limits.tries, limits.concurrency, limits.deadline_ms), (5, 16, 8_000));
        assert_eq!(
            (acme.policy.breaker.probes, pdl.policy.breaker.probes, pdl.policy.breaker.window_calls),
            (2, 1, 20)
        );
        let cache = vendors.cache.unwrap();
        assert_eq!((cache.found_ttl.as_secs(), cache.not_found_ttl.as_secs()), (60, 3_600));
    }

    #[test]
    fn vendor_mistakes_name_file_and_line() {
        for (text, message) in [
            (
                "[[vendors]]\nqueue = 1".to_owned(),
                "enrich.toml, line 1, vendors: must have either `use` or `file`",
            ),
            (
                format!("{ACME}use = \"people\""),
                "enrich.toml, line 1, vendors: must have either `use` or `file`",
            ),
            (
                format!("{ACME}queu = 1"),
                "enrich.toml, line 3, vendors.queu: unknown setting `queu`; did you mean `queue`?",
            ),
            (
                "[[vendors]]\nuse = \"pdl\"".to_owned(),
                "enrich.toml, line 2, vendors.use: must be people, contactout,",
            ),
            (
                "[[vendors]]\nuse = \"people\"\nqueue = 1".to_owned(),
                "enrich.toml, line 3, vendors.queue: applies to vendors only",
            ),
            (
                format!("{ACME}{ACME}"),
                "enrich.toml, line 4, vendors.file: the vendor acme is already configured",
            ),
            (
                "[[vendors]]\nfile = \"no.toml\"".to_owned(),
                "enrich.toml, line 2, vendors.file: cannot read no.toml:",
            ),
            (
                "[[vendors]]\nfile = \"bad.toml\"".to_owned(),
                "bad.toml, line 4, request.method: unknown value `PUT`; expected one of `GET`, `POST`",
            ),
            (
                "[[vendors]]\nfile = \"short.toml\"".to_owned(),
                "short.toml, line 7, answer.profile: must have",
            ),
            (format!("{ACME}secret = {{ env = \"X\" }}"), "enrich.toml, line 3, vendors.secret: is not used"),
            (format!("{ACME}queue = 10001"), "enrich.toml, line 3, vendors.queue:"),
            (
                format!("{ACME}limits = {{ tries = 6 }}"),
                "enrich.toml, line 3, vendors.limits.tries: must be from 1 to 5",
            ),
            (
                format!("{ACME}limits = {{ deadline_ms = 10001 }}"),
                "enrich.toml, line 3, vendors.limits.deadline_ms: must be from 1 to 10000",
            ),
            (
                format!("{ACME}breaker = {{ window_calls = 5 }}"),
                "enrich.toml, line 3, vendors.breaker.calls_min:",
            ),
            (
                format!("{ACME}breaker = {{ failure_rate = 2 }}"),
                "enrich.toml, line 3, vendors.breaker.failure_rate:",
            ),
            (
                format!("{ACME}{PDL}[vendors.breaker]\npause_ms = 0"),
                "enrich.toml, line 7, vendors.breaker.pause_ms:",
            ),
        ] {
            let found = mistakes(&text);
            assert!(found.starts_with(message), "{found}");
        }
    }

    #[test]
    fn missing_secret_is_named_by_its_source_and_inline_secret_is_not_quoted() {
        let missing = mistakes("[[vendors]]\nuse = \"hunter\"\nsecret = { env = \"NO_SUCH_KEY\" }");
        let start = "enrich.toml, line 3, vendors.secret: hunter: cannot load the API key from";
        assert!(missing.starts_with(start), "{missing}");
        assert!(missing.contains("the environment variable NO_SUCH_KEY: it is not set"), "{missing}");
        for secret in [
            "\"sk-live\"",
            "{ env = \"sk-live\" }",
            "{ key = \"sk-live\" }",
            "{ file = \"f\", env = \"sk-live\" }",
        ] {
            let message = mistakes(&format!("[[vendors]]\nuse = \"hunter\"\nsecret = {secret}"));
            assert!(message.contains("line 3") && !message.contains("sk-live"), "{secret}: {message}");
        }
    }
}
