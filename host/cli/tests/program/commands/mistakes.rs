//! Invalid arguments and unusable directories.

use super::*;

#[test]
fn each_error_has_a_cause_and_a_remedy() {
    let empty = Enrich::new();
    let (full, _) = Enrich::with_key(1, 500);
    let bad_config = full.file("bad.toml", "[price]\nfuond = 1\n");
    let pem = full.file("not.pem", "hello");
    for (enrich, args, expected) in [
        (&empty, "serve", "enrich serve --sample"),
        (&empty, "workspace list", "enrich workspace create NAME"),
        (&empty, "credits show demo", "there is no data in"),
        (&empty, "people stats", "there is no data in"),
        (&full, "workspace create demo", "there is already a workspace demo"),
        (&full, "workspace create a/b", "letters, digits"),
        (&full, "workspace create new --limit 0", "at least 1 request"),
        (&full, "workspace create new --window 86401", "86,400 seconds"),
        (&full, "workspace create new --credits 9223372036854775808", "that many credits"),
        (&full, "credits show missing", "enrich workspace list"),
        (&full, "credits grant demo 0", "0 is not in 1.."),
        (&full, "credits grant demo -5", "-5"),
        (&full, "credits grant demo 9223372036854775807", "that many credits"),
        (&full, "key create missing label", "there is no workspace missing"),
        (&full, "key create demo two\nlines", "on one line"),
        (&full, "key list missing", "there is no workspace missing"),
        (&full, "key revoke key_00000000", "enrich key list"),
        (&full, "people suppress ada", "no local part"),
        (&full, "people import nowhere.csv", "cannot read nowhere.csv"),
        (&full, "serve --listen 0.0.0.0:0", "--plaintext"),
        (&full, "serve --listen 192.0.2.1:1 --plaintext", "cannot listen on 192.0.2.1:1"),
        (&full, "serve --tls-cert x.pem", "--tls-key"),
        (&full, "serve --config nowhere.toml", "cannot read nowhere.toml"),
        (&full, &format!("serve --config {}", bad_config.display()), "line 2"),
        (&full, &format!("serve --tls-cert {0} --tls-key {0}", pem.display()), "not.pem"),
    ] {
        let args: Vec<_> = args.split(' ').collect();
        let error = enrich.err(&args);
        assert!(error.starts_with("error: ") && error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(full.json(&["workspace", "list", "--json"]).as_array().unwrap().len(), 1, "nothing was made");
}
