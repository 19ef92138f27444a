//! `enrich user`.

use super::console::{Page, sign_in};
use super::*;

const USER: &str = "Eva@example.com";

/// Returns the emails of all users.
fn emails(enrich: &Enrich, args: &[&str]) -> Vec<String> {
    let users = enrich.json(&[&["user", "list", "--json"], args].concat());
    users.as_array().unwrap().iter().map(|user| user["email"].as_str().unwrap().to_owned()).collect()
}

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
fn reset_link_sets_a_new_password() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=0"]);
    let console = server.console_url();
    let join = enrich.ok(&["user", "invite", "demo", USER, "--url", &console]);
    let (old, new) = ("correct horse battery staple", "a new one with many words");
    Page::post(&join, &[("password", old), ("again", old)]);
    let reset = enrich.json(&["user", "reset", "demo", USER, "--url", &console, "--json"]);
    let link = reset["url"].as_str().unwrap();
    assert!(link.starts_with(&format!("{console}/reset/")), "{link}");
    assert_eq!(sign_in(&console, USER, old).status, 303, "the password works until the link is used");
    assert_eq!(Page::post(link, &[("password", new), ("again", new)]).status, 303);
    assert_eq!(sign_in(&console, USER, old).status, 401);
    assert_eq!(sign_in(&console, USER, new).status, 303);
}

#[test]
fn removed_user_cannot_sign_in() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=0"]);
    let console = server.console_url();
    let join = enrich.ok(&["user", "invite", "demo", USER, "--url", &console]);
    let password = "correct horse battery staple";
    Page::post(&join, &[("password", password), ("again", password)]);
    assert_eq!(emails(&enrich, &[]), ["eva@example.com"]);
    assert_eq!(
        enrich.json(&["user", "remove", "demo", USER, "--json"]),
        json!({"workspace": "demo", "email": "eva@example.com", "was_invited": false, "removed": true})
    );
    assert_eq!(sign_in(&console, USER, password).status, 401);
    assert!(emails(&enrich, &["--workspace", "demo"]).is_empty());
}

#[test]
fn withdrawn_invitation_does_not_work() {
    let (enrich, _) = Enrich::with_key(1, 500);
    enrich.ok(&["workspace", "create", "other"]);
    let server = enrich.serve(&["ENRICH_CONSOLE_LISTEN=0"]);
    let console = server.console_url();
    let invite = |workspace: &str| enrich.ok(&["user", "invite", workspace, USER, "--url", &console]);
    let (link, kept) = (invite("demo"), invite("other"));
    assert_eq!(enrich.ok(&["user", "remove", "demo", USER]), "withdrew the invitation of eva@example.com");
    assert_eq!(Page::get(&link).status, 404);
    assert_eq!(Page::get(&kept).status, 200);
    assert!(emails(&enrich, &["--workspace", "demo"]).is_empty());
    let table = enrich.ok(&["user", "list"]);
    assert!(
        table.contains("other      eva@example.com  member") && table.contains("invited until"),
        "{table}"
    );
}

#[test]
fn url_of_links_is_a_flag_or_a_variable() {
    let (enrich, _) = Enrich::with_key(1, 500);
    let invite = ["user", "invite", "demo", USER];
    assert!(enrich.ok(&invite).starts_with("http://127.0.0.1:8081/join/"));
    let url = "https://enrich.example.com";
    let out = enrich.command(&invite).env("ENRICH_CONSOLE_URL", url).output().unwrap();
    assert!(String::from_utf8(out.stdout).unwrap().starts_with(&format!("{url}/join/")));
}
