//! Resolvers with a typical bug each.

use std::sync::{Arc, Mutex};

use enrich_contract::resolver::ResolverUnderTest;
use enrich_lib::email::Email;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::{Resolver, async_trait};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use tokio::task::yield_now;

use super::assert_broken;

/// A resolver that fails without a match, and keeps the email of the last query between two steps.
struct Careless {
    known: (Email, ProfileUrl),
    last: Mutex<Option<Email>>,
}

#[async_trait]
impl Resolver for Careless {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        *self.last.lock().unwrap() = Some(query.email.clone());
        yield_now().await;
        match self.last.lock().unwrap().as_ref() == Some(&self.known.0) {
            true => Ok(Some(self.known.1.clone()).into()),
            false => Err(PortError::new("no match")),
        }
    }
}

#[test]
fn careless_resolver_fails_without_a_match_and_mixes_up_answers() {
    let email = |email| Email::parse(email).unwrap();
    let open = async || {
        let known = (email("ada.marlowe@gmail.com"), ProfileUrl::from_name("ada-marlowe").unwrap());
        let resolver = Arc::new(Careless { known: known.clone(), last: Mutex::default() });
        ResolverUnderTest::new(resolver, known, email("unknown.person@gmail.com"))
    };
    let rules = ["person without a profile is no failure", "concurrent lookups get their own answers"];
    assert_broken(enrich_contract::resolver_contract!(broken open), "resolver", &rules);
}

/// A resolver that ignores the domain.
struct Weak(Email, ProfileUrl);

#[async_trait]
impl Resolver for Weak {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let is_known = query.email.local_part() == self.0.local_part();
        Ok(is_known.then(|| self.1.clone()).into())
    }
}

#[test]
fn weak_match_discloses_another_person() {
    let open = async || {
        let known = (Email::parse("ada@gmail.com").unwrap(), ProfileUrl::from_name("ada").unwrap());
        let resolver = Arc::new(Weak(known.0.clone(), known.1.clone()));
        ResolverUnderTest::new(resolver, known, Email::parse("unknown@gmail.com").unwrap())
    };
    let rules = ["similar email is another person"];
    assert_broken(enrich_contract::resolver_contract!(broken open), "resolver", &rules);
}
