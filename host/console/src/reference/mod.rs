//! The HTML reference of the API, generated from its OpenAPI description ([`enrich_lib::wire::OPENAPI`]): one
//! page for the operation and one for each error.
//!
//! The pages link to each other with relative URLs, and need no other file and no request to another host.

mod description;
pub(crate) mod markdown;
mod page;

use std::sync::LazyLock;

use enrich_lib::wire::OPENAPI;

pub use self::description::ErrorCode;
use self::description::{ApiDescription, Schema};
use self::page::{ErrorPage, OperationPage};

/// The stylesheet in each page, for a content security policy.
pub const STYLE: &str = include_str!("../../assets/reference.css");

/// The path of the first page.
pub const INDEX: &str = "index.html";

/// An HTML page.
#[derive(Debug)]
pub struct Page {
    /// The path relative to the directory of the reference, such as `errors/invalid_email.html`.
    pub path: String,
    /// The HTML document.
    pub html: String,
}

static API: LazyLock<ApiDescription> =
    LazyLock::new(|| serde_json::from_str(OPENAPI).expect("a test reads the description"));

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(|| {
    let errors = errors();
    let operation = OperationPage { api: &API, errors, style: STYLE };
    let mut pages = vec![Page { path: INDEX.to_owned(), html: page::render(&operation) }];
    pages.extend(errors.iter().map(|error| {
        let page = ErrorPage { error, api: &API, style: STYLE };
        Page { path: error.path(), html: page::render(&page) }
    }));
    pages
});

/// Returns all pages.
pub fn pages() -> &'static [Page] {
    &PAGES
}

/// Returns all errors of the API, in the order of specification 7.
pub fn errors() -> &'static [ErrorCode] {
    match API.components.schemas.get("ErrorCode") {
        Some(Schema::Codes { one_of }) => one_of,
        _ => &[],
    }
}
