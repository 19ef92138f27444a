//! The reference of the API, which needs no sign-in.

use axum::response::{Html, Redirect};

use crate::error::Error;
use crate::extract::Path;
use crate::reference;

pub(crate) async fn start() -> Redirect {
    Redirect::to(&format!("/reference/{}", reference::INDEX))
}

pub(crate) async fn show(Path(path): Path<String>) -> Result<Html<String>, Error> {
    let page = reference::pages().iter().find(|page| page.path == path).ok_or(Error::NotFound)?;
    // The same pages are also printed as files, which belong to no application.
    Ok(Html(page.html.replacen("</header>", "<a href=\"/\">Web application</a></header>", 1)))
}
