//! The sizes of files and the widths of their lines.

use std::path::PathBuf;

use super::{files_with_extension, root, rust_files};

const LINES_MAX: usize = 400;

/// The maximum width of a line of SQL, as of Rust.
const WIDTH_MAX: usize = 110;

/// The maximum width of a line of text in Markdown.
const MARKDOWN_WIDTH_MAX: usize = 135;

/// The page about the architecture names files in code spans.
#[test]
fn paths_in_the_architecture_page_exist() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 120);
    let spans = page.split('`').skip(1).step_by(2).filter(|span| span.contains('/'));
    let paths: Vec<_> = spans.filter(|span| !span.contains(char::is_whitespace)).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "{path} does not exist");
    }
}

#[test]
fn files_have_at_most_400_lines() {
    let files = rust_files(&root());
    assert!(files.len() > 300, "{} files", files.len());
    for file in files {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
    }
}

/// Returns the lines that are wider than `max`, except rows of tables and blocks of code in Markdown.
fn wide_lines(files: &[PathBuf], max: usize) -> Vec<String> {
    let mut wide = Vec::new();
    for file in files {
        let mut is_code = false;
        for (n, line) in (1..).zip(std::fs::read_to_string(file).unwrap().lines()) {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && !line.starts_with('|') && line.chars().count() > max {
                wide.push(format!("{}:{n}", file.display()));
            }
        }
    }
    wide
}

#[test]
fn sql_is_at_most_110_columns_wide() {
    let files = files_with_extension(&root(), "sql");
    assert!(files.len() >= 8, "{files:?}");
    assert_eq!(wide_lines(&files, WIDTH_MAX), [""; 0]);
}

#[test]
fn markdown_is_at_most_135_columns_wide() {
    let files = files_with_extension(&root(), "md");
    assert!(files.len() >= 20, "{files:?}");
    assert_eq!(wide_lines(&files, MARKDOWN_WIDTH_MAX), [""; 0]);
}
