//! The commands with valid and invalid arguments, with and without a running server.
#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod enrich;

use enrich::vendor::{Mood, Vendor};
use enrich::{Enrich, Server, bytes_under, eventually};
use serde_json::{Value, json};

const EMAIL: &str = "ada.marlowe@gmail.com";
const URL: &str = "https://www.linkedin.com/in/ada";
/// A person with a low match confidence.
const UNSURE: &str = "bea.marlowe@gmail.com";

/// Writes a file with one person.
fn one_person(enrich: &Enrich) -> String {
    let file = enrich.file("people.csv", format!("email,linkedin_url\n{EMAIL},{URL}\n"));
    file.to_str().unwrap().to_owned()
}

fn status(server: &Server, key: &str, email: &str) -> u16 {
    server.connect().enrich(key, email).unwrap().status
}

/// Checks that `probe` returns `true` within a second.
fn within_a_second(what: &str, probe: impl Fn() -> bool) {
    let started = std::time::Instant::now();
    eventually(what, || probe().then_some(()));
    let took = started.elapsed();
    assert!(took.as_secs() < 3, "{what}: {took:?}"); // one second, with slack for a busy machine
}

mod sample {
    use super::*;

    #[test]
    fn serves_a_lookup_with_the_line_that_it_prints() {
        let enrich = Enrich::new();
        let mut server = enrich.serve(&["--sample"]);
        let curl = server.stdout_line_with("curl ");
        let between =
            |from: &str, to: &str| curl.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
        let (key, email) = (between("Bearer ", "'"), between("\"email\":\"", "\""));
        assert!(curl.contains(&format!("{}/api/v1/person/enrich", server.url)), "{curl}");
        let reply = server.connect().enrich(&key, &email).unwrap();
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.body["profile"]["linkedin_url"],
            "https://www.linkedin.com/in/sample-ada-marlowe-001"
        );
        assert_eq!(enrich.json(&["credits", "show", "demo", "--json"])["granted"], 1_000);
        let log = server.stop();
        assert!(!log.contains(&key) && !log.contains(&email), "{log}");
    }

    #[test]
    fn leaves_data_that_is_there_as_it_is() {
        let (enrich, key) = Enrich::with_key(5, 500);
        let server = enrich.serve(&["--sample"]);
        assert_eq!(status(&server, &key, EMAIL), 404);
        assert_eq!(enrich.json(&["workspace", "list", "--json"]).as_array().unwrap().len(), 1);
    }

    #[test]
    fn does_not_touch_a_directory_of_something_else() {
        let enrich = Enrich::new();
        std::fs::create_dir(enrich.data()).unwrap();
        std::fs::write(enrich.data().join("thesis.txt"), "mine").unwrap();
        let error = enrich.err(&["serve", "--sample"]);
        assert!(error.contains("can't create"), "{error}");
        assert_eq!(std::fs::read_dir(enrich.path("")).unwrap().count(), 1, "nothing is left behind");
    }
}

mod accounts {
    use super::*;

    #[test]
    fn a_workspace_is_listed_with_its_limit_and_credits() {
        let enrich = Enrich::new();
        enrich.ok(&["workspace", "create", "acme", "--credits", "7", "--limit", "9", "--window", "30"]);
        enrich.ok(&["workspace", "create", "bolt"]);
        let list = enrich.json(&["workspace", "list", "--json"]);
        assert_eq!(list[0]["name"], "acme");
        assert_eq!(list[0]["limit"], 9);
        assert_eq!(list[0]["window_seconds"], 30);
        assert_eq!(list[0]["credits"], json!({"granted": 7, "available": 7, "held": 0, "spent": 0}));
        assert_eq!((&list[1]["limit"], &list[1]["window_seconds"]), (&json!(500), &json!(60)));
        let table = enrich.ok(&["workspace", "list"]);
        assert!(
            table.starts_with("NAME  LIMIT         AVAILABLE  HELD  CREATED\nacme  9 per 30 s    7"),
            "{table}"
        );
    }

    #[test]
    fn a_key_is_printed_alone_and_once() {
        let (enrich, key) = Enrich::with_key(1, 500);
        assert_eq!(key.len(), 42);
        assert!(!String::from_utf8_lossy(&bytes_under(&enrich.data())).contains(&key));
        let list = enrich.json(&["key", "list", "demo", "--json"]);
        let Value::Object(row) = &list[0] else { panic!("{list}") };
        let fields: Vec<_> = row.keys().map(String::as_str).collect();
        assert_eq!(fields, ["created_at", "id", "label", "last_used_at", "masked", "revoked_at"]);
        assert_eq!(
            (&row["label"], &row["last_used_at"], &row["revoked_at"]),
            (&json!("test"), &Value::Null, &Value::Null)
        );
        assert!(key.starts_with(row["masked"].as_str().unwrap().trim_end_matches('…')));
        let created = row["created_at"].as_str().unwrap();
        assert!(created.ends_with('Z') && created.contains('T'), "{created}");
    }

    #[test]
    fn grants_add_up() {
        let (enrich, _) = Enrich::with_key(5, 500);
        let granted = enrich.json(&["credits", "grant", "demo", "10", "--json"]);
        assert_eq!(granted, json!({"granted": 15, "available": 15, "held": 0, "spent": 0}));
        assert_eq!(enrich.json(&["credits", "show", "demo", "--json"]), granted);
    }

    #[test]
    fn an_audit_tells_whether_balances_reconcile_with_their_rows() {
        let (enrich, key) = Enrich::with_key(5, 500);
        enrich.ok(&["people", "import", &one_person(&enrich)]);
        let server = enrich.serve(&[]);
        assert_eq!(status(&server, &key, EMAIL), 200);
        assert_eq!(enrich.ok(&["credits", "audit"]), "1 of 1 workspaces reconcile with their rows");
        let audit = enrich.json(&["credits", "audit", "--json"]);
        let spent = json!({"total": 1, "rows": 1});
        assert_eq!((&audit["reconciles"], &audit["workspaces"][0]["spent"]), (&json!(true), &spent));
    }
}

mod while_serving {
    use super::*;

    #[test]
    fn a_revoked_key_is_refused_and_a_new_one_is_taken_within_a_second() {
        let (enrich, key) = Enrich::with_key(5, 500);
        let server = enrich.serve(&[]);
        assert_eq!(status(&server, &key, EMAIL), 404);
        let id = enrich.json(&["key", "list", "demo", "--json"])[0]["id"].as_str().unwrap().to_owned();
        enrich.ok(&["key", "revoke", &id]);
        within_a_second("the revoked key is refused", || status(&server, &key, EMAIL) == 401);
        let new = enrich.ok(&["key", "create", "demo", "second"]);
        within_a_second("the new key is taken", || status(&server, &new, EMAIL) == 404);
    }

    #[test]
    fn a_grant_is_usable_within_a_second() {
        let (enrich, key) = Enrich::with_key(0, 1_000_000);
        let server = enrich.serve(&[]);
        assert_eq!(status(&server, &key, EMAIL), 402);
        enrich.ok(&["credits", "grant", "demo", "1"]);
        within_a_second("the credit is there", || status(&server, &key, EMAIL) == 404);
    }

    #[test]
    fn people_are_found_and_opt_out_within_a_second() {
        let (enrich, key) = Enrich::with_key(1_000_000, 1_000_000);
        let server = enrich.serve(&[]);
        let file = one_person(&enrich);
        assert_eq!(status(&server, &key, EMAIL), 404);
        enrich.ok(&["people", "import", &file]);
        within_a_second("the person is found", || status(&server, &key, EMAIL) == 200);
        enrich.ok(&["people", "suppress", "Ada.Marlowe+x@googlemail.com"]);
        within_a_second("the person is not found", || status(&server, &key, EMAIL) == 404);
        let imported = enrich.json(&["people", "import", &file, "--json"]);
        assert_eq!((&imported["changed"], &imported["unchanged"]), (&json!(0), &json!(1)));
        assert_eq!(
            enrich.json(&["people", "stats", "--json"]),
            json!({"people": 0, "untrusted": 0, "suppressed": 1})
        );
    }

    #[test]
    fn spends_and_last_uses_are_shown() {
        let (enrich, key) = Enrich::with_key(5, 500);
        enrich.ok(&["people", "import", &one_person(&enrich)]);
        let server = enrich.serve(&[]);
        assert_eq!(status(&server, &key, EMAIL), 200);
        let credits = enrich.json(&["credits", "show", "demo", "--json"]);
        assert_eq!(credits["spent"], 1, "a spend is on the disk before it is answered");
        within_a_second("the use is shown", || {
            !enrich.json(&["key", "list", "demo", "--json"])[0]["last_used_at"].is_null()
        });
    }

    #[test]
    fn a_second_server_on_the_same_data_is_refused() {
        let (enrich, _) = Enrich::with_key(5, 500);
        let _server = enrich.serve(&[]);
        let error = enrich.err(&["serve", "--listen", "127.0.0.1:0"]);
        assert!(error.contains("is already being served by another process"), "{error}");
    }

    #[test]
    fn one_line_a_lookup_is_logged_without_email_key_or_profile() {
        let (enrich, key) = Enrich::with_key(5, 500);
        enrich.ok(&["people", "import", &one_person(&enrich)]);
        for format in ["text", "json"] {
            let server = enrich.serve(&["--log-format", format]);
            let found = server.connect().enrich(&key, EMAIL).unwrap();
            assert_eq!(status(&server, &key, "bea@gmail.com"), 404);
            let log = server.stop();
            let lookup_id = found.body["lookup_id"].as_str().unwrap();
            let line: Vec<_> = log.lines().filter(|line| line.contains(lookup_id)).collect();
            assert_eq!(line.len(), 1, "{log}");
            for part in ["demo", "found", "duration_us"] {
                assert!(line[0].contains(part), "{}", line[0]);
            }
            for secret in [key.as_str(), "marlowe", "bea@", "linkedin.com/in"] {
                assert!(!log.to_lowercase().contains(secret), "{log}");
            }
        }
    }
}

mod lookup {
    use super::*;

    #[test]
    fn asks_a_running_server() {
        let (enrich, key) = Enrich::with_key(1, 3);
        enrich.ok(&["people", "import", &one_person(&enrich)]);
        let server = enrich.serve(&[]);
        let ask = |email: &str, key: &str| enrich.run(&["lookup", email, "--key", key, "--url", &server.url]);
        let found: Value = serde_json::from_str(&ask(EMAIL, &key).stdout).unwrap();
        assert_eq!(found["profile"]["linkedin_url"], URL);
        for (email, key, told) in [
            (EMAIL, key.as_str(), "credits grant"),
            ("ada", key.as_str(), "invalid_email"),
            (EMAIL, key.as_str(), "try again in"),
            (EMAIL, "enr_wrong", "key create"),
        ] {
            let ran = ask(email, key);
            assert!(!ran.success && ran.stderr.contains(told), "{told}: {}", ran.stderr);
        }
    }

    #[test]
    fn asks_over_tls_and_trusts_no_one_by_itself() {
        let (enrich, key) = Enrich::with_key(1, 500);
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let cert = enrich.file("cert.pem", cert.pem()).to_str().unwrap().to_owned();
        let secret = enrich.file("key.pem", signing_key.serialize_pem()).to_str().unwrap().to_owned();
        let server = enrich.serve(&["--tls-cert", &cert, "--tls-key", &secret]);
        assert!(server.url.starts_with("https://"), "{}", server.url);
        let ask = ["lookup", EMAIL, "--key", &key, "--url", &server.url];
        assert!(enrich.ok(&[&ask[..], &["--tls-ca", &cert]].concat()).contains("\"not_found\""));
        assert!(enrich.err(&ask).contains("--tls-ca"));
    }

    #[test]
    fn says_what_to_do_when_nobody_answers() {
        let enrich = Enrich::new();
        let error = enrich.err(&["lookup", EMAIL, "--key", "enr_x", "--url", "http://127.0.0.1:1"]);
        assert!(
            error.contains("can't reach http://127.0.0.1:1") && error.contains("enrich serve"),
            "{error}"
        );
        assert!(!error.contains(EMAIL), "{error}");
        for url in ["ftp://x", "127.0.0.1:8080", "localhost", "http://", ""] {
            let error = enrich.err(&["lookup", EMAIL, "--key", "enr_x", "--url", url]);
            assert!(error.contains("is no http or https URL"), "{url}: {error}");
        }
    }
}

mod mistakes {
    use super::*;

    #[test]
    fn each_says_what_happened_and_what_to_do() {
        let empty = Enrich::new();
        let (full, _) = Enrich::with_key(1, 500);
        let bad_config = full.file("bad.toml", "[price]\nfuond = 1\n");
        let pem = full.file("not.pem", "hello");
        for (enrich, args, told) in [
            (&empty, "serve", "enrich serve --sample"),
            (&empty, "workspace list", "enrich workspace create NAME"),
            (&empty, "credits show demo", "there is no data in"),
            (&empty, "people stats", "there is no data in"),
            (&full, "workspace create demo", "there is already a workspace demo"),
            (&full, "workspace create a/b", "letters, digits"),
            (&full, "workspace create new --limit 0", "at least 1 request"),
            (&full, "workspace create new --window 86401", "86,400 seconds"),
            (&full, "workspace create new --credits 9223372036854775808", "that many credits"),
            (&full, "credits show nobody", "enrich workspace list"),
            (&full, "credits grant demo 0", "0 is not in 1.."),
            (&full, "credits grant demo -5", "-5"),
            (&full, "credits grant demo 9223372036854775807", "that many credits"),
            (&full, "key create nobody label", "there is no workspace nobody"),
            (&full, "key create demo two\nlines", "on one line"),
            (&full, "key list nobody", "there is no workspace nobody"),
            (&full, "key revoke key_00000000", "enrich key list"),
            (&full, "people suppress ada", "no local part"),
            (&full, "people import nowhere.csv", "can't read nowhere.csv"),
            (&full, "serve --listen 0.0.0.0:0", "--plaintext"),
            (&full, "serve --listen 192.0.2.1:1 --plaintext", "can't listen on 192.0.2.1:1"),
            (&full, "serve --tls-cert x.pem", "--tls-key"),
            (&full, "serve --config nowhere.toml", "can't read nowhere.toml"),
            (&full, &format!("serve --config {}", bad_config.display()), "line 2"),
            (&full, &format!("serve --tls-cert {0} --tls-key {0}", pem.display()), "not.pem"),
        ] {
            let args: Vec<_> = args.split(' ').collect();
            let error = enrich.err(&args);
            assert!(error.starts_with("error: ") && error.contains(told), "{args:?}: {error}");
        }
        assert_eq!(
            full.json(&["workspace", "list", "--json"]).as_array().unwrap().len(),
            1,
            "nothing was made"
        );
    }
}

mod config {
    use super::*;

    #[test]
    fn settings_are_obeyed_and_flags_win() {
        let (enrich, key) = Enrich::with_key(10, 500);
        enrich.ok(&["people", "import", &one_person(&enrich)]);
        let file = enrich.file(
            "enrich.toml",
            "listen = \"127.0.0.1:1\"\n[price]\nfound = 3\nnot_found = 2\n[emails]\nproviders_allowed = [\"Gmail.com\"]\n",
        );
        let server = enrich.serve(&["--config", file.to_str().unwrap()]);
        assert_eq!(status(&server, &key, EMAIL), 200);
        assert_eq!(status(&server, &key, "bea@gmail.com"), 404);
        assert_eq!(status(&server, &key, "ada@outlook.com"), 400);
        assert_eq!(enrich.json(&["credits", "show", "demo", "--json"])["spent"], 5);
    }

    #[test]
    fn flags_win_over_the_file_and_the_environment_does_too() {
        let (enrich, key) = Enrich::with_key(100, 500);
        let people = format!("email,linkedin_url,confidence\n{EMAIL},{URL},1\n{UNSURE},{URL}-unsure,0.85\n");
        enrich.ok(&["people", "import", enrich.file("people.csv", people).to_str().unwrap()]);
        let spent = || enrich.json(&["credits", "show", "demo", "--json"])["spent"].as_u64().unwrap();
        let settings = "[price]\nfound = 3\nnot_found = 2\n[people]\nconfidence_min = 0.7\n";
        let file = enrich.file("enrich.toml", settings);
        let file = file.to_str().unwrap();
        let flags = ["--price-found", "7", "--price-not-found", "5", "--confidence-min", "0.9"];
        let variables = [
            ("ENRICH_PRICE_FOUND", "7"),
            ("ENRICH_PRICE_NOT_FOUND", "5"),
            ("ENRICH_CONFIDENCE_MIN", "0.9"),
            ("ENRICH_CONFIG", file),
        ];
        for (variables, args) in [
            (&[][..], &[&["--config", file], &flags[..]].concat()[..]),
            (&[], &flags),
            (&variables, &[]),
            (&[("ENRICH_PRICE_FOUND", "1"), ("ENRICH_PRICE_NOT_FOUND", "1")], &flags),
        ] {
            let server = enrich.serve_where(variables, args);
            let before = spent();
            assert_eq!(status(&server, &key, EMAIL), 200);
            assert_eq!(status(&server, &key, UNSURE), 404);
            assert_eq!(spent() - before, 7 + 5);
            server.stop();
        }
        for index in ["memory", "disk"] {
            let server = enrich.serve(&["--config", file, "--people-index", index]);
            assert_eq!([EMAIL, UNSURE].map(|email| status(&server, &key, email)), [200, 200], "{index}");
            server.stop();
        }
    }

    #[test]
    fn a_flag_is_held_to_the_same_limits_as_its_setting_and_other_settings_to_the_flag() {
        let enrich = Enrich::with_key(1, 500).0;
        enrich.file("acme.toml", Vendor::that(Mood::KnowsNobody).description("acme"));
        enrich.file("acme.key", "s3cret");
        let limits = "limits = { deadline_ms = 6000 }";
        let file = enrich.file("enrich.toml", format!("[[vendors]]\nfile = \"acme.toml\"\n{limits}"));
        let error = enrich.err(&["serve", "--config", file.to_str().unwrap(), "--deadline-ms", "5000"]);
        assert!(error.contains("line 3, vendors.limits.deadline_ms: has to be from 1 to 5000"), "{error}");
        for (flag, value) in [
            ("--deadline-ms", "20001"),
            ("--deadline-ms", "0"),
            ("--confidence-min", "1.1"),
            ("--confidence-min", "nan"),
            ("--people-index", "paper"),
            ("--price-found", "-1"),
        ] {
            let error = enrich.err(&["serve", &format!("{flag}={value}")]);
            assert!(error.contains(flag) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn each_kind_of_email_is_looked_up_if_the_settings_say_so() {
        let (enrich, key) = Enrich::with_key(10, 500);
        enrich.file("disposable.txt", "# ours\nthrowaway.name\n");
        let emails = ["ada@mailinator.com", "ada@throwaway.name", "ada@duck.com", "info@marlowe.name"];
        for (settings, statuses) in [
            ("", [400, 404, 400, 400]),
            ("disposable_file = \"disposable.txt\"", [400, 400, 400, 400]),
            ("refuse_disposable = false", [404, 404, 400, 400]),
            ("refuse_relays = false", [400, 404, 404, 400]),
            ("refuse_roles = false", [400, 404, 400, 404]),
        ] {
            let server = enrich.serve_with(&enrich.file("enrich.toml", format!("[emails]\n{settings}\n")));
            assert_eq!(emails.map(|email| status(&server, &key, email)), statuses, "{settings}");
        }
    }
}
