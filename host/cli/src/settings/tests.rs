mod effects;
mod example;

use std::path::Path;
use std::time::Duration;

use enrich_host::{ClientAddress, Limits};
use enrich_lib::credit::Price;
use enrich_lib::email::EmailPolicy;
use enrich_lib::lookup::Policy;
use enrich_node::sources::Sources;
use enrich_postgres::Ledger;
use enrich_redis::RedisPolicy;
use enrich_sqlite::People;
use enrich_vendors::middleware::Deadline;

use super::config::{Config, DATA, Tls};
use super::convert::RESOLVER_DEADLINE_MAX;
use super::layers::{Layers, Merged, differences};
use super::with_sources;

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
    let checked = with_sources(&Layers::new(Some(path)));
    let checked = checked.map(|(Merged { config, .. }, sources)| (config, sources));
    checked.map_err(|error| error.to_string().replace(&place, ""))
}

fn mistakes(text: &str) -> String {
    read(text).map(drop).expect_err(text)
}

#[test]
fn empty_file_has_the_defaults() {
    let (config, vendors) = read("").unwrap();
    assert_eq!((config.price(), vendors.deadline), (Price::default(), Deadline::BUDGET));
    assert_eq!(
        (config.data.as_path(), config.people.confidence_min),
        (Path::new(DATA), People::CONFIDENCE_MIN)
    );
    let limits = Limits { lookup_timeout: Duration::from_millis(59_100), ..Limits::default() };
    assert_eq!(config.connections.max, limits.connections_max);
    assert_eq!(format!("{:?}", config.limits(limits.connections_max)), format!("{limits:?}"));
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
}

#[test]
fn mistakes_name_their_line_and_setting() {
    for (text, message) in [
        (
            "plaintext = true\n[people]\nconfidence = 1",
            "line 3, people.confidence: unknown setting `confidence`; did you mean `confidence_min`?",
        ),
        ("[people]\nconfidence_min = nan", "line 2, people.confidence_min: must be from 0 to 1"),
        ("connections = { body_ms = 3600001 }", "line 1, connections.body_ms: must be from 1 to 3600000"),
        ("workers = 0", "line 1, workers: must be from 1 to 1024"),
        ("admin.listen = 8080", "line 1, admin.listen: 127.0.0.1:8080 is in use by `listen`"),
        ("admin.listen = \"[::]:8080\"", "line 1, admin.listen: [::]:8080 is in use by `listen`"),
        (
            "listen = \"0.0.0.0:80\"\nconsole.listen = 80",
            "line 2, console.listen: 127.0.0.1:80 is in use by `listen`",
        ),
        (
            "admin.listen = \"[::]:81\"\nconsole.listen = \"[::1]:81\"",
            "line 1, admin.listen: [::]:81 is in use by `console.listen`",
        ),
        ("log_format = \"jsn\"", "line 1, log_format: unknown value `jsn`; expected one of `text`, `json`"),
        ("[price]\n\nfound = \"one\"", "line 3, price.found: expected a whole number, got text"),
        ("[price]\nfound = 1 2", "line 2, found: "),
        ("[price]\nfound = 1\nfound = 2", "line 3, found: duplicate key"),
        ("tls = { cert = \"c.pem\" }", "line 1, tls.key: must be set"),
        ("people.key = \"beef\"", "line 1, people.key: must be 32 hexadecimal digits"),
        (
            "windows = 5",
            "line 1, windows: expected a text, { env = \"NAME\" } or { file = \"PATH\" }, got the number 5",
        ),
        ("client_address = \"off\"", "line 1, client_address: unknown value `off`"),
        ("client_address = \"forwarded\"", "line 1, client_address: needs `trusted_proxies`"),
        (
            "plaintext = true\ntrusted_proxies = [\"10.0.0.0/8\"]",
            "line 2, trusted_proxies: needs client_address",
        ),
        ("[cache]", "line 1, cache: needs a vendor"),
        ("[cache]\n[[vendors]]\nuse = \"people\"", "line 1, cache: needs a vendor"),
    ] {
        let found = mistakes(text);
        assert!(found.starts_with(&format!("enrich.toml, {message}")), "{found}");
    }
}

#[test]
fn listeners_may_share_a_port_but_no_address() {
    for text in [
        "listen = 0\nadmin.listen = 0\nconsole.listen = 0",
        "listen = \"fd://a\"\nadmin.listen = \"fd://a\"",
        "admin.listen = \"127.0.0.2:8080\"\nconsole.listen = \"[::1]:8080\"",
    ] {
        assert_eq!(read(text).map(drop), Ok(()), "{text}");
    }
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
fn invalid_domain_is_reported_by_line_and_not_quoted() {
    for (number, line) in (1..).zip(NO_DOMAINS) {
        let message =
            mistakes(&format!("[emails]\nrefuse_roles = true\ndisposable_file = \"bad-{number}.txt\""));
        let expected = format!("emails.disposable_file: bad-{number}.txt, line 3: must be one domain");
        assert_eq!(message, format!("enrich.toml, line 3, {expected}"), "{line}");
    }
    for line in NO_DOMAINS.into_iter().chain(["", "@gmail.com"]) {
        let message = mistakes(&format!("[emails]\nproviders_allowed = [\"gmail.com\", {line:?}]"));
        let expected = "emails.providers_allowed: each must be one domain, such as \"gmail.com\"";
        assert_eq!(message, format!("enrich.toml, line 2, {expected}"), "{line}");
    }
    let message = mistakes("emails.providers_allowed = []");
    let expected = "must not be empty, because all lookups would be refused; omit it to allow all domains";
    assert_eq!(message, format!("enrich.toml, line 1, emails.providers_allowed: {expected}"));
    let message = mistakes("[emails]\ndisposable_file = \"no.txt\"");
    assert!(
        message.starts_with("enrich.toml, line 2, emails.disposable_file: cannot read no.txt: "),
        "{message}"
    );
    let message = mistakes("[emails]\nrefuse_disposable = false\ndisposable_file = \"disposable.txt\"");
    assert!(message.starts_with("enrich.toml, line 3, emails.disposable_file: requires"), "{message}");
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
    let table = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("enrich.toml");
        std::fs::write(&path, text).unwrap();
        Layers::new(Some(path)).merge().unwrap().table
    };
    let change = |text| differences(&table(""), &table(text));
    let names = ["price.found", "connections.max"];
    assert_eq!(change("[price]\nfound = 2\n[connections]\nmax = 1"), names);
    assert_eq!(change("[credits]\nin_doubt_ms = 1000"), ["credits.in_doubt_ms"]);
    assert_eq!(change("[credits]\nin_doubt_ms = 30000"), [""; 0]);
    assert_eq!(change("workers = 2\nlog_format = \"json\""), ["workers", "log_format"]);
    let forwarded =
        "log_client_address = true\nclient_address = \"x-forwarded-for\"\ntrusted_proxies = [\"::1\"]";
    assert_eq!(change(forwarded), ["client_address", "trusted_proxies", "log_client_address"]);
    let reloaded = "tls = { cert = \"c.pem\", key = \"k.pem\" }\n[resolver]\ndeadline_ms = 1\n[cache]\nentries = 7\n[[vendors]]\nuse = \"people\"";
    assert!(change(reloaded).is_empty());
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
    assert_eq!(Layers::new(Some(path)).merge().unwrap().config.data, Path::new(DATA));
}

const ACME: &str = "[[vendors]]\nfile = \"acme.toml\"\n";

mod vendor {
    use super::*;
    use enrich_node::sources::Source;

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
        const EITHER: &str = "line 1, vendors: must have either `use` or `file`";
        let vendor = |text: &str| format!("[[vendors]]\n{text}");
        let acme = |text: &str| format!("{ACME}{text}");
        for (text, message) in [
            (vendor("queue = 1"), EITHER),
            (acme("use = \"people\""), EITHER),
            (acme("queu = 1"), "line 3, vendors.queu: unknown setting `queu`; did you mean `queue`?"),
            (vendor("use = \"pdl\""), "line 2, vendors.use: must be people, contactout,"),
            (vendor("use = \"people\"\nqueue = 1"), "line 3, vendors.queue: applies to vendors only"),
            (acme(ACME), "line 4, vendors.file: the vendor acme is already configured"),
            (vendor("file = \"no.toml\""), "line 2, vendors.file: cannot read no.toml:"),
            (acme("secret = { env = \"X\" }"), "line 3, vendors.secret: is not used"),
            (acme("limits = { tries = 6 }"), "line 3, vendors.limits.tries: must be from 1 to 5"),
            (
                acme("limits = { deadline_ms = 10001 }"),
                "line 3, vendors.limits.deadline_ms: must be from 1 to 10000",
            ),
            (acme("breaker = { window_calls = 5 }"), "line 3, vendors.breaker.calls_min:"),
            (acme(&format!("{PDL}[vendors.breaker]\npause_ms = 0")), "line 7, vendors.breaker.pause_ms:"),
        ] {
            let found = mistakes(&text);
            assert!(found.starts_with(&format!("enrich.toml, {message}")), "{found}");
        }
        for (file, message) in [
            (
                "bad.toml",
                "bad.toml, line 4, request.method: unknown value `PUT`; expected one of `GET`, `POST`",
            ),
            ("short.toml", "short.toml, line 7, answer.profile: must have"),
        ] {
            let found = mistakes(&vendor(&format!("file = \"{file}\"")));
            assert!(found.starts_with(message), "{found}");
        }
    }

    #[test]
    fn missing_secret_is_named_by_its_source_and_inline_secret_is_not_quoted() {
        let missing = mistakes("[[vendors]]\nuse = \"hunter\"\nsecret = { env = \"NO_SUCH_KEY\" }");
        let start = "enrich.toml, line 3, vendors.secret: hunter: cannot load the secret from";
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
