//! The sizes of files.

use super::{root, rust_files};

const LINES_MAX: usize = 400;

#[test]
fn files_have_at_most_400_lines() {
    let files = rust_files(&root());
    assert!(files.len() > 300, "{} files", files.len());
    for file in files {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
    }
}
