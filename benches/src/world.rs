//! Who asks for whom: the same in every server that is measured.

use enrich_lib::key::ApiKey;

/// How many people can be found, unless a measurement says otherwise.
pub const PEOPLE: usize = 10_000;

/// What is asked, by the answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Case {
    /// 200: a person who is found.
    #[default]
    Found,
    /// 404: a person whom nobody knows.
    NotFound,
    /// 401: a key of the right form that is nobody's.
    Unauthorized,
    /// 429: a workspace whose window is used up.
    RateLimited,
    /// 400: a body with an unknown field.
    Invalid,
}

/// The keys that the requests bear.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Of a workspace without a limit that matters.
    pub main: ApiKey,
    /// Of a workspace that may ask once a day.
    pub limited: ApiKey,
    /// Nobody's.
    pub unknown: ApiKey,
}

impl Default for Keys {
    fn default() -> Self {
        Self { main: key(1), limited: key(2), unknown: key(3) }
    }
}

/// A key that is the same in every process.
pub fn key(seed: u64) -> ApiKey {
    let mut state = seed;
    ApiKey::generate(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
}

/// The address of one of the people: all of one length, and so are their requests.
pub fn email(person: usize) -> String {
    format!("person{person:08}@gmail.com")
}

/// The name in the URL of their profile.
pub fn profile(person: usize) -> String {
    format!("person-{person}")
}

/// The bytes of a request for one of the people.
pub fn request(key: &str, person: usize) -> Vec<u8> {
    post(key, &format!(r#"{{"email":"{}"}}"#, email(person)))
}

fn post(key: &str, body: &str) -> Vec<u8> {
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

impl Case {
    /// The status of its replies, and of bare hyper's in its place.
    pub const fn status(self) -> u16 {
        match self {
            Self::Found => 200,
            Self::NotFound => 404,
            Self::Unauthorized => 401,
            Self::RateLimited => 429,
            Self::Invalid => 400,
        }
    }

    /// A request for each of so many people.
    pub fn requests(self, keys: &Keys, people: usize) -> Vec<Vec<u8>> {
        let key = match self {
            Self::Unauthorized => &keys.unknown,
            Self::RateLimited => &keys.limited,
            _ => &keys.main,
        };
        let request = |person| match self {
            Self::NotFound => post(key.reveal(), &format!(r#"{{"email":"nobody{person:08}@gmail.com"}}"#)),
            Self::Invalid => post(key.reveal(), &format!(r#"{{"email":"{}","name":"Ada"}}"#, email(person))),
            _ => request(key.reveal(), person),
        };
        (0..people).map(request).collect()
    }
}
