//! The keys, people and requests, identical for every measured server.

use std::ops::Range;

use enrich_lib::key::ApiKey;
use strum::{IntoStaticStr, VariantArray};

/// Default number of people in the directory.
pub const PEOPLE: usize = 10_000;

/// A kind of request, named after its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Case {
    /// 200: a person in the directory.
    #[default]
    Found,
    /// 200: a person in the directory. Each request has an idempotency key of its own.
    Keyed,
    /// 404: a person who is not in the directory.
    NotFound,
    /// 401: a well-formed key that does not exist.
    Unauthorized,
    /// 429: a workspace that has used up its rate limit.
    RateLimited,
    /// 400: a body with an unknown field.
    Invalid,
}

/// The keys in the requests.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key of a workspace with a practically unlimited quota.
    pub main: ApiKey,
    /// The key of a workspace with one request per day.
    pub limited: ApiKey,
    /// A key that does not exist.
    pub unknown: ApiKey,
}

impl Default for Keys {
    fn default() -> Self {
        Self { main: key(1), limited: key(2), unknown: key(3) }
    }
}

/// Returns a key that is the same in every process.
pub fn key(seed: u64) -> ApiKey {
    let mut state = seed;
    ApiKey::generate(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// Returns the email of a person. All emails, and so all requests, have the same length.
pub fn email(person: usize) -> String {
    format!("person{person:08}@gmail.com")
}

/// Returns an idempotency key.
pub fn idempotency_key(number: u64) -> String {
    format!("bench-{number:016x}")
}

/// Returns the place of the idempotency key in a request.
pub fn idempotency_key_place(request: &[u8]) -> Option<Range<usize>> {
    let length = idempotency_key(0).len();
    let start = request.windows(length).position(|part| part.starts_with(b"bench-"))?;
    Some(start..start + length)
}

/// Replaces the path of a request by another one of the same length.
pub fn change_path(request: &mut [u8]) {
    request[b"POST ".len() + 1] = b'-';
}

/// Returns the name in the URL of a person's profile.
pub fn profile(person: usize) -> String {
    format!("person-{person}")
}

/// Returns the bytes of a request for a person.
pub fn request(key: &str, person: usize) -> Vec<u8> {
    post(key, &format!(r#"{{"email":"{}"}}"#, email(person)))
}

/// Returns the bytes of a request for a person, with an idempotency key.
pub fn keyed_request(key: &str, person: usize, number: u64) -> Vec<u8> {
    let header = format!("idempotency-key: {}\r\n", idempotency_key(number));
    post_with(key, &header, &format!(r#"{{"email":"{}"}}"#, email(person)))
}

fn post(key: &str, body: &str) -> Vec<u8> {
    post_with(key, "", body)
}

fn post_with(key: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{headers}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

impl Case {
    /// Returns the status of the replies. Bare hyper has statuses of its own.
    pub const fn status(self) -> u16 {
        match self {
            Self::Found | Self::Keyed => 200,
            Self::NotFound => 404,
            Self::Unauthorized => 401,
            Self::RateLimited => 429,
            Self::Invalid => 400,
        }
    }

    /// Returns one request for each of `people` people.
    pub fn requests(self, keys: &Keys, people: usize) -> Vec<Vec<u8>> {
        let key = match self {
            Self::Unauthorized => &keys.unknown,
            Self::RateLimited => &keys.limited,
            _ => &keys.main,
        };
        let request = |person| match self {
            Self::Keyed => keyed_request(key.reveal(), person, person as u64),
            Self::NotFound => post(key.reveal(), &format!(r#"{{"email":"nobody{person:08}@gmail.com"}}"#)),
            Self::Invalid => post(key.reveal(), &format!(r#"{{"email":"{}","name":"Ada"}}"#, email(person))),
            _ => request(key.reveal(), person),
        };
        (0..people).map(request).collect()
    }
}
