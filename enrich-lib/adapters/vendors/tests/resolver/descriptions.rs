//! Invalid descriptions and their error messages.

use enrich_vendors::provider::{Client, Description, Limits, Provider, SecretSource};
use serde::Deserialize;

const WHOLE: &str = r#"name = "acme"
bills = "matches"

[request]
method = "GET"
url = "https://api.acme.example/people?email={email}"
headers = { X-Api-Key = "{secret}" }

[secret]
env = "ACME_API_KEY"

[answer]
profile = ["/data/linkedin_url"]
confidence = { at = "/likelihood", scale = "1-10", min = 0.8 }
untrusted_if = [{ at = "/fuzzy", is = true }]

[statuses]
no_match = [404]
rate_limited = [429]

[limits]
deadline_ms = 8000
concurrency = 16
tries = 2
"#;

/// Returns the error for the valid description with `from` replaced by `to`.
fn error_of(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from}");
    Description::parse(&WHOLE.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn parses_complete_description() {
    let description = Description::parse(WHOLE).unwrap();
    assert_eq!(description.name(), "acme");
    assert_eq!(description.limits(), Limits { deadline_ms: 8000, concurrency: 16, tries: 2 });
    assert_eq!(format!("{description:?}"), r#"Description { name: "acme", .. }"#);
}

#[test]
fn parse_errors_name_line_and_setting() {
    for (from, to, expected) in [
        ("= 2", "= 2 2", "line 24, tries: "),
        ("\"GET\"", "\"sk-live", "line 5, method: invalid basic string"),
        ("tries = 2", "tries = 2\ntries = 2", "line 25, tries: duplicate key"),
        ("tries", "retries", "line 24, limits.retries: unknown setting `retries`; did you mean `tries`?"),
        ("tries", "how", "line 24, limits.how: unknown setting `how`; expected one of `deadline_ms`, "),
        ("= 2", "= \"a, expected sk-live\"", "line 24, limits.tries: expected a whole number, got text"),
        (
            "is = true",
            "is = true },\n{ it = true",
            "line 16, answer.untrusted_if.it: unknown setting `it`; expected one of `at`, `is`",
        ),
        ("matches", "hits", "line 2, bills: unknown value `hits`; expected one of `requests`, `matches`"),
        ("GET", "PUT", "line 5, request.method: unknown value `PUT`; expected one of `GET`, `POST`"),
        ("1-10", "1-5", "line 14, answer.confidence.scale: unknown value `1-5`; expected one of `0-1`, "),
        (
            "404",
            "-1",
            "line 18, statuses.no_match: expected a whole number from 0 to 65535, got the number -1",
        ),
        ("bills = \"matches\"", "", "bills: must be set"),
        ("method = \"GET\"", "", "line 4, request.method: must be set"),
        (
            "{ X-Api-Key = \"{secret}\" }",
            "\"X-Api-Key: sk-live\"",
            "line 7, request.headers: expected a table, got text",
        ),
    ] {
        let error = error_of(from, to);
        assert!(error.starts_with(expected) && !error.contains("sk-live"), "{error}");
    }
}

#[test]
fn validation_errors_name_setting_and_accepted_values() {
    let url = "https://api.acme.example/people?email={email}";
    for (from, to, parts) in [
        ("\"acme\"", "\"Acme Inc\"", ["name:", "lower-case letters"]),
        (url, "http://api.acme.example/{email}", ["request.url:", "https://"]),
        (url, "http://127.0.0.1.acme.example/{email}", ["request.url:", "https://"]),
        (url, "https://api.acme.example:0/{email}", ["request.url:", "port from 1 to 65535"]),
        (url, "https://api.acme.example:65536/{email}", ["request.url:", "port from 1 to 65535"]),
        (url, "ftp://localhost/{email}", ["request.url:", "https://"]),
        (url, "api.acme.example/{email}", ["request.url:", ""]),
        (url, "https:///{email}", ["request.url:", ""]),
        (url, "https://{email}/", ["request.url:", "host"]),
        (url, "https://api.{secret}.example/{email}", ["request.url:", "host"]),
        (url, "https://{email}@acme.example/", ["request.url:", "host"]),
        (url, "https://user:pass@acme.example/{email}", ["request.url:", "password"]),
        (url, "https://acme.example/#{email}", ["request.url:", "fragment"]),
        (url, "https://acme.example/a b/{email}", ["request.url:", "not a valid URL"]),
        (url, "https://acme.example/{mail}", ["request.url:", "{email}, {email_sha256}, {secret}"]),
        (url, "https://acme.example/people", ["request.url:", "must contain {email} or {email_sha256}"]),
        ("{secret}", "{email}", ["request.headers.X-Api-Key:", "{secret}"]),
        ("{secret}", "key", ["secret:", "if and only if"]),
        ("{secret}", "{secret}\\n", ["request.headers.X-Api-Key:", "character"]),
        ("X-Api-Key", "\"X Api\"", ["request.headers.X Api:", "name"]),
        ("X-Api-Key", "Host", ["request.headers.Host:", "client"]),
        ("X-Api-Key", "transfer-encoding", ["request.headers.transfer-encoding:", "client"]),
        ("X-Api-Key", "Accept-Encoding", ["request.headers.Accept-Encoding:", "encoding"]),
        ("\"GET\"", "\"GET\"\nbody = '{}'", ["request.body:", "GET"]),
        ("\"GET\"", "\"POST\"\nbody = '{'", ["request.body:", "JSON"]),
        ("\"GET\"", "\"POST\"\nbody = '{\"e\": \"{mail}\"}'", ["request.body:", "{email}"]),
        ("\"GET\"", "\"POST\"\nbody = '{\"{email}\": 1}'", ["request.body:", "object key"]),
        ("[secret]\nenv = \"ACME_API_KEY\"\n", "", ["secret:", "if and only if"]),
        ("\"ACME_API_KEY\"", "\"sk-live/abc\"", ["secret.env:", "name of an environment variable"]),
        ("env = \"ACME_API_KEY\"", "file = \"\"", ["secret.file:", "path"]),
        ("[\"/data/linkedin_url\"]", "[]", ["answer.profile:", "at least one"]),
        ("\"/data/linkedin_url\"", "\"data.linkedin_url\"", ["answer.profile:", "JSON pointer"]),
        ("\"/likelihood\"", "\"likelihood\"", ["answer.confidence.at:", "JSON pointer"]),
        ("0.8", "8", ["answer.confidence.min:", "from 0 to 1"]),
        ("0.8", "nan", ["answer.confidence.min:", "from 0 to 1"]),
        ("\"/fuzzy\"", "\"/~\"", ["answer.untrusted_if.at:", "JSON pointer"]),
        ("is = true", "is = []", ["answer.untrusted_if.is:", "true, false"]),
        ("[404]", "[200]", ["statuses.no_match:", "201 to 599"]),
        ("[404]", "[4040]", ["statuses.no_match:", "201 to 599"]),
        ("[429]", "[404]", ["statuses.rate_limited:", "statuses.no_match"]),
        ("8000", "0", ["limits.deadline_ms:", "1 to 20000"]),
        ("8000", "20001", ["limits.deadline_ms:", "1 to 20000"]),
        ("concurrency = 16", "concurrency = 0", ["limits.concurrency:", "1 to 1000"]),
        ("tries = 2", "tries = 6", ["limits.tries:", "1 to 5"]),
    ] {
        let error = error_of(from, to);
        assert!(parts.iter().all(|part| error.contains(part)), "{from} -> {to}: {error}");
        let is_missing = error.starts_with("secret: ");
        assert!(is_missing || error.starts_with("line "), "{from} -> {to}: {error}");
    }
}

#[test]
fn allows_plain_http_to_loopback_only() {
    for base in [
        "http://localhost",
        "http://LOCALHOST:8080",
        "http://127.0.0.1:1",
        "http://127.9.9.9",
        "http://[::1]:80",
    ] {
        let text = WHOLE.replace("https://api.acme.example", base);
        assert!(Description::parse(&text).is_ok(), "{base}");
    }
}

#[test]
fn rejects_key_in_description_without_showing_it() {
    for to in [
        "secret = \"sk-live-abc\"",
        "[secret]\nsk-live-abc = \"ACME\"",
        "[secret]\nenv = \"A\"\nfile = \"sk-live-abc\"",
        "[secret]\nenv = \"sk-live-abc\"",
        "[secret]\nkey = \"sk-live-abc\"",
    ] {
        let text = WHOLE.replace("[secret]\nenv = \"ACME_API_KEY\"\n", "");
        // A setting without a table must precede the tables.
        let text = if to.starts_with('[') { format!("{text}\n{to}\n") } else { format!("{to}\n{text}") };
        let error = Description::parse(&text).unwrap_err().to_string();
        assert!(error.contains("secret") && !error.contains("sk-live"), "{to}: {error}");
    }
}

#[test]
fn description_can_be_part_of_another_file() {
    #[derive(Debug, Deserialize)]
    struct Config {
        vendor: Vec<Description>,
    }

    let acme = WHOLE.replace("\n[", "\n[vendor.");
    let config: Config = toml::from_str(&format!("[[vendor]]\n{acme}")).unwrap();
    assert_eq!(config.vendor[0].name(), "acme");
    let acme = acme.replace("[404]", "[200]");
    let error = toml::from_str::<Config>(&format!("[[vendor]]\n{acme}")).unwrap_err().to_string();
    assert!(error.contains("statuses.no_match: contains 200"), "{error}");
}

#[test]
fn resolves_key_file_relative_to_description() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acme.toml");
    std::fs::write(&path, WHOLE.replace("env = \"ACME_API_KEY\"", "file = \"acme.key\"")).unwrap();
    let description = Description::read(&path).unwrap();
    assert_eq!(description.secret(), Some(&SecretSource::File(dir.path().join("acme.key"))));
    std::fs::write(dir.path().join("acme.key"), "s3cr3t\n").unwrap();
    assert!(Provider::new(description, Client::new().unwrap()).is_ok());
}

#[test]
fn limits_can_be_replaced() {
    let limits = Limits { deadline_ms: 1, concurrency: 1, tries: 1 };
    let description = Description::parse(WHOLE).unwrap().with_limits(limits).unwrap();
    assert_eq!((description.limits(), description.deadline().as_millis()), (limits, 1));
    let none = Limits { concurrency: 0, ..limits };
    assert!(description.with_limits(none).unwrap_err().to_string().starts_with("limits.concurrency:"));
}

#[test]
fn missing_key_error_names_its_source() {
    let client = || Client::new().unwrap();
    let description = Description::parse(WHOLE).unwrap();
    let error = Provider::new(description.clone(), client()).unwrap_err().to_string();
    assert!(
        error.contains(
            "acme: cannot load the secret from the environment variable ACME_API_KEY: it is not set"
        )
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "s3cr3t\r\nhost: evil.example").unwrap();
    let elsewhere = description.clone().with_secret(SecretSource::File(path)).unwrap();
    let error = Provider::new(elsewhere, client()).unwrap_err();
    let error = format!("{error} {error:?}");
    assert!(error.contains("visible ASCII") && !error.contains("s3cr3t"), "{error}");
    let error = description.with_secret(SecretSource::Env("sk-live".to_owned())).unwrap_err().to_string();
    assert!(error.starts_with("secret.env: must be the name") && !error.contains("sk-live"), "{error}");
}
