//! Rules for resolvers, whose answers depend on the person alone.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use enrich_lib::email::Email;
use enrich_lib::model::{LookupId, ProfileUrl};
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;

use crate::START;
use crate::concurrency::together;

/// A resolver under test, and two persons.
#[derive(Clone)]
pub struct ResolverUnderTest {
    resolver: Arc<dyn Resolver>,
    known: (Email, ProfileUrl),
    unknown: Email,
}

/// Generates the tests of the rules for resolvers. `$open` returns a
/// [`ResolverUnderTest`](crate::resolver::ResolverUnderTest).
#[macro_export]
macro_rules! resolver_contract {
    ($($open:tt)*) => {
        $crate::rules! { resolver, ($($open)*),
            person_without_a_profile_is_no_failure
            similar_email_is_another_person
            answers_do_not_depend_on_the_workspace
            dropped_lookup_does_not_disturb_the_next
            concurrent_lookups_get_their_own_answers
        }
    };
}

impl fmt::Debug for ResolverUnderTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolverUnderTest").finish_non_exhaustive()
    }
}

impl ResolverUnderTest {
    /// `known` is the email of a person with this profile, and `unknown` that of one without a profile.
    pub fn new(resolver: Arc<dyn Resolver>, known: (Email, ProfileUrl), unknown: Email) -> Self {
        Self { resolver, known, unknown }
    }

    async fn find(&self, email: &Email, n: u8) -> Option<ProfileUrl> {
        self.resolver.find(&query(email, n)).await.unwrap().profile
    }
}

/// A failure is a 502, which clients repeat.
pub async fn person_without_a_profile_is_no_failure(tested: ResolverUnderTest) {
    assert_eq!(tested.find(&tested.unknown, 1).await, None);
}

/// Makes up to eight queries.
pub async fn similar_email_is_another_person(tested: ResolverUnderTest) {
    let (email, profile) = &tested.known;
    let (name, domain) = (email.local_part().split('+').next().unwrap(), email.domain());
    let (start, end) = (&name[..name.len().saturating_sub(1)], name.get(1..).unwrap_or_default());
    let others = ["gmail.com", "posteo.net"].into_iter().filter(|other| *other != domain);
    let others = others.map(|other| format!("{name}@{other}"));
    let names = [
        format!("{name}x"),
        format!("x{name}"),
        format!("{start}7"),
        format!("7{end}"),
        start.into(),
        end.into(),
    ];
    let names = names.into_iter().map(|name| format!("{name}@{domain}"));
    for similar in others.chain(names).filter_map(|similar| Email::parse(&similar).ok()) {
        let found = tested.resolver.find(&query(&similar, 1)).await.ok().and_then(|answer| answer.profile);
        assert_ne!(found.as_ref(), Some(profile), "{similar:?}");
    }
}

pub async fn answers_do_not_depend_on_the_workspace(tested: ResolverUnderTest) {
    let (email, profile) = &tested.known;
    for workspace in ["acme", "beta"] {
        let mut query = query(email, 1);
        query.workspace = workspace.parse().unwrap();
        let answer = tested.resolver.find(&query).await.unwrap();
        assert_eq!(answer.profile.as_ref(), Some(profile), "{workspace}");
    }
}

/// A lookup whose deadline passed leaves nothing behind, such as a lock.
pub async fn dropped_lookup_does_not_disturb_the_next(tested: ResolverUnderTest) {
    let (email, profile) = &tested.known;
    for n in 0..3 {
        let query = query(email, n);
        let mut lookup = tested.resolver.find(&query);
        let is_pending =
            matches!(lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        drop(lookup);
        assert_eq!(tested.find(email, n).await.as_ref(), Some(profile), "pending before: {is_pending}");
    }
}

pub async fn concurrent_lookups_get_their_own_answers(tested: ResolverUnderTest) {
    let found = together(|i| {
        let tested = tested.clone();
        async move {
            let email = if i % 2 == 0 { &tested.known.0 } else { &tested.unknown };
            tested.find(email, i as u8).await
        }
    });
    for (i, profile) in found.await.into_iter().enumerate() {
        assert_eq!(profile, (i % 2 == 0).then(|| tested.known.1.clone()));
    }
}

fn query(email: &Email, n: u8) -> Query {
    let lookup_id = LookupId::new(START, [n; 10]);
    Query::new(lookup_id, "demo".parse().unwrap(), email.clone())
}
