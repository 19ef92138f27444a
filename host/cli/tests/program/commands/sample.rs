//! `enrich serve --sample`.

use std::net::TcpListener;

use super::console::{Page, sign_in};
use super::*;

#[test]
fn printed_curl_command_succeeds() {
    let enrich = Enrich::new();
    let mut server = enrich.serve(&["--sample"]);
    let curl = server.stdout_line_with("curl ");
    let between =
        |from: &str, to: &str| curl.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
    let (key, email) = (between("Bearer ", "'"), between("\"email\":\"", "\""));
    assert!(curl.contains(&format!("{}/api/v1/person/enrich", server.url)), "{curl}");
    let reply = server.connect().enrich(&key, &email).unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body["profile"]["linkedin_url"], "https://www.linkedin.com/in/sample-ada-marlowe-001");
    assert_eq!(enrich.credits("demo")["granted"], 1_000);
    let log = server.stop();
    assert!(!log.contains(&key) && !log.contains(&email), "{log}");
    assert_eq!(log.contains("this build is not optimised"), cfg!(debug_assertions), "{log}");
}

#[test]
fn nothing_is_made_or_shown_if_the_server_cannot_start() {
    let enrich = Enrich::new();
    let console = ["ENRICH_PLAINTEXT=true", "ENRICH_CONSOLE_LISTEN=0.0.0.0:0"];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_by_another = taken.local_addr().unwrap().to_string();
    for (args, code, expected) in [
        (&console[..], 2, "console.url: must be set"),
        (&["--windows", "redis://127.0.0.1:1"], 4, "redis://127.0.0.1:1"),
        (&["ENRICH_ADMIN_LISTEN=192.0.2.1:1"], 1, "cannot listen on 192.0.2.1:1"),
        (&["--listen", &taken_by_another], 1, "cannot listen on 127.0.0.1:"),
        (&[&format!("ENRICH_CONSOLE_LISTEN={taken_by_another}")], 1, "set another address in console.listen"),
    ] {
        let ran = enrich.run(&[&["serve", "--sample", "ENRICH_LISTEN=127.0.0.1:0"], args].concat());
        assert_eq!((ran.code, &ran.stdout[..]), (Some(code), ""), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("serving"), "{args:?}: {}", ran.stderr);
        assert!(!enrich.data().exists(), "{args:?}");
    }
    let args = [&["--sample"], &console[..], &["ENRICH_CONSOLE_URL=http://127.0.0.1:8081"]].concat();
    let link = enrich.serve(&args).stdout_line_with("/join/");
    assert!(link.trim().starts_with("http://127.0.0.1:8081/join/"), "{link}");
}

#[test]
fn invites_until_a_user_has_joined() {
    let enrich = Enrich::new();
    let mut server = enrich.serve(&["--sample"]);
    server.stdout_line_with("/join/");
    server.stop();
    let mut server = enrich.serve(&["--sample"]);
    let console = server.console_url();
    let link = server.stdout_line_with("/join/").trim().to_owned();
    assert!(link.starts_with(&console), "{link}");
    let password = "correct horse battery staple";
    assert_eq!(Page::post(&link, &[("password", password), ("again", password)]).status, 303);
    assert_eq!(sign_in(&console, "admin@example.com", password).status, 303);
    let log = server.stop();
    assert!(!log.contains("/join/") && !log.contains("admin@"), "{log}");
    let user = &enrich.json(&["user", "list", "--json"])[0];
    assert_eq!((&user["workspace"], &user["role"]), (&json!("demo"), &json!("admin")));
    let (log, stdout) = enrich.serve(&["--sample"]).stop_with_stdout();
    assert!(log.contains("already contains data") && stdout.is_empty(), "{stdout}");
}

#[test]
fn keeps_existing_data() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let server = enrich.serve(&["--sample"]);
    assert_eq!(status(&server, &key, EMAIL), 404);
    assert_eq!(server.stop_with_stdout().1, "", "a workspace `demo` without a sample is not invited to");
    assert_eq!(enrich.json(&["workspace", "list", "--json"]).as_array().unwrap().len(), 1);
}

#[test]
fn refuses_a_directory_with_other_files() {
    let enrich = Enrich::new();
    std::fs::create_dir(enrich.data()).unwrap();
    std::fs::write(enrich.data().join("thesis.txt"), "mine").unwrap();
    let error = enrich.err(&["serve", "--sample"]);
    assert!(error.contains("cannot create"), "{error}");
    assert_eq!(std::fs::read_dir(enrich.path("")).unwrap().count(), 1, "nothing is left behind");
}
