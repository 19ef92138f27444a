//! The reference of the API, which needs no sign-in.

use axum::extract::Path;
use axum::response::{Html, Redirect};

use crate::error::Error;

pub(crate) async fn start() -> Redirect {
    Redirect::to(&format!("/reference/{}", enrich_reference::INDEX))
}

pub(crate) async fn show(Path(path): Path<String>) -> Result<Html<&'static str>, Error> {
    let page = enrich_reference::pages().iter().find(|page| page.path == path);
    page.map(|page| Html(page.html.as_str())).ok_or(Error::NotFound)
}
