//! `enrich user`.

use super::console::{Page, sign_in};
use super::*;

const USER: &str = "Eva@example.com";

#[test]
fn invitation_works_once() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=127.0.0.1:0"]);
    let console = server.console_url();
    let ran = enrich.run(&["user", "invite", "demo", USER, "--role", "admin", "--url", &console]);
    let link = ran.stdout.trim_end();
    let token = link.strip_prefix(&format!("{console}/join/")).unwrap();
    assert!(ran.success && token.len() == 64 && !ran.stderr.contains(token), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("signs in at {console}/w/demo/sign-in")), "{}", ran.stderr);
    let invited = &enrich.json(&["user", "list", "--json"])[0];
    assert_eq!((&invited["email"], &invited["role"]), (&json!("eva@example.com"), &json!("admin")));
    assert!(invited["invited_until"].is_string(), "{invited}");

    let form = Page::get(link);
    assert!(form.status == 200 && form.body.contains("eva@example.com"), "{}", form.body);
    let password = "correct horse battery staple";
    let accepted = Page::post(link, &[("password", password), ("again", password)]);
    assert_eq!(
        (accepted.status, accepted.header("location")),
        (303, Some("/w/demo/sign-in?done=password-set"))
    );
    assert_eq!(Page::get(link).status, 404);
    assert_eq!(sign_in(&console, USER, password).header("location"), Some("/"));

    let users = enrich.json(&["user", "list", "--workspace", "demo", "--json"]);
    assert_eq!((&users[0]["workspace"], &users[0]["role"]), (&json!("demo"), &json!("admin")));
    assert_eq!((users.as_array().unwrap().len(), &users[0]["invited_until"]), (1, &json!(null)));
    assert_eq!((&users[0]["email"], &users[0]["two_factor"]), (&json!("eva@example.com"), &json!(false)));
    let table = enrich.ok(&["user", "list"]);
    assert!(table.contains("demo       eva@example.com  admin") && table.ends_with("active"), "{table}");
    let log = server.stop().to_lowercase();
    assert!(!log.contains("eva@") && !log.contains(token), "{log}");
}

#[test]
fn reset_and_removal_apply_to_the_web_application() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=0"]);
    let console = server.console_url();
    let join = enrich.ok(&["user", "invite", "demo", USER, "--url", &console]);
    let (old, new) = ("correct horse battery staple", "a new one with many words");
    Page::post(&join, &[("password", old), ("again", old)]);
    let reset = enrich.json(&["user", "reset", "demo", USER, "--url", &console, "--json"]);
    let link = reset["url"].as_str().unwrap();
    assert!(link.starts_with(&format!("{console}/reset/")), "{link}");
    assert_eq!(Page::post(link, &[("password", new), ("again", new)]).status, 303);
    assert_eq!(sign_in(&console, USER, new).status, 303);
    assert_eq!(
        enrich.json(&["user", "remove", "demo", USER, "--json"]),
        json!({"workspace": "demo", "email": "eva@example.com", "was_invited": false, "removed": true})
    );
    assert_eq!(sign_in(&console, USER, new).status, 401);
    enrich.ok(&["user", "invite", "demo", USER]);
    assert!(enrich.ok(&["user", "list"]).contains("invited until"));
    assert_eq!(enrich.ok(&["user", "remove", "demo", USER]), "withdrew the invitation of eva@example.com");
}
