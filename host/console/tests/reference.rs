//! The pages of the reference contain the whole description, and work without other files.

use std::collections::BTreeSet;

use enrich_console::reference::{Page, errors, pages};
use enrich_lib::wire::OPENAPI;
use serde_json::Value;

/// Returns all texts that readers need.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    const SHOWN: [&str; 9] = [
        "title",
        "summary",
        "description",
        "x-action",
        "const",
        "format",
        "pattern",
        "linkedin_url",
        "error",
    ];
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if SHOWN.contains(&name.as_str()) => found.push(text),
                    _ => texts(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        _ => {}
    }
}

/// Returns the visible characters of a page, without white space.
fn visible(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' => is_tag = false,
            c if !is_tag && !c.is_whitespace() => text.push(c),
            _ => {}
        }
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text, |text, (entity, character)| text.replace(entity, character))
}

/// Returns the visible characters of Markdown, without white space.
fn plain(markdown: &str) -> String {
    markdown.chars().filter(|c| !c.is_whitespace() && !matches!(c, '`' | '*')).collect()
}

#[test]
fn pages_contain_all_texts_of_the_description() {
    let description: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut expected = Vec::new();
    for part in ["info", "paths", "components"] {
        texts(&description[part], &mut expected);
    }
    assert!(expected.len() > 60, "{}", expected.len());
    let shown: String = pages().iter().map(|Page { html, .. }| visible(html)).collect();
    for text in expected {
        assert!(shown.contains(&plain(text)), "{text}");
    }
}

#[test]
fn each_error_has_a_page() {
    let paths: BTreeSet<_> = pages().iter().map(|page| page.path.as_str()).collect();
    assert_eq!(paths.len(), 1 + errors().len());
    assert!(errors().iter().all(|error| paths.contains(error.path().as_str())));
}

#[test]
fn links_lead_to_pages_and_headings() {
    for page in pages() {
        let directory = page.path.rsplit_once('/').map(|(directory, _)| directory);
        for link in page.html.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match (path, directory) {
                ("", _) => page.path.clone(),
                (path, Some(_)) => path.strip_prefix("../").unwrap_or(path).to_owned(),
                (path, None) => path.to_owned(),
            };
            let target = pages().iter().find(|page| page.path == path);
            let target = target.unwrap_or_else(|| panic!("{}: {link}", page.path));
            assert!(
                anchor.is_empty() || target.html.contains(&format!("id=\"{anchor}\"")),
                "{}: {link}",
                page.path
            );
        }
    }
}

#[test]
fn pages_make_no_request() {
    for page in pages() {
        for attribute in ["src=", "@import", "url(", "<link", "<script", "//fonts", "cdn."] {
            assert!(!page.html.contains(attribute), "{}: {attribute}", page.path);
        }
    }
}
