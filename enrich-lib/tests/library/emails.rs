//! The canonical form and the opt-out form of addresses, against a second implementation that follows the
//! sentences of DECISIONS.md one by one.

use enrich_lib::email::Email;
use proptest::prelude::*;

/// Providers whose `+tags` the canonical form removes.
const TAGGING: &str = "gmail.com googlemail.com outlook.com hotmail.com live.com msn.com icloud.com me.com \
     mac.com fastmail.com proton.me protonmail.com pm.me";

/// Other providers, and domains that look like theirs.
const OTHERS: &str = "protonmail.ch ya.ru yandex.by yandex.com yandex.kz yandex.ru yandex.ua yahoo.com \
     yahoo.co.uk ymail.com aol.com ada.fastmail.com a.b.fastmail.com notfastmail.com mail.gmail.com \
     gmail.com.example.org company.com [IPv6:2001:DB8::1]";

/// Lower case, without Gmail's dots, and without `+tags` where the provider documents them. In quotes, dots
/// and tags are part of the name.
fn canonical(address: &str) -> String {
    let (mut name, mut domain) = lower(address);
    let is_gmail = domain == "gmail.com" || domain == "googlemail.com";
    let is_quoted = name.starts_with('"');
    if TAGGING.split(' ').any(|tagging| tagging == domain) && !is_quoted {
        let before = before(&name, '+');
        // The rest must be the name of a mailbox.
        if !before.is_empty() && (is_gmail || !before.ends_with('.')) {
            name = before;
        }
    }
    if is_gmail && !is_quoted {
        name = without(&name, ".");
    }
    if is_gmail {
        domain = "gmail.com".to_owned();
    }
    format!("{name}@{domain}")
}

/// Without quotes and a `+tag` at any domain, and by the known rules of providers.
fn opt_out_form(address: &str) -> String {
    let (mut name, mut domain) = lower(address);
    if let Some(quoted) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        name = quoted.replace(r"\\", "\0").replace('\\', "").replace('\0', "\\");
    }
    let tag = before(&name, '+');
    if !tag.is_empty() {
        name = tag;
    }
    let labels: Vec<&str> = domain.split('.').collect();
    if labels.len() == 3 && domain.ends_with(".fastmail.com") {
        (name, domain) = (labels[0].to_owned(), "fastmail.com".to_owned());
    } else if labels[0] == "yahoo" {
        let keyword = before(&name, '-');
        if !keyword.is_empty() {
            name = keyword;
        }
    }
    for (domains, ignored) in [
        (&["gmail.com", "googlemail.com"][..], "."),
        (&["icloud.com", "me.com", "mac.com"], ""),
        (&["proton.me", "protonmail.com", "protonmail.ch", "pm.me"], ".-_"),
        (&["yandex.ru", "ya.ru", "yandex.by", "yandex.com", "yandex.kz", "yandex.ua"], ".-"),
    ] {
        if domains.contains(&&*domain) {
            name = without(&name, ignored);
            domain = domains[0].to_owned();
        }
    }
    format!("{name}@{domain}")
}

/// Splits an address and converts it to lower case.
fn lower(address: &str) -> (String, String) {
    let (name, domain) = address.rsplit_once('@').expect("an address");
    (name.to_lowercase(), domain.to_lowercase())
}

fn before(text: &str, character: char) -> String {
    text.chars().take_while(|other| *other != character).collect()
}

fn without(text: &str, characters: &str) -> String {
    text.chars().filter(|character| !characters.contains(*character)).collect()
}

/// Addresses whose names have many separators, at providers with rules and at domains that look like theirs.
fn address() -> impl Strategy<Value = String> {
    let one_of = |domains: &'static str| prop::sample::select(domains.split(' ').collect::<Vec<_>>());
    let (tagging, others) = (one_of(TAGGING).prop_map(str::to_owned), one_of(OTHERS).prop_map(str::to_owned));
    let domain = prop_oneof![3 => tagging, 2 => others, 1 => "[a-z]{1,9}\\.(com|de|org)"];
    let name = prop_oneof![
        "[A-Za-z0-9.+_-]{1,64}",
        "[a-c.+-]{1,8}",
        "[A-Ca-c]{1,4}[.+_-][a-c.+_-]{0,60}",
        r#""([A-Ca-c.+ @-]|\\[a-c+"\\ ]){0,12}""#,
    ];
    let domain = (domain, any::<u16>()).prop_map(|(domain, upper)| {
        let case =
            |(n, c): (usize, char)| if upper >> (n % 16) & 1 == 1 { c.to_ascii_uppercase() } else { c };
        domain.chars().enumerate().map(case).collect::<String>()
    });
    (name, domain).prop_map(|(name, domain)| format!("{name}@{domain}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn forms_equal_those_of_a_second_implementation(address in address()) {
        if let Ok(email) = Email::parse(&address) {
            let forms = (canonical(&address), opt_out_form(&address));
            prop_assert_eq!((email.canonical(), email.opt_out_form()), forms.clone());
            let again = Email::parse(&email.canonical());
            prop_assert_eq!(again.map(|again| (again.canonical(), again.opt_out_form())), Ok(forms));
        }
    }
}
