//! The limits on attempts to guess passwords and codes.

use std::time::Duration;

use enrich_store::users::Role;

use super::site::{Browser, PASSWORD, Page, SHOP, Site};

/// The cookies that an attempt is sent with.
enum Cookies {
    None,
    /// The cookie of a known browser, with a wrong digest.
    Forged,
    /// Only the cookie of the signed-in browser with this name.
    Only(&'static str),
}

type Form = &'static [(&'static str, &'static str)];

/// Attempts that are counted together. In the texts, `{n}` is the number of the attempt.
struct Counter {
    name: &'static str,
    cookies: Cookies,
    address: &'static str,
    path: &'static str,
    form: Form,
    /// The status of an attempt below the limit.
    status: u16,
    limit: u16,
}

const fn counter(
    (name, cookies, address): (&'static str, Cookies, &'static str),
    (path, form): (&'static str, Form),
    (status, limit): (u16, u16),
) -> Counter {
    Counter { name, cookies, address, path, form, status, limit }
}

/// Spellings of the workspace and of the user Ada, who can sign in with each of them.
const SPELLINGS: [(&str, &str); 4] = [
    ("shop", "ada@example.com"),
    ("SHOP", "Ada@Example.com"),
    ("Shop", " ada@example.com"),
    ("shop", "ADA@EXAMPLE.COM\t"),
];

const SIGN_IN: &str = "/w/{shop}/sign-in";
const ADA: Form = &[("email", "{ada}"), ("password", "wrong")];
const ADA_RIGHT: Form = &[("email", "{ada}"), ("password", PASSWORD)];
const EVE: Form = &[("email", "eve@example.com"), ("password", "wrong")];
const MANY: Form = &[("email", "user{n}@example.com"), ("password", "wrong")];
const SHORT: Form = &[("password", "short"), ("again", "short")];
const PER_ADDRESS: u16 = 100;

const COUNTERS: [Counter; 7] = [
    counter(("a user", Cookies::Forged, "198.51.100.{n}"), (SIGN_IN, ADA), (401, 10)),
    counter(("an unknown user", Cookies::None, "198.51.100.{n}"), (SIGN_IN, EVE), (401, 10)),
    counter(("an IPv4 address", Cookies::None, "203.0.113.7"), (SIGN_IN, MANY), (401, PER_ADDRESS)),
    // An attacker with one network of IPv6 has as many addresses as there are counters of accounts.
    counter(("an IPv6 network", Cookies::None, "2001:db8:7:{n}::1"), (SIGN_IN, MANY), (401, PER_ADDRESS)),
    // Neither strangers nor others at its address lock out a browser that has signed in.
    counter(
        ("a known browser", Cookies::Only("__Host-device"), "203.0.113.7"),
        (SIGN_IN, ADA_RIGHT),
        (303, 10),
    ),
    counter(
        ("a signed-in user", Cookies::Only("__Host-session"), "203.0.113.7"),
        ("/confirm", &[("password", "wrong")]),
        (401, 10),
    ),
    counter(("a link", Cookies::None, "203.0.113.7"), ("{link}", SHORT), (422, 10)),
];

/// A web application, a browser in which Ada is signed in, and an invitation.
struct World {
    site: Site,
    known: Browser,
    link: String,
}

impl World {
    async fn attempt(&mut self, counter: &Counter, n: u16) -> Page {
        let (shop, ada) = SPELLINGS[usize::from(n) % SPELLINGS.len()];
        let filled = |text: &str| {
            let parameters =
                [("{n}", &*n.to_string()), ("{shop}", shop), ("{ada}", ada), ("{link}", &self.link)];
            parameters.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        let mut browser = self.site.browser();
        browser.address = filled(counter.address).parse().unwrap();
        browser.cookie = match counter.cookies {
            Cookies::None => None,
            Cookies::Forged => Some(format!("__Host-device={n:064}.{}", "0".repeat(64))),
            Cookies::Only(name) => {
                let mut cookies = self.known.cookie.as_deref().unwrap().split("; ");
                cookies.find(|cookie| cookie.starts_with(name)).map(str::to_owned)
            }
        };
        let form: Vec<_> = counter.form.iter().map(|(name, value)| (*name, filled(value))).collect();
        let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let page = browser.post(&filled(counter.path), &form).await;
        if let Cookies::Only(_) = counter.cookies {
            self.known.keep(&page);
        }
        page
    }

    /// Makes all attempts of a window. Returns the page of the one that is refused.
    async fn use_up(&mut self, counter: &Counter) -> Page {
        for n in 0..counter.limit {
            let page = self.attempt(counter, n).await;
            assert_eq!(page.status, counter.status, "attempt {n} of {}", counter.name);
        }
        let refused = self.attempt(counter, counter.limit).await;
        assert_eq!(refused.status, 429, "{}", counter.name);
        refused
    }
}

#[tokio::test]
async fn each_counter_of_attempts_has_its_limit_and_leaves_the_others() {
    let base = Site::new().await;
    let known = base.signed_in(SHOP, "ada@example.com", Role::Member).await;
    let link = base.invite(SHOP, "new@example.com", Role::Member).await;
    for counter in COUNTERS {
        let (name, site) = (counter.name, base.copy().await);
        let mut world = World { site, known: known.clone(), link: link.clone() };
        let refused = world.use_up(&counter).await;
        if counter.limit == PER_ADDRESS {
            // Further attempts from there do not use up those of a user.
            let of_user = self::counter((name, Cookies::None, counter.address), (SIGN_IN, ADA), (429, 0));
            for n in 0..20 {
                assert_eq!(world.attempt(&of_user, n).await.status, 429, "{name}");
            }
        }
        for other in COUNTERS.iter().filter(|other| other.name != name) {
            let page = world.attempt(other, 200).await;
            assert_eq!(page.status, other.status, "{} after the attempts of {name}", other.name);
        }
        // The next window begins after this time, and has 15 minutes.
        world.site.advance(Duration::from_secs(refused.header("retry-after").parse().unwrap()));
        match counter.limit {
            PER_ADDRESS => assert_eq!(world.attempt(&counter, 201).await.status, counter.status, "{name}"),
            _ => assert_eq!(world.use_up(&counter).await.header("retry-after"), "900", "{name}"),
        }
    }
}

/// If each kind had 16,384 counters, two of 250 would share one with a probability of 85 %.
#[tokio::test]
async fn links_and_known_browsers_share_no_counters() {
    let site = Site::new().await;
    site.join(SHOP, "ada@example.com", Role::Member).await;
    for n in 0..250 {
        if n % 10 == 0 {
            site.advance(Duration::from_secs(15 * 60)); // signing in was an attempt
        }
        let link = site.invite(SHOP, &format!("user{n}@example.com"), Role::Member).await;
        let known = site.browser().sign_in("ada@example.com", PASSWORD).await;
        let before = site.gate.counters();
        assert_eq!(site.browser().post(&link, SHORT).await.status, 422);
        known.sign_in("ada@example.com", PASSWORD).await;
        assert_eq!(site.gate.counters(), before + 2, "link and browser {n}");
    }
}

/// Strangers do not lock out a browser that has just set the password.
#[tokio::test]
async fn browser_that_sets_a_password_is_known() {
    let site = Site::new().await;
    let mut changed = site.signed_in(SHOP, "ada@example.com", Role::Member).await;
    let form = [("current", PASSWORD), ("password", PASSWORD), ("again", PASSWORD)];
    let page = changed.post("/account/password", &form).await;
    changed.keep(&page);
    let mut joined = site.browser();
    let link = site.invite(SHOP, "bob@example.com", Role::Member).await;
    let page = joined.post(&link, &form[1..]).await;
    joined.keep(&page);
    for (email, known) in [("ada@example.com", changed), ("bob@example.com", joined)] {
        for n in 0..=10 {
            let mut stranger = site.browser();
            stranger.address = [198, 51, 100, n].into();
            let page = stranger.post("/w/shop/sign-in", &[("email", email), ("password", "wrong")]).await;
            assert!(n < 10 || page.status == 429, "{n}: {}", page.status);
        }
        known.sign_in(email, PASSWORD).await;
    }
}
