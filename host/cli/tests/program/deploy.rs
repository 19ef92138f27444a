//! The files in `host/deploy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::enrich::Enrich;

pub fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

#[cfg(target_os = "linux")]
#[cfg(feature = "tools")]
#[test]
fn systemd_accepts_the_units() {
    let units = tempfile::tempdir().unwrap();
    for name in ["enrich.service", "enrich.socket"] {
        let unit = fs::read_to_string(deployed(name)).unwrap();
        let unit = unit.replace("/usr/bin/enrich", env!("CARGO_BIN_EXE_enrich"));
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

/// A command of the operator finds the data of the service without a variable.
#[test]
fn packaged_settings_name_the_data_of_the_service() {
    let enrich = Enrich::new();
    let mut check = enrich.command(&["config", "check", deployed("enrich.toml").to_str().unwrap()]);
    let report = check.env_remove("ENRICH_DATA").output().unwrap();
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("accounts: SQLite in /var/lib/enrich/data\n"), "{report}");
    assert!(!fs::read_to_string(deployed("enrich.service")).unwrap().contains("ENRICH_DATA"));
}

#[test]
fn settings_for_kubernetes_are_valid() {
    let manifests = fs::read_to_string(deployed("kubernetes.yaml")).unwrap();
    let (_, settings) = manifests.split_once("enrich.toml: |\n").unwrap();
    let settings: Vec<_> = settings.lines().take_while(|line| *line != "---").map(str::trim_start).collect();
    let enrich = Enrich::new();
    let file = enrich.file("enrich.toml", settings.join("\n"));
    let mut check = enrich.command(&["config", "check", file.to_str().unwrap()]);
    // Variables replace settings of the file: those of the image, and those of the container.
    let image = fs::read_to_string(deployed("Dockerfile")).unwrap();
    let variables = image.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap().split(' ');
    check.envs(variables.map(|variable| variable.split_once('=').unwrap()));
    let variables = manifests.lines().filter_map(|line| line.trim_start().strip_prefix("env: [{ name: "));
    check.envs(variables.map(|variable| {
        let (name, value) = variable.split_once(", value: ").unwrap();
        (name, value.trim_matches(['"', ' ', '}', ']']))
    }));
    let report = String::from_utf8(check.output().unwrap().stdout).unwrap();
    assert!(report.contains("listen: http://0.0.0.0:8080\n"), "{report}");
    assert!(report.contains("admin listener: http://0.0.0.0:9464\n"), "{report}");
}

/// Returns the list of strings in the value of `key`, on each line that has one.
fn lists(text: &str, key: &str) -> Vec<Vec<String>> {
    let words = |list: &str| list.split(", ").map(|word| word.trim_matches('"').to_owned()).collect();
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(key)?.strip_prefix(": ["));
    lines.map(|line| words(line.strip_suffix(']').unwrap())).collect()
}

/// `--help` is reached only if the command and its flags before it exist.
#[test]
fn containers_and_the_unit_run_existing_commands() {
    let compose = fs::read_to_string(deployed("compose.yaml")).unwrap();
    let kubernetes = fs::read_to_string(deployed("kubernetes.yaml")).unwrap();
    let mut commands = lists(&kubernetes, "args");
    commands.extend(lists(&compose, "command").into_iter().filter(|words| words[0] != "redis-server"));
    let unit = fs::read_to_string(deployed("enrich.service")).unwrap();
    let lines = unit.lines().filter_map(|line| line.split_once("=/usr/bin/enrich "));
    commands.extend(lines.map(|(_, words)| words.split(' ').map(str::to_owned).collect()));
    assert_eq!(commands.len(), 6, "{commands:?}");
    let enrich = Enrich::new();
    for command in commands {
        let words: Vec<_> = command.iter().map(String::as_str).chain(["--help"]).collect();
        enrich.ok(&words);
    }
}

#[test]
fn debian_package_names_existing_files() {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(crate_dir.join("Cargo.toml")).unwrap().parse::<toml::Table>().unwrap();
    let package = &manifest["package"]["metadata"]["deb"];
    let assets = package["assets"].as_array().unwrap().iter().map(|asset| &asset[0]);
    let others = [&package["changelog"], &package["license-file"][0], &package["maintainer-scripts"]];
    let release = fs::read_to_string(deployed("release")).unwrap();
    for source in assets.chain(others).map(|source| source.as_str().unwrap()) {
        let path = source.split('*').next().unwrap().trim_end_matches('/');
        match path.strip_prefix("../../target/package/") {
            Some(written) => assert!(release.contains(&format!("\"$common/{written}\"")), "{source}"),
            None if source == "target/release/enrich" => {}
            None => assert!(crate_dir.join(path).exists(), "{source}"),
        }
    }
}

#[cfg(feature = "tools")]
#[test]
fn shellcheck_accepts_the_scripts() {
    const SCRIPTS: &str = ".ci/run fuzz/run host/deploy/debian/postinst host/deploy/debian/postrm host/deploy/debian/prerm host/deploy/release \
        test tests/install tests/interleavings/rustc tests/openapi/run tests/packages/run tests/planted/run";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let checked = Command::new("shellcheck").current_dir(root).args(SCRIPTS.split_whitespace()).output();
    let checked = checked.expect("shellcheck is installed: apt-get install shellcheck");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
