//! `enrich openapi`

use std::fs;
use std::path::Path;

use enrich_console::reference::{self, INDEX};
use enrich_lib::wire::OPENAPI;

use crate::args::OpenapiArgs;
use crate::failure::Failure;
use crate::output;

pub fn run(args: &OpenapiArgs) -> Result<(), Failure> {
    match &args.html {
        None => output::line(OPENAPI.trim_end()),
        Some(dir) => write_pages(dir),
    }
}

fn write_pages(dir: &Path) -> Result<(), Failure> {
    for page in reference::pages() {
        let path = dir.join(&page.path);
        let parent = path.parent().unwrap_or(dir);
        fs::create_dir_all(parent).map_err(|error| Failure::file("create", parent, error))?;
        fs::write(&path, &page.html).map_err(|error| Failure::file("write", &path, error))?;
    }
    output::line(dir.join(INDEX).display().to_string())
}
