//! A PostgreSQL server on a disk whose syncs fail, or which is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::postgres::{PRELOADED, Postgres, initialize};

/// The file in the directory of the data whose existence makes the next sync fail.
const SYNC_FAILS: &str = "fail-sync";

/// The file whose existence makes all writes fail.
const IS_FULL: &str = "full";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

static int fail(int error) {
    errno = error;
    return -1;
}

int fdatasync(int file) {
    if (unlink("fail-sync") == 0)
        return fail(EIO);
    int (*sync)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return sync(file);
}

static int is_full(void) {
    return access("full", F_OK) == 0;
}

ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    if (is_full())
        return fail(ENOSPC);
    ssize_t (*write)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    return write(file, data, size, at);
}

ssize_t pwrite64(int file, const void *data, size_t size, off_t at) {
    return pwrite(file, data, size, at);
}

ssize_t pwritev(int file, const struct iovec *data, int count, off_t at) {
    if (is_full())
        return fail(ENOSPC);
    ssize_t (*write)(int, const struct iovec *, int, off_t) = dlsym(RTLD_NEXT, "pwritev");
    return write(file, data, count, at);
}

ssize_t pwritev64(int file, const struct iovec *data, int count, off_t at) {
    return pwritev(file, data, count, at);
}
"#;

impl Postgres {
    /// Starts a server that syncs its log, and whose disk can fail. It ends when its log cannot be written.
    pub fn start_on_failing_disk(settings: &[&str]) -> Self {
        let dir = initialize(&[]);
        build(dir.path());
        Self::serve_in(dir, &[&["fsync=on", "restart_after_crash=off"], settings].concat())
    }

    /// Makes the next sync of the log fail.
    pub fn fail_next_sync(&self) {
        self.set(SYNC_FAILS);
    }

    /// Makes all writes fail.
    pub fn fill_disk(&self) {
        self.set(IS_FULL);
    }

    /// Makes writes and syncs work.
    pub fn repair_disk(&self) {
        for mark in [SYNC_FAILS, IS_FULL] {
            let _ = fs::remove_file(self.dir.join("data").join(mark));
        }
    }

    fn set(&self, mark: &str) {
        fs::write(self.dir.join("data").join(mark), "").unwrap();
    }
}

/// Builds the library that fails writes and syncs into the directory of a server.
fn build(dir: &Path) {
    let source = dir.join("failing_disk.c");
    fs::write(&source, SOURCE).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(dir.join(PRELOADED)).arg(&source).output();
    let built = built.expect("a C compiler is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
