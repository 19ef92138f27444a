//! The pages of the reference.

use askama::Template;

use super::description::{ApiDescription, ErrorCode};

/// The page of the operation.
#[derive(Template)]
#[template(path = "reference/operation.html")]
pub(crate) struct OperationPage<'a> {
    pub(crate) api: &'a ApiDescription,
    pub(crate) errors: &'a [ErrorCode],
    pub(crate) style: &'static str,
}

/// The page of one error.
#[derive(Template)]
#[template(path = "reference/error.html")]
pub(crate) struct ErrorPage<'a> {
    pub(crate) error: &'a ErrorCode,
    pub(crate) api: &'a ApiDescription,
    pub(crate) style: &'static str,
}

pub(crate) fn render(page: &impl Template) -> String {
    page.render().expect("a page is written to memory")
}
