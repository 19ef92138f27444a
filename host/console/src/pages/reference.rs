//! The reference of the API, which needs no sign-in.

use axum::response::{Html, Redirect};

use crate::error::Error;
use crate::extract::Path;
use crate::reference;

pub(crate) async fn start() -> Redirect {
    Redirect::to(&format!("/reference/{}", reference::INDEX))
}

pub(crate) async fn show(Path(path): Path<String>) -> Result<Html<&'static str>, Error> {
    let page = reference::pages().iter().find(|page| page.path == path);
    page.map(|page| Html(page.html.as_str())).ok_or(Error::NotFound)
}
