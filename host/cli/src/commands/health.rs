//! `enrich health`: asks the admin listener of a server whether it is ready, for health checks of containers.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::timeout;

use crate::args::HealthArgs;
use crate::client::{self, Cause};
use crate::failure::Failure;
use crate::listen::Listen;
use crate::output::{self, Format};
use crate::runtime;
use crate::settings::{Layers, SharedSettings};

/// Timeout of the request. Longer than the timeouts of the checks.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longer replies are rejected.
const REPLY_BYTES_MAX: usize = 64 * 1_024;

pub fn run(layers: &Layers, args: &HealthArgs, format: Format) -> Result<(), Failure> {
    let url = url(layers, args)?;
    let uri = client::server_uri(&url, "/readyz", &["http"])
        .map_err(|failure| failure.advise("use a URL such as http://127.0.0.1:9464"))?;
    let reply = runtime::single_threaded()?.block_on(async { timeout(TIMEOUT, get(uri)).await });
    match reply {
        Ok(Ok((StatusCode::OK, _))) if format.json => output::json(&json!({ "ready": true })),
        Ok(Ok((StatusCode::OK, _))) => output::line("ready"),
        Ok(Ok((StatusCode::SERVICE_UNAVAILABLE, body))) => Err(Failure::new(reasons(&body))),
        Ok(Ok((status, _))) => {
            Err(Failure::new(format!("{url} replied {status}; it is not an admin listener")))
        }
        Ok(Err(error)) => Err(Failure::new(format!("cannot reach {url}: {error}"))),
        Err(_) => Err(Failure::new(format!("{url} did not reply within {TIMEOUT:?}"))),
    }
}

/// Returns the URL of the admin listener: the flag, or that of the settings.
fn url(layers: &Layers, args: &HealthArgs) -> Result<String, Failure> {
    if let Some(url) = &args.url {
        return Ok(url.clone());
    }
    match SharedSettings::read(layers)?.admin_listen() {
        Some(Listen::Address(address)) => Ok(format!("http://{}", reachable(*address))),
        Some(socket @ Listen::Passed(_)) => {
            Err(Failure::usage(format!("the address of {socket} is unknown")).advise("set it with --url"))
        }
        None => Err(Failure::usage("there is no admin listener in the settings").advise(
            "set admin.listen in the file of --config, or ENRICH_ADMIN_LISTEN, or name its URL with --url",
        )),
    }
}

/// Returns an address at which a listener on all addresses can be reached.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

async fn get(uri: Uri) -> Result<(StatusCode, String), Box<dyn std::error::Error + Send + Sync>> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let (head, body) = client.get(uri).await.map_err(|error| Cause::from_error(&error).text)?.into_parts();
    let body = Limited::new(body, REPLY_BYTES_MAX).collect().await?.to_bytes();
    Ok((head.status, String::from_utf8_lossy(&body).into_owned()))
}

/// Returns the failed checks of a reply.
fn reasons(body: &str) -> String {
    let failed: Vec<_> = body.lines().filter_map(|line| line.strip_prefix("[-]")).collect();
    output::printable(&format!("not ready: {}", failed.join("; ")))
}
