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
        (&empty, "credits ledger demo", "there is no data in"),
        (&empty, "people stats", "there is no data in"),
        (&full, "workspace create demo", "there is already a workspace demo"),
        (&full, "workspace create a/b", "letters, digits"),
        (&full, "workspace create new --limit 0", "at least 1 request"),
        (&full, "workspace create new --window 86401", "86,400 seconds"),
        (&full, "workspace create new --credits 9223372036854775808", "from 0 to 9223372036854775807"),
        (&full, "workspace create new --credits 10,000", "write 10000, without separators"),
        (&full, "credits ledger missing", "enrich workspace list"),
        (&full, "credits grant demo 0", "must not be 0"),
        (&full, "credits grant demo x --reason y", "expected a whole number"),
        (&full, "credits grant demo -5", "credits are withdrawn for a reason; add --reason"),
        (&full, "serve ENRICH_WORKERS=0", "ENRICH_WORKERS: expected a whole number of at least 1"),
        (&full, "serve ENRICH_PRICE_FOUND=-1", "ENRICH_PRICE_FOUND: expected a whole number from 0 to"),
        (&full, "serve --listen 99999", "--listen: port 99999 is out of range"),
        (&full, "health", "there is no admin listener in the settings"),
        (&full, "credits grant demo 9223372036854775807", "that many credits"),
        (&full, "key create missing label", "there is no workspace missing"),
        (&full, "key create demo two\nlines", "on one line"),
        (&full, "key list missing", "there is no workspace missing"),
        (&full, "key revoke key_00000000", "enrich key list"),
        (&full, "people opt-out ada", "no local part"),
        (&full, "people import nowhere.csv", "cannot read nowhere.csv"),
        (&full, "serve --listen 0.0.0.0:0", "or `plaintext`"),
        (&full, "serve ENRICH_PLAINTEXT=true --listen 192.0.2.1:1", "cannot listen on 192.0.2.1:1"),
        (&full, "serve ENRICH_TLS_CERT=x.pem", "tls.key: is missing"),
        (&full, "serve --config nowhere.toml", "cannot read nowhere.toml"),
        (&full, &format!("serve --config {}", bad_config.display()), "line 2"),
        (&full, &format!("serve ENRICH_TLS_CERT={0} ENRICH_TLS_KEY={0}", pem.display()), "not.pem"),
    ] {
        let args: Vec<_> = args.split(' ').collect();
        let error = enrich.err(&args);
        assert!(error.starts_with("error: ") && error.contains(expected), "{args:?}: {error}");
    }
    let error = full.err(&["workspace", "create"]);
    assert!(error.contains("\nUsage: enrich workspace create [OPTIONS] <NAME>\n"), "{error}");
    assert_eq!(full.json(&["workspace", "list", "--json"]).as_array().unwrap().len(), 1, "nothing was made");
}

#[test]
fn failed_command_leaves_nothing() {
    let enrich = Enrich::new();
    enrich.file("no-header.csv", format!("{EMAIL},{URL}\n"));
    enrich.file("no-person.csv", "email,linkedin_url\nada,nowhere\n");
    enrich.file("rejects.csv", "");
    let files = || {
        let entries = std::fs::read_dir(enrich.path("")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for args in [
        "people import missing.csv",
        "people import no-header.csv",
        "people import no-person.csv --rejects rejects.csv",
        "people fetch missing.snapshot --people-key no-header.csv",
        "people opt-out ada@gmail.com",
        "workspace create new --credits 9223372036854775808",
        "workspace create new --limit 0",
        "key create new label",
        "bulk missing.csv --key enr_x -o out.csv",
        "backup copy",
        "restore missing",
    ] {
        assert!(!enrich.run(&args.split(' ').collect::<Vec<_>>()).success, "{args}");
        assert_eq!(files(), ["no-header.csv", "no-person.csv", "rejects.csv"], "{args}");
    }
}
