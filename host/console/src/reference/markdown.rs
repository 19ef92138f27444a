//! Markdown in descriptions.

use pulldown_cmark::{Parser, html};

/// Converts Markdown to HTML.
pub(crate) fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    html::push_html(&mut out, Parser::new(text));
    out
}

/// Converts one paragraph of Markdown to HTML without the paragraph's tags.
pub(crate) fn inline(text: &str) -> String {
    let html = paragraphs(text);
    let html = html.trim();
    html.strip_prefix("<p>").and_then(|html| html.strip_suffix("</p>")).unwrap_or(html).to_owned()
}
