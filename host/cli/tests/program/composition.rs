//! Behaviour that depends on how `enrich serve` connects parts that have tests of their own.

use std::io::{Read, Write};
use std::time::Duration;

use super::commands::console::{CLIENT, PASSWORD, Page, join, sign_in};
use super::commands::status;
#[cfg(feature = "servers")]
use crate::enrich::block_on;
use crate::enrich::{EMAIL, Enrich, dial, eventually, within};
#[cfg(feature = "servers")]
use enrich_tests::servers::{Postgres, Redis};

#[cfg(feature = "servers")]
#[test]
fn minimum_confidence_applies_to_the_directory_and_the_database() {
    for enrich in [Enrich::new(), Enrich::on_postgresql()] {
        let key = enrich.make_key(9, 500);
        let rows = format!("email,linkedin_url,confidence\n{EMAIL},linkedin.com/in/ada-marlowe,0.5\n");
        enrich.file("people.csv", rows);
        enrich.ok(&["people", "import", "people.csv"]);
        for (min, untrusted, expected) in [("0.4", 0, 200), ("0.6", 1, 404)] {
            let min = format!("ENRICH_PEOPLE_CONFIDENCE_MIN={min}");
            assert_eq!(enrich.json(&[&min, "people", "stats", "--json"])["untrusted"], untrusted);
            assert_eq!(status(&enrich.serve(&[&min]), &key, EMAIL), expected);
        }
    }
}

#[test]
fn web_application_reads_addresses_from_its_proxies() {
    for (proxies, expected) in [("127.0.0.1", CLIENT), ("10.0.0.0/8", "127.0.0.1")] {
        let (enrich, _) = Enrich::with_key(1, 500);
        let settings = format!(
            "client_address = \"x-forwarded-for\"\ntrusted_proxies = [\"{proxies}\"]\nconsole.listen = 0\n"
        );
        let server = enrich.serve_with(&enrich.file("enrich.toml", settings));
        let console = server.console_url();
        let link = enrich.ok(&["user", "invite", "demo", "eva@example.com", "--url", &console]);
        let joined = join(&link);
        assert_eq!(joined.status, 303, "{}", joined.body);
        let db = rusqlite::Connection::open(enrich.data().join("accounts.db")).unwrap();
        let select = "SELECT address FROM audit_event WHERE action = 'member.joined'";
        let address: String = db.query_row(select, [], |row| row.get(0)).unwrap();
        assert_eq!(address, expected);
    }
}

#[cfg(feature = "servers")]
#[test]
fn web_applications_of_several_nodes_count_attempts_together() {
    let (enrich, redis) = (Enrich::on_postgresql(), Redis::start());
    enrich.ok(&["workspace", "create", "demo"]);
    let redis = format!("ENRICH_WINDOWS={}", redis.url());
    let node = || enrich.serve(&[&redis, "ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let nodes = [node(), node()];
    let statuses = |email| {
        let attempts = nodes.iter().cycle().take(11);
        attempts.map(|node| sign_in(&node.console_url(), email, "wrong").status).collect::<Vec<_>>()
    };
    // Again, if a window ends between the attempts.
    let expected = [[401; 10].as_slice(), &[429]].concat();
    assert!(["eva@example.com", "bea@example.com"].into_iter().any(|email| statuses(email) == expected));
}

#[cfg(feature = "servers")]
#[test]
fn web_application_serves_on_after_the_database_ended_its_sessions() {
    let enrich = Enrich::on_postgresql();
    enrich.ok(&["workspace", "create", "demo"]);
    let server = enrich.serve(&["ENRICH_WINDOWS=memory", "ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let sign_in = || sign_in(&server.console_url(), "eva@example.com", "wrong").status;
    assert_eq!(sign_in(), 401);
    let (_, database) = enrich.database().rsplit_once('/').unwrap();
    let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    block_on(Postgres::shared().sql(database, end));
    assert_eq!([(); 2].map(|()| sign_in()), [401, 401]);
}

#[test]
fn examples_have_the_public_url_of_the_api() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let url = "https://api.example.com";
    let server =
        enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0", &format!("ENRICH_CONSOLE_API_URL={url}/")]);
    let console = server.console_url();
    let link = enrich.ok(&["user", "invite", "demo", "eva@example.com", "--url", &console]);
    join(&link);
    let signed_in = sign_in(&console, "eva@example.com", PASSWORD);
    let page = Page::get_in_session(&format!("{console}/w/demo/quick-start"), &signed_in).body;
    assert!(page.contains(&format!("{url}/api/v1/person/enrich")) && !page.contains(&server.url), "{page}");
}

#[test]
fn page_in_flight_at_sigterm_is_completed() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let console = server.console_url();
    let host = console.strip_prefix("http://").unwrap();
    let form = "email=eva%40example.com&password=wrong";
    let mut page = dial(host.parse().unwrap()).unwrap();
    let head = format!(
        "POST /w/demo/sign-in HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        form.len()
    );
    let (start, end) = form.split_at(9);
    page.write_all(format!("{head}{start}").as_bytes()).unwrap();
    // The head was read: a further connection is served.
    assert_eq!(Page::get(&format!("{console}/sign-in")).status, 200);
    server.terminate();
    eventually("the API has stopped", || dial(server.address()).is_err().then_some(()));
    let has_ended = || server.log().contains("INFO enrich::serve: stopped").then_some(());
    assert!(within(Duration::from_millis(500), has_ended).is_none(), "the page is dropped");
    page.write_all(end.as_bytes()).unwrap();
    let mut reply = String::new();
    page.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
    server.wait();
}
