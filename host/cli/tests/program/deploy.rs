//! The files in `host/deploy`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::enrich::Enrich;

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_accepts_the_units() {
    let units = tempfile::tempdir().unwrap();
    for name in ["enrich.service", "enrich.socket"] {
        let unit = fs::read_to_string(deployed(name)).unwrap();
        let unit = unit.replace("/usr/bin/enrich", env!("CARGO_BIN_EXE_enrich"));
        fs::write(units.path().join(name), unit).unwrap();
    }
    let ran = std::process::Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(units.path().join("enrich.service"))
        .output()
        .expect("systemd-analyze is installed: apt-get install systemd");
    let report = String::from_utf8_lossy(&ran.stderr);
    let about_units: Vec<_> = report.lines().filter(|line| line.contains("enrich.")).collect();
    assert!(ran.status.success() && about_units.is_empty(), "{report}");
}

#[test]
fn settings_for_kubernetes_are_valid() {
    let manifests = fs::read_to_string(deployed("kubernetes.yaml")).unwrap();
    let (_, settings) = manifests.split_once("enrich.toml: |\n").unwrap();
    let settings: Vec<_> = settings.lines().take_while(|line| *line != "---").map(str::trim_start).collect();
    let enrich = Enrich::new();
    let file = enrich.file("enrich.toml", settings.join("\n"));
    let report = enrich.ok(&["config", "check", file.to_str().unwrap()]);
    assert!(report.contains("listen: http://0.0.0.0:8080\n"), "{report}");
    assert!(report.contains("admin listener: http://0.0.0.0:9464\n"), "{report}");
}
