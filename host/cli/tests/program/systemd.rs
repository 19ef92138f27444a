//! The systemd units.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn systemd_accepts_the_units() {
    let units = tempfile::tempdir().unwrap();
    for name in ["enrich.service", "enrich.socket"] {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
        let unit = fs::read_to_string(unit).unwrap().replace("/usr/bin/enrich", env!("CARGO_BIN_EXE_enrich"));
        fs::write(units.path().join(name), unit).unwrap();
    }
    let ran = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(units.path().join("enrich.service"))
        .output()
        .expect("systemd-analyze is installed: apt-get install systemd");
    let report = String::from_utf8_lossy(&ran.stderr);
    let about_units: Vec<_> = report.lines().filter(|line| line.contains("enrich.")).collect();
    assert!(ran.status.success() && about_units.is_empty(), "{report}");
}
