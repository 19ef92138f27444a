//! The gateway with a sample workspace in memory.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::ApiKey;
use enrich_lib::lookup::Policy;
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::ProfileUrl;
use enrich_lib::window::{Quota, Workspace};
use enrich_lib::wire;
use enrich_pingora::gateway::Gateway;
use pingora::proxy::http_proxy_service;
use pingora::server::Server;
use pingora::server::configuration::ServerConf;

/// The email of the sample person.
const EMAIL: &str = "ada.marlowe.sample001@gmail.com";

/// A gateway that answers lookups itself and passes other requests to an upstream server.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on, in plain HTTP; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address of the upstream server, in plain HTTP
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    upstream: SocketAddr,
}

fn main() -> ExitCode {
    match run() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Infallible, Box<dyn Error>> {
    env_logger::init_from_env(env_logger::Env::default().default_filter_or("warn,enrich_pingora=info"));
    let args = Args::parse();
    let listen = resolve_port(args.listen).map_err(|e| {
        format!("cannot listen on {}: {e}; choose another address with --listen", args.listen)
    })?;
    let (service, key) = sample()?;
    // A shutdown waits for running lookups, whose holds last no longer than this.
    let grace_period_seconds = Some(service.policy.hold_ttl.as_secs());
    let gateway = Gateway { service, upstream: args.upstream, body_timeout: Gateway::BODY_TIMEOUT };

    let settings = ServerConf { grace_period_seconds, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, settings);
    server.bootstrap();
    let mut proxy = http_proxy_service(&server.configuration, gateway);
    proxy.add_tcp(&listen.to_string());
    server.add_service(proxy);

    show(listen, &key);
    server.run_forever()
}

/// Returns the address with its port. Pingora binds the address later and reports neither the chosen port nor a failure.
/// Therefore this function binds it first and releases it again.
fn resolve_port(listen: SocketAddr) -> std::io::Result<SocketAddr> {
    TcpListener::bind(listen)?.local_addr()
}

/// Creates a workspace `demo` with 1,000 credits and a key, and a directory of one person.
fn sample() -> Result<(Service, ApiKey), Box<dyn Error>> {
    let demo = Workspace { id: "demo".parse()?, quota: Quota::default() };
    let key = ApiKey::generate(rand::random);
    let (keys, credits, people) = (KeyTable::default(), AccountTable::default(), Directory::default());
    credits.grant(&demo.id, 1_000)?;
    keys.insert(key.digest(), demo);
    people.insert(&Email::parse(EMAIL)?, ProfileUrl::from_name("sample-ada-marlowe-001")?);
    let service = Service {
        policy: Arc::new(Policy::default()),
        keys: Arc::new(keys),
        windows: Arc::new(WindowTable::default()),
        credits: Arc::new(credits),
        resolver: Arc::new(people),
    };
    Ok((service, key))
}

fn show(listen: SocketAddr, key: &ApiKey) {
    let (key, path) = (key.reveal(), wire::PATH);
    println!(
        "The workspace `demo` has 1,000 credits and one key, shown only this once:\n\n  {key}\n\n\
         Try it from another terminal:\n\n\
         curl -i http://{listen}{path} -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{{\"email\":\"{EMAIL}\"}}'\n"
    );
}
