//! The commands and the server on PostgreSQL, and several nodes. The contract proves that both databases
//! administer alike.

use crate::enrich::{EMAIL, Enrich, PEOPLE_KEY, block_on, preload};
use crate::transcripts::transcript;
use enrich_tests::eventually;
use enrich_tests::servers::{Postgres, Proxy};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

mod administration {
    use super::*;

    #[test]
    fn audit_finds_each_damage() {
        let server = Postgres::shared();
        let name = block_on(server.create_database());
        let enrich = Enrich::with_database(server.url(&name));
        enrich.make_key(5, 500);
        let check = |damage| {
            block_on(server.sql(&name, damage));
            let audit = enrich.run(&["check", "--json"]);
            assert!(
                !audit.success && audit.stderr.contains("do not reconcile"),
                "{damage}: {}",
                audit.stderr
            );
            serde_json::from_str::<Value>(&audit.stdout).unwrap()["credits"].clone()
        };
        let output = check("DROP TRIGGER credit_spend_append_only ON credit_spend");
        let error = output["errors"][0].as_str().unwrap();
        assert!(error.contains("credit_spend_append_only is missing"), "{output}");
        let output = check("UPDATE workspace SET granted = 6");
        assert_eq!(output["workspaces"][0]["granted"], json!({"total": 6, "rows": 5}));
    }

    #[test]
    fn clock_that_differs_from_that_of_the_server_is_reported() {
        let enrich = Enrich::on_postgresql();
        let preload = format!("LD_PRELOAD={}", preload::library(&enrich, "wrong_clock").display());
        let shifted = |ahead: &str, command: &[&str]| {
            let clock = format!("CLOCK_AHEAD={ahead}");
            let ran = enrich.run(&[&[preload.as_str(), clock.as_str()], command].concat());
            assert!(ran.success, "{}", ran.stderr);
            ran
        };
        assert!(!shifted("10", &["workspace", "create", "demo"]).stderr.contains("clock"));
        let behind = shifted("-86400", &["key", "create", "demo", "old"]);
        assert!(behind.stderr.starts_with("warning: the clock of this machine is 86"), "{}", behind.stderr);
        assert!(behind.stderr.contains("s behind that of the database") && behind.stdout.starts_with("enr_"));
        let server = enrich.serve(&[&preload, "CLOCK_AHEAD=3600"]);
        server.wait_for_log("s ahead of that of the database", 1);
        server.stop();
    }

    #[test]
    fn change_in_doubt_names_the_command_that_shows_it() {
        let (server, runtime) = (Postgres::shared(), tokio::runtime::Runtime::new().unwrap());
        let name = runtime.block_on(server.create_database());
        Enrich::with_database(server.url(&name)).make_key(5, 500);
        let wait_at_commit = "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON credit_grant DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION wait();
             CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON api_key DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION wait()";
        let locker = runtime.block_on(server.client(&name));
        runtime.block_on(locker.batch_execute(wait_at_commit)).unwrap();
        runtime.block_on(locker.execute("SELECT pg_advisory_lock(1)", &[])).unwrap();
        let proxy = runtime.block_on(Proxy::start(server.port()));
        let enrich = Enrich::with_database(format!("postgres://postgres@localhost:{}/{name}", proxy.port()));
        let key = enrich.key_id("demo", 0);
        let grant = "check `enrich credits ledger demo`";
        let waiting = async |is_ended: bool| {
            let select = "SELECT count(*), count(CASE WHEN $1 THEN pg_terminate_backend(pid) END)
                 FROM pg_locks JOIN pg_database d ON d.oid = database
                 WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted";
            locker.query_one(select, &[&is_ended]).await.unwrap().get::<_, i64>(0)
        };
        // The server ends the session with an error, or the connection is lost. The session of the last one keeps waiting.
        for (change, is_ended, advice) in [
            (&["credits", "grant", "demo", "7"][..], true, grant),
            (&["credits", "grant", "demo", "-2", "--reason", "typo"], true, grant),
            (
                &["key", "create", "demo", "till"],
                true,
                "if `enrich key list demo` shows it, and create another",
            ),
            (&["key", "rotate", &key, "--grace", "0"], false, "create another one with `enrich key create`"),
        ] {
            let changed = std::thread::scope(|scope| {
                let changing = scope.spawn(|| enrich.run(change));
                runtime.block_on(eventually("the commit waits", async || waiting(is_ended).await == 1));
                proxy.close_open();
                changing.join().unwrap()
            });
            if is_ended {
                runtime.block_on(eventually("the session has ended", async || waiting(false).await == 0));
            }
            let advice = ["the change may have been made; ", advice];
            assert!(!changed.success, "{}", changed.stderr);
            assert!(advice.iter().all(|advice| changed.stderr.contains(advice)), "{}", changed.stderr);
        }
    }

    #[test]
    fn views_show_times_and_names_as_commands_do() {
        let server = Postgres::shared();
        let name = block_on(server.create_database());
        let enrich = Enrich::with_database(server.url(&name));
        let before = SystemTime::now() - Duration::from_secs(1);
        let key = enrich.make_key(5, 500);
        enrich.import_ada();
        let node = enrich.serve(&[]);
        assert_eq!(node.connect().enrich(&key, EMAIL).unwrap().status, 200);
        node.stop(); // writes the usage
        let times = "SELECT 'workspaces', workspace, created_at FROM workspaces
             UNION ALL SELECT 'api_keys', workspace, created_at FROM api_keys
             UNION ALL SELECT 'credit_grants', workspace, at FROM credit_grants
             UNION ALL SELECT 'credit_spends', workspace, at FROM credit_spends
             UNION ALL SELECT 'usage_days', workspace, day + interval '1 day' FROM usage_days
             UNION ALL SELECT 'audit_events', workspace, at FROM audit_events";
        let names =
            "SELECT s.lookup_id, s.key, u.key FROM credit_spends s JOIN usage_days u USING (workspace)";
        let (times, names) = block_on(async {
            let client = server.client(&name).await;
            (client.query(times, &[]).await.unwrap(), client.query_one(names, &[]).await.unwrap())
        });
        assert_eq!(times.iter().map(|row| row.get(0)).collect::<BTreeSet<&str>>().len(), 6);
        for row in times {
            let (view, workspace, time): (&str, &str, SystemTime) = (row.get(0), row.get(1), row.get(2));
            assert!(workspace == "demo" && before < time, "{view}: {workspace}, {time:?}");
        }
        let spend = &enrich.json(&["credits", "ledger", "demo", "--json"])[1];
        let names: [&str; 3] = [0, 1, 2].map(|column| names.get(column));
        assert_eq!(
            names.map(Value::from),
            [&spend["lookup_id"], &spend["key"], &spend["key"]].map(Value::clone)
        );
    }

    #[test]
    fn transcript_of_migrations() {
        let server = Postgres::shared();
        let name = block_on(server.create_empty_database());
        let enrich = Enrich::with_database(server.url(&name));
        let mut text = transcript(
            &enrich,
            &[
                "workspace list",
                "serve --listen 127.0.0.1:0",
                "migrate --check",
                "migrate --check",
                "migrate",
                "migrate",
                "migrate --json",
                "migrate --check",
                "migrate --check --json",
                "workspace list --json",
            ],
        );
        let version = enrich.json(&["migrate", "--json"])["version"].as_u64().unwrap();
        // A node of the previous version can run the command before it starts.
        for _ in 0..2 {
            block_on(server.sql(&name, "INSERT INTO migration SELECT max(n) + 1 FROM migration"));
            text += &transcript(&enrich, &["migrate --check", "migrate"]);
        }
        text += &transcript(&enrich, &["workspace list", "serve --listen 127.0.0.1:0"]);
        let masks = ["[version]", "[version + 1]", "[version + 2]"];
        for (version, mask) in (version..).zip(masks) {
            let number = Regex::new(&format!(r#"(version"?[ :]|found":|from":){version}\b"#)).unwrap();
            text = number.replace_all(&text, format!("${{1}}{mask}")).into_owned();
        }
        insta::assert_snapshot!(text.replace(enrich.database(), "[url]"));
    }
}

mod mistakes {
    use super::*;

    #[test]
    fn of_arguments_on_postgresql() {
        let enrich = Enrich::on_postgresql();
        enrich.make_key(1, 500);
        let lines = [
            "workspace create demo",
            "workspace list --data nowhere",
            "serve --sample",
            "serve --windows nonsense",
        ];
        insta::assert_snapshot!(transcript(&enrich, &lines));
    }

    #[test]
    fn of_databases_that_cannot_be_used() {
        let server = Postgres::shared();
        let port = server.tcp_url("x").rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
        let urls = [
            "postgres://enrich:hunter2@127.0.0.1:1/enrich",
            &format!("postgres://unknown:hunter2@localhost:{port}/enrich?sslmode=disable"),
            &format!("postgres://postgres:hunter2@localhost:{port}/nowhere?sslmode=disable"),
            "mysql://enrich:hunter2@db/enrich",
            "postgres://enrich:hunter2@/",
        ];
        let enrich = Enrich::new();
        let lines = urls.map(|url| {
            ["workspace list", "migrate", "check"].map(|command| format!("{command} --database {url}"))
        });
        let lines: Vec<_> = lines.iter().flatten().map(String::as_str).collect();
        insta::assert_snapshot!(transcript(&enrich, &lines).replace(&port, "[port]"));
    }

    #[test]
    fn reports_a_wrong_password_without_printing_it() {
        let access = "local all all trust\nhost all all all scram-sha-256\n";
        let server = Postgres::start_with(&["fsync=off"], &[("pg_hba.conf", access)]);
        block_on(server.sql("postgres", "ALTER ROLE postgres PASSWORD 'correct horse'"));
        let url = |password: &str| {
            server.tcp_url("postgres").replace("postgres@", &format!("postgres:{password}@"))
                + "?sslmode=disable"
        };
        let enrich = Enrich::new();
        let error = enrich.err(&["migrate", "--database", &url("hunter2")]);
        assert!(
            error.contains("password authentication failed") && error.contains("ENRICH_DATABASE"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
        enrich.ok(&["migrate", "--database", &url("correct%20horse")]);
    }

    #[test]
    fn reads_urls_from_other_files_without_printing_them() {
        let enrich = Enrich::new();
        let secret = "postgres://enrich:hunter2@127.0.0.1:1/enrich";
        enrich.file("database.url", format!("{secret}\n"));
        for setting in [format!("\"{secret}\""), "{ file = \"database.url\" }".to_owned()] {
            let text = format!(
                "database = {setting}\nwindows = \"redis://:hunter2@127.0.0.1:1\"\npeople.key = \"{}\"\n",
                PEOPLE_KEY.1
            );
            let file = enrich.file("enrich.toml", text);
            let file = file.to_str().unwrap();
            let output = enrich.ok(&["config", "check", file]);
            assert!(
                output.contains("accounts: PostgreSQL at postgres://enrich@127.0.0.1:1/enrich"),
                "{output}"
            );
            assert!(output.contains("rate limits: Redis at redis://127.0.0.1:1"), "{output}");
            let error = enrich.err(&["serve", "--config", file]);
            assert!(!output.contains("hunter2") && !error.contains("hunter2"), "{output}{error}");
            assert!(!output.contains(PEOPLE_KEY.1) && !error.contains(PEOPLE_KEY.1), "{output}{error}");
        }
        let file = enrich.file("enrich.toml", "database = { env = \"NO_SUCH_VARIABLE\" }\n");
        let error = enrich.err(&["config", "check", file.to_str().unwrap()]);
        assert!(error.contains("NO_SUCH_VARIABLE: it is not set"), "{error}");
    }
}
