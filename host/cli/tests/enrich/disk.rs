//! A small disk that can be filled and emptied.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const DISK: &str = "size=2m";

/// A tmpfs mount.
pub struct Disk {
    mounted_at: PathBuf,
}

impl Disk {
    pub fn mount(at: PathBuf) -> Self {
        fs::create_dir(&at).unwrap();
        Self::mount_over(at)
    }

    /// Hides the content of a directory.
    pub fn mount_over(at: PathBuf) -> Self {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(&at).status().unwrap();
        assert!(mounted.success());
        Self { mounted_at: at }
    }

    /// Fills the disk completely, even while the server writes.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        let full = (0..).find_map(|_| ballast.write_all(&[0; 512]).err()).unwrap();
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }

    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.mounted_at.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted_at).status();
    }
}

/// Returns the locks that a process holds for as long as it has an SQLite file open, each with its file: the
/// one on the shared memory of a write-ahead log, and the shared one on the database. Others last for one
/// transaction.
pub fn lasting_locks(pid: u32) -> BTreeSet<String> {
    const SHARED_MEMORY: u64 = 128;
    const DATABASE: u64 = 0x4000_0000 + 2;
    // The kernel can skip a lock at the end of a page of this file while other processes change theirs.
    let locks: String = (0..8).map(|_| fs::read_to_string("/proc/locks").unwrap()).collect();
    let fields = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_process = fields.filter(|lock| lock[1] == "POSIX" && lock[4] == pid.to_string());
    let lasting = of_process.filter(|lock| matches!(lock[6].parse(), Ok(SHARED_MEMORY | DATABASE)));
    lasting.map(|lock| lock[3..].join(" ")).collect()
}

/// Set in a process that has its own mount namespace.
const MOUNTS: &str = "ENRICH_TEST_MOUNTS";

/// Runs the test in a child process with its own mount namespace, which ends with the process.
pub fn with_mounts(test: &str, run: impl FnOnce()) {
    if std::env::var_os(MOUNTS).is_some() {
        return run();
    }
    let probe = tempfile::tempdir().unwrap();
    let ways = WAYS.iter().find(|ways| can_mount(ways, probe.path()));
    let ways = ways.expect("this machine can mount a file system: run as root, or enable user namespaces");
    let ran = Command::new("unshare")
        .args(*ways)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(MOUNTS, "own")
        .output()
        .unwrap();
    let [stdout, stderr] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(ran.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

/// Arguments of `unshare`: as root, or as root of a new user namespace.
const WAYS: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];

fn can_mount(ways: &[&str], at: &Path) -> bool {
    let mount = ["mount", "-t", "tmpfs", "-o", DISK, "tmpfs"];
    let probed = Command::new("unshare").args(ways).args(mount).arg(at).output();
    probed.is_ok_and(|probed| probed.status.success()) && bytes_under(at).is_empty()
}

/// Returns the contents of all files below a directory, concatenated.
pub fn bytes_under(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        all.extend(if path.is_dir() { bytes_under(&path) } else { std::fs::read(path).unwrap() });
    }
    all
}
