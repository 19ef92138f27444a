//! The directory in which the blocks of one page run.

use std::path::Path;
use std::process::Command;

use regex::Regex;

use super::page::{Block, Fixture, Kind, Page};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{Enrich, Server, clear_environment};

const PEOPLE: &str = "email,linkedin_url\nada.marlowe@gmail.com,https://www.linkedin.com/in/ada-marlowe\n\
                      bea.marlowe@outlook.com,https://www.linkedin.com/in/bea-marlowe\n";

/// An empty directory with input files, in which commands find the program `enrich`.
pub struct World {
    enrich: Enrich,
    server: Option<Server>,
}

impl World {
    /// Creates the directory with the files that the page shows.
    pub fn new(page: &Page) -> Self {
        let enrich = Enrich::new();
        enrich.file("people.csv", PEOPLE);
        for block in &page.blocks {
            if let Kind::File(name) = &block.kind {
                enrich.file(name, &block.text);
            }
        }
        Self { enrich, server: None }
    }

    /// Runs the commands of a block and compares their output.
    pub fn run(&mut self, block: &Block, fixture: Fixture) -> Result<(), String> {
        if fixture != Fixture::Nothing && !self.enrich.path("enrich-data").exists() {
            let data = "enrich workspace create acme --credits 10000; enrich key create acme docs > acme.key; \
                        enrich people import people.csv";
            self.shell(data)?;
        }
        if fixture == Fixture::Server && self.server.is_none() {
            let mut serve = self.enrich.command(&["serve", "--listen", "127.0.0.1:0"]);
            self.server = Some(Server::start(serve.env_remove("ENRICH_DATA"))?);
        }
        for (command, expected) in block.commands() {
            let output = self.shell(&command)?;
            if block.language == "console" && !matches(&output, &expected) {
                return Err(format!("`{command}` printed\n{output}"));
            }
        }
        Ok(())
    }

    /// Runs a script and returns its output, including errors. Fails if the script fails.
    fn shell(&self, script: &str) -> Result<String, String> {
        let programs = Path::new(env!("CARGO_BIN_EXE_enrich")).parent().unwrap().display();
        let mut command = Command::new("sh");
        command.args(["-euc", &format!("exec 2>&1\n{script}")]).current_dir(self.enrich.path(""));
        clear_environment(&mut command);
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
        if let Some(server) = &self.server {
            command.env("ENRICH_URL", &server.url);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if output.status.success() { Ok(text) } else { Err(format!("{}: {text}", output.status)) }
    }

    /// Checks settings with `enrich config check`, beside the files that the pages name.
    pub fn check_settings(&self, settings: &str) -> Result<(), String> {
        self.enrich.certificate("127.0.0.1");
        self.enrich.file("people-data-labs.key", "s3cret");
        self.enrich.file("database.url", "postgres://enrich:s3cret@postgres.internal/enrich");
        self.enrich.file("people.key", "07070707070707070707070707070707");
        self.enrich.file("redis.url", "rediss://enrich:s3cret@redis.internal");
        for name in ["alpha", "beta", "gamma"] {
            Vendor::that(Behavior::NoMatch).describe(&self.enrich, name, "s3cret");
        }
        self.enrich.file("settings.toml", settings);
        let mut check = self.enrich.command(&["config", "check", "settings.toml"]);
        let output = check.env("ACME_API_KEY", "s3cret").output().unwrap();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
    }
}

/// Returns whether the text matches the pattern, in which `…` stands for any text on a line.
fn matches(text: &str, pattern: &str) -> bool {
    let pattern = regex::escape(pattern.trim_end()).replace('…', ".*");
    Regex::new(&format!("^{pattern}$")).unwrap().is_match(text.trim_end())
}
