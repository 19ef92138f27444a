//! `enrich serve --sample`.

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
    assert_eq!(reply.body["profile"]["linkedin_url"], "https://www.linkedin.com/in/sample-ada-marlowe-001");
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
    assert!(error.contains("cannot create"), "{error}");
    assert_eq!(std::fs::read_dir(enrich.path("")).unwrap().count(), 1, "nothing is left behind");
}
