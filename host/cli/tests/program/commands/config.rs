//! `enrich config`.

use super::*;

#[test]
fn variables_override_the_file() {
    let (enrich, key) = Enrich::with_key(100, 500);
    let people = format!("email,linkedin_url,confidence\n{EMAIL},{URL},1\n{UNSURE},{URL}-unsure,0.85\n");
    enrich.file("people.csv", people);
    enrich.ok(&["people", "import", "people.csv"]);
    let settings = "[price]\nfound = 3\nnot_found = 2\n[people]\nconfidence_min = 0.7\n";
    let file = enrich.file("enrich.toml", settings);
    let file = file.to_str().unwrap();
    let variables = ["ENRICH_PRICE_FOUND=7", "ENRICH_PRICE_NOT_FOUND=5", "ENRICH_PEOPLE_CONFIDENCE_MIN=0.9"];
    for args in [&[][..], &["--config", file], &[&format!("ENRICH_CONFIG={file}")]] {
        let server = enrich.serve(&[&variables[..], args].concat());
        let before = enrich.spent();
        assert_eq!(status(&server, &key, EMAIL), 200);
        assert_eq!(status(&server, &key, UNSURE), 404);
        assert_eq!(enrich.spent() - before, 7 + 5);
        server.stop();
    }
    let server = enrich.serve(&["--config", file]);
    assert_eq!([EMAIL, UNSURE].map(|email| status(&server, &key, email)), [200, 200]);
    server.stop();
}

#[test]
fn settings_allow_each_kind_of_email() {
    let (enrich, key) = Enrich::with_key(10, 500);
    enrich.file("disposable.txt", "# ours\nthrowaway.name\n");
    let emails = ["ada@mailinator.com", "ada@throwaway.name", "ada@duck.com", "info@marlowe.name"];
    for (settings, statuses) in [
        ("", [400, 404, 400, 400]),
        ("disposable_file = \"disposable.txt\"\nrefuse_roles = false", [400, 400, 400, 404]),
    ] {
        let server = enrich.serve_with(&enrich.file("enrich.toml", format!("[emails]\n{settings}\n")));
        assert_eq!(emails.map(|email| status(&server, &key, email)), statuses, "{settings}");
    }
}
