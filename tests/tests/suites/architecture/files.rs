//! The sizes of files and the widths of their lines.

use std::fs::read_to_string;

use super::{files_with_extension, root};

/// An extension, the least number of files with it, and the greatest numbers of their lines and of characters in
/// a line.
const LIMITS: [(&str, usize, usize, usize); 3] =
    [("rs", 300, 400, usize::MAX), ("sql", 8, usize::MAX, 110), ("md", 20, usize::MAX, 135)];

/// The page about the architecture names files in code spans.
#[test]
fn paths_in_the_architecture_page_exist() {
    let page = read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(page.lines().count() <= 120);
    let spans = page.split('`').skip(1).step_by(2).filter(|span| span.contains('/'));
    let paths: Vec<_> = spans.filter(|span| !span.contains(char::is_whitespace)).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "{path} does not exist");
    }
}

/// The width does not count in rows of tables and blocks of code in Markdown.
#[test]
fn files_are_neither_too_long_nor_too_wide() {
    for (extension, files_min, lines_max, width_max) in LIMITS {
        let files = files_with_extension(&root(), extension);
        assert!(files.len() >= files_min, "{} files .{extension}", files.len());
        for file in files {
            let (text, mut is_code) = (read_to_string(&file).unwrap(), false);
            assert!(text.lines().count() <= lines_max, "{} is too long", file.display());
            for (n, line) in (1..).zip(text.lines()) {
                is_code ^= line.trim_start().starts_with("```");
                let is_wide = !is_code && !line.starts_with('|') && line.chars().count() > width_max;
                assert!(!is_wide, "{}:{n} is too wide", file.display());
            }
        }
    }
}
