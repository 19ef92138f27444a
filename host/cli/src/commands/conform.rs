//! `enrich conform`: compares the replies of a deployment with the transcripts of the interface.

use std::fs::File;
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use enrich_golden::{Conformance, Deployment, DeploymentError, Outcome, Stream, WorkspaceKeys};
use enrich_lib::wire;
use hyper::Uri;
use rustls::ClientConfig;
use serde_json::json;

use crate::args::ConformArgs;
use crate::client::{self, Cause};
use crate::failure::{Exit, Failure};
use crate::output::{self, Format};

pub fn run(args: &ConformArgs, format: Format) -> Result<(), Failure> {
    let uri = client::uri(&args.url, &args.access)?;
    let key = client::read_key(&args.access)?;
    let second = client::key_of_flag("--second-key", args.second_key.as_deref())?;
    let second_limited = client::key_of_flag("--second-limited-key", args.second_limited_key.as_deref())?;
    let limited = client::key_of_flag("--limited-key", args.limited_key.as_deref())?;
    let tls = match uri.scheme_str() {
        Some("https") => {
            let mut config = client::tls_config(true, args.access.tls_ca.as_deref())?;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Some(Arc::new(config))
        }
        _ => None,
    };
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    let deployment = Deployment {
        connect: &|| connect(&uri, tls.as_ref()),
        host,
        base_path: uri.path().strip_suffix(wire::PATH).unwrap_or_default().to_owned(),
        workspace: WorkspaceKeys { key, second },
        limited: limited.map(|key| WorkspaceKeys { key, second: second_limited }),
        without_credits: client::key_of_flag("--empty-key", args.empty_key.as_deref())?,
        revoked: client::key_of_flag("--revoked-key", args.revoked_key.as_deref())?,
        found: args.found.clone(),
        not_found: args.not_found.clone(),
        wait: &wait,
    };
    let scenarios = enrich_golden::scenarios().map_err(|error| Failure::new(error.to_string()))?;
    let not_written = |path: &Path, error| Failure::file("write", path, error);
    // Opened before the run, whose matches are billed. An existing report stays until there are results.
    let open = |path: &Path| File::options().write(true).create(true).truncate(false).open(path);
    let mut junit_file = None;
    if let Some(path) = &args.junit {
        junit_file = Some((path, open(path).map_err(|error| not_written(path, error))?));
    }
    let conformance = deployment.run(&scenarios).map_err(|error| failure(&args.url, &error))?;
    if let Some((path, mut file)) = junit_file {
        let written = file.set_len(0).and_then(|()| file.write_all(junit(&conformance).as_bytes()));
        written.map_err(|error| not_written(path, error))?;
    }
    match format.json {
        true => output::json(&report(&conformance))?,
        false => output::line(printable(&conformance.to_string()))?,
    }
    match conformance.counts() {
        [_, _, 0] => Ok(()),
        [_, _, failed] => {
            Err(Failure::new(format!("{failed} replies of {} differ from the interface", args.url)))
        }
    }
}

fn wait(time: Duration) {
    output::remark(format!("waiting {} s: the burst limit of the workspace is used up", time.as_secs()));
    std::thread::sleep(time);
}

fn failure(url: &str, error: &DeploymentError) -> Failure {
    match error {
        DeploymentError::Connect(error) => client::unreachable(url, cause(error)),
        DeploymentError::NotTheService(_) => {
            Failure::new(printable(&format!("{url} is not the service: {error}")))
        }
        _ => Failure::new(error.to_string()).exit(Exit::Refused),
    }
}

/// Describes why no connection can be made. Errors of TLS are wrapped in those of the connection.
fn cause(error: &io::Error) -> Cause {
    match error.get_ref() {
        Some(inner) => Cause::from_error(inner),
        None => Cause::from_error(error),
    }
}

fn connect(uri: &Uri, tls: Option<&Arc<ClientConfig>>) -> io::Result<Box<dyn Stream>> {
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let mut last = io::Error::other("the name of the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match enrich_golden::connect(address) {
            Ok(tcp) => {
                return match tls {
                    Some(config) => enrich_golden::with_tls(tcp, host, config.clone()),
                    None => Ok(Box::new(tcp)),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Makes the replies of a server safe to print, line by line.
fn printable(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let indent = line.len() - line.trim_start().len();
        format!("{}{}", &line[..indent], output::printable(line))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn report(conformance: &Conformance) -> serde_json::Value {
    let [passed, skipped, failed] = conformance.counts();
    let cases = conformance.cases.iter().map(|case| {
        let (outcome, text) = match &case.outcome {
            Outcome::Passed => ("passed", None),
            Outcome::Skipped(reason) => ("skipped", Some(reason)),
            Outcome::Failed(what) => ("failed", Some(what)),
        };
        json!({ "transcript": case.transcript, "line": case.line, "outcome": outcome, "reason": text })
    });
    json!({
        "passed": passed,
        "skipped": skipped,
        "failed": failed,
        "matches": conformance.matches,
        "cases": cases.collect::<Vec<_>>(),
    })
}

/// Formats the results as JUnit XML: a test suite for each transcript, and a test case for each exchange.
fn junit(conformance: &Conformance) -> String {
    let mut xml =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"enrich conform\">\n".to_owned();
    for cases in conformance.cases.chunk_by(|one, next| one.transcript == next.transcript) {
        let name = &cases[0].transcript;
        let count = |is: fn(&Outcome) -> bool| cases.iter().filter(|case| is(&case.outcome)).count();
        let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        let failures = count(|outcome| matches!(outcome, Outcome::Failed(_)));
        let tests = cases.len();
        xml += &format!(
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n"
        );
        for case in cases {
            xml += &format!("    <testcase classname=\"{name}\" name=\"line {}\"", case.line);
            xml += &match &case.outcome {
                Outcome::Passed => "/>\n".to_owned(),
                Outcome::Skipped(reason) => {
                    format!("><skipped message=\"{}\"/></testcase>\n", escaped(reason))
                }
                Outcome::Failed(what) => {
                    let what = escaped(&printable(what));
                    let message = what.lines().next().unwrap_or_default();
                    format!("><failure message=\"{message}\">{what}</failure></testcase>\n")
                }
            };
        }
        xml += "  </testsuite>\n";
    }
    xml + "</testsuites>\n"
}

/// Escapes printable text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
