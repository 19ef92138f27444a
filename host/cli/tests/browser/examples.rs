//! The examples of the quick start, as a user copies them.

use std::process::Command;

use crate::chromium::Browser;
use crate::site::Site;

#[tokio::test]
async fn examples_of_the_quick_start_work_as_printed_with_a_test_key() {
    let (site, browser) = (Site::on_sqlite(), Browser::start().await);
    site.sign_in(&browser, "ada@example.com", "member").await;
    let key = site.enrich.ok(&["key", "create", "shop", "tests", "--test"]);
    browser.press("Quick start").await;
    browser.wait_for_heading("Quick start").await;
    for (id, program, file) in [
        ("curl", "sh", "example.sh"),
        ("python", "python3", "example.py"),
        ("typescript", "node", "example.mjs"),
    ] {
        let example = browser.find(&format!("#{id}")).await.text().await.unwrap();
        let run = |key: &str, email: &str| {
            let example = example.replace("found@enrich.test", email);
            let file = site.enrich.file(file, example);
            let ran = Command::new(program).arg(file).env("ENRICH_KEY", key).output().unwrap();
            String::from_utf8([ran.stdout, ran.stderr].concat()).unwrap()
        };
        let found = run(&key, "found@enrich.test");
        assert!(found.contains("https://www.linkedin.com/in/enrich-test"), "{id}: {found}");
        let not_found = run(&key, "not-found@enrich.test").replace('_', " ");
        assert!(not_found.contains("not found"), "{id}: {not_found}");
        let refused = run("x", "found@enrich.test");
        assert!(refused.contains("unauthorized"), "{id}: {refused}");
    }
}
