//! `enrich serve --sample`.

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
    assert_eq!(enrich.json(&["credits", "show", "demo", "--json"])["granted"], 1_000);
    let log = server.stop();
    assert!(!log.contains(&key) && !log.contains(&email), "{log}");
}

#[test]
fn keeps_existing_data() {
    let (enrich, key) = Enrich::with_key(5, 500);
    let server = enrich.serve(&["--sample"]);
    assert_eq!(status(&server, &key, EMAIL), 404);
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
