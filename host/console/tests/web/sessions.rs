//! The life of a session.

use std::iter;
use std::time::Duration;

use enrich_console::Token;
use enrich_store::users::Role;
use http::StatusCode;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

use super::site::{Browser, PASSWORD, SHOP, Site};

const ADA: &str = "ada@example.com";
const MINUTE: Duration = Duration::from_secs(60);

/// A session of the model. Times are in minutes.
#[derive(Clone, Copy)]
struct Session {
    started: u32,
    used: u32,
    /// When the user entered the password.
    authenticated: u32,
}

impl Session {
    /// 12 hours of use, and 1 hour without. A clock that was ahead does not prolong them.
    fn is_valid(&self, now: u32) -> bool {
        now < self.started + 12 * 60 && now < self.used + 60 && self.used <= now + 5
    }
}

/// A request from one of the browsers of a user.
#[derive(Clone, Copy, Debug)]
enum Step {
    SignIn,
    Account,
    SensitivePage,
    EnterPassword,
    /// Ends the session of a browser, which may be this one.
    End(usize),
    EndOthers,
    SignOut,
}

/// Generates the minutes before each step, and its browser. In a third of the sequences, one browser is in use all
/// day; in another third, the clock is set back once. A user may enter a password 10 times in 15 minutes.
fn steps() -> BoxedStrategy<Vec<(i32, usize, Step)>> {
    let uses =
        prop_oneof![6 => Just(Step::Account), 3 => Just(Step::SensitivePage), 3 => Just(Step::EnterPassword)];
    let step = prop_oneof![
        12 => uses.clone(),
        3 => Just(Step::SignIn),
        1 => (0..BROWSERS).prop_map(Step::End),
        1 => Just(Step::EndOthers),
        1 => Just(Step::SignOut),
    ];
    let minutes = select(&[2, 2, 5, 12, 15, 30, 30, 45, 58, 60][..]);
    let of_one = vec((30..60, Just(0), uses), 20..30);
    let of_one = of_one.prop_map(|steps| iter::once((2, 0, Step::SignIn)).chain(steps).collect());
    let steps = vec((minutes, 0..BROWSERS, step), 1..60);
    let back = (steps.clone(), any::<Index>(), select(&[-2, -6, -30, -90][..]));
    let back = back.prop_map(|(mut steps, at, minutes)| {
        at.get_mut(&mut steps).0 = minutes;
        steps
    });
    prop_oneof![1 => steps, 1 => back, 1 => of_one].boxed()
}

const BROWSERS: usize = 3;

#[test]
fn random_sessions_match_the_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    TestRunner::new(config).run(&steps(), |steps| runtime.block_on(compare(steps))).unwrap();
}

async fn compare(steps: Vec<(i32, usize, Step)>) -> Result<(), TestCaseError> {
    let site = Site::new().await;
    site.join(SHOP, ADA, Role::Admin).await;
    let mut browsers: [Browser; BROWSERS] = std::array::from_fn(|_| site.browser());
    let (mut sessions, mut now) = ([None::<Session>; BROWSERS], 90_u32);
    for (minutes, n, step) in steps {
        match minutes {
            0.. => site.advance(MINUTE * minutes.unsigned_abs()),
            _ => site.set_back(MINUTE * minutes.unsigned_abs()),
        }
        now = now.checked_add_signed(minutes).unwrap();
        let before = sessions.map(|session| session.filter(|session| session.is_valid(now)));
        let browser = &browsers[n];
        let page = match step {
            Step::SignIn => {
                let form = [("email", ADA), ("password", PASSWORD)];
                browser.post(&format!("/w/{SHOP}/sign-in"), &form).await
            }
            Step::Account => browser.get("/account").await,
            Step::SensitivePage => browser.get("/account/two-factor").await,
            Step::EnterPassword => {
                browser.post("/confirm", &[("password", PASSWORD), ("next", "/account?done=x")]).await
            }
            Step::End(other) if sessions[other].is_none() => continue,
            Step::End(other) => {
                let cookies = browsers[other].cookie.as_deref().unwrap().split("; ");
                let token = cookies.filter_map(|cookie| cookie.strip_prefix("__Host-session=")).next();
                let id = Token::parse(token.unwrap()).unwrap().digest().id();
                browser.post(&format!("/account/sessions/{id}/end"), &[]).await
            }
            Step::EndOthers => browser.post("/account/sessions/end-others", &[]).await,
            Step::SignOut => browser.post("/sign-out", &[]).await,
        };
        let valid = sessions[n].as_mut().filter(|_| before[n].is_some());
        let expected = match (valid, step) {
            (_, Step::SignIn) => {
                // Sessions that were not used for so long are deleted: they stay ended when the clock is set back.
                sessions = sessions.map(|session| session.filter(|session| now <= session.used + 12 * 60));
                sessions[n] = Some(Session { started: now, used: now, authenticated: now });
                "/"
            }
            (None, Step::Account | Step::SensitivePage) => "/sign-in",
            (None, Step::SignOut) => "/sign-in?done=signed-out",
            (None, _) => "/sign-in?done=sign-in-again",
            (Some(session), step) => {
                session.used = session.used.max(now);
                match step {
                    Step::SensitivePage if now >= session.authenticated + 15 => "/confirm",
                    Step::SignIn | Step::Account | Step::SensitivePage => "",
                    Step::EnterPassword => {
                        session.authenticated = now;
                        "/account?done=x"
                    }
                    Step::End(other) => {
                        sessions[other] = None;
                        "/account?done=session-ended"
                    }
                    Step::EndOthers => {
                        (0..BROWSERS).filter(|other| *other != n).for_each(|other| sessions[other] = None);
                        "/account?done=sessions-ended"
                    }
                    Step::SignOut => {
                        sessions[n] = None;
                        "/sign-in?done=signed-out"
                    }
                }
            }
        };
        // A redirect may name the workspace that the browser remembers, and the page to return to.
        let location = page.location().replace("/w/shop/", "/");
        let location =
            location.split_once("next=").map_or(&*location, |(before, _)| &before[..before.len() - 1]);
        prop_assert_eq!(location, expected, "{:?} by {} at {}", step, n, now);
        prop_assert_eq!(page.status == StatusCode::OK, expected.is_empty());
        if matches!(step, Step::Account) && before[n].is_some() {
            let listed = page.body.matches("192.0.2.1").count();
            prop_assert_eq!(listed, before.iter().flatten().count(), "{:?} at {}", step, now);
            prop_assert_eq!(page.body.matches("this one").count(), 1);
        }
        browsers[n].keep(&page);
        if matches!(step, Step::SignOut) && before[n].is_some() {
            prop_assert_eq!(page.header("clear-site-data"), "\"cache\", \"storage\"");
            prop_assert!(!browsers[n].cookie.as_ref().unwrap().contains("session"));
        }
    }
    Ok(())
}
