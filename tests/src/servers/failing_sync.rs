//! A PostgreSQL server on a disk whose syncs fail.

use std::path::Path;
use std::process::Command;

use super::postgres::{PRELOADED, Postgres, initialize};

/// The file in the directory of the data whose existence makes the next sync fail.
const MARK: &str = "fail-sync";

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

int fdatasync(int file) {
    if (unlink("fail-sync") == 0) {
        errno = EIO;
        return -1;
    }
    int (*sync)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return sync(file);
}
"#;

impl Postgres {
    /// Starts a server that syncs its log, and on which [`Postgres::fail_next_sync`] works. When a sync has
    /// failed, the server ends.
    pub fn start_with_failing_sync() -> Self {
        let dir = initialize(&[]);
        build(dir.path());
        // The commit of a spend is the next sync: nothing else writes the log meanwhile.
        Self::serve_in(dir, &["fsync=on", "restart_after_crash=off", "wal_writer_delay=10s"])
    }

    /// Makes the next sync of the log fail.
    pub fn fail_next_sync(&self) {
        std::fs::write(self.dir.join("data").join(MARK), "").unwrap();
    }
}

/// Builds the library that fails syncs into the directory of a server.
fn build(dir: &Path) {
    let source = dir.join("failing_sync.c");
    std::fs::write(&source, SOURCE).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(dir.join(PRELOADED)).arg(&source).output();
    let built = built.expect("a C compiler is installed");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}
