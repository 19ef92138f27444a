//! `enrich config`.

use super::*;

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
