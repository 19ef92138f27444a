//! SIGHUP under load: valid configurations take effect, invalid ones are rejected, and no request fails.

use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::enrich::admin::{ADMIN, Scrape};
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{
    Client, EMAIL, Enrich, Reply, Server, Signal, beside, dial, eventually, make_fifo, send,
};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const TAKEN: &str = "configuration reloaded";
const REFUSED: &str = "configuration not reloaded; the previous configuration stays in use";

/// A TLS server with one vendor.
struct World {
    enrich: Enrich,
    key: String,
    config: PathBuf,
}

const VENDOR: &str = "[[vendors]]\nfile = \"acme.toml\"\n";

const CONFIG: &str = "tls = { cert = \"cert.pem\", key = \"key.pem\" }\n[[vendors]]\nfile = \"acme.toml\"\n";

impl World {
    fn new(vendor: &Vendor) -> Self {
        let (enrich, key) = Enrich::with_key(1_000_000, 1_000_000);
        let config = enrich.file("enrich.toml", CONFIG);
        let world = Self { enrich, key, config };
        world.set_vendor(vendor, "first-s3cret");
        world
    }

    fn serve(&self) -> Server {
        self.enrich.serve(&[ADMIN, "--config", self.config.to_str().unwrap()])
    }

    fn set_vendor(&self, vendor: &Vendor, secret: &str) {
        vendor.describe(&self.enrich, "acme", secret);
    }

    fn set_certificate(&self) -> CertificateDer<'static> {
        self.enrich.certificate("127.0.0.1")
    }

    /// Replaces the vendor's description with a FIFO without a writer, so that reading it blocks forever.
    fn set_endless_vendor(&self) {
        let path = self.enrich.path("acme.toml");
        std::fs::remove_file(&path).unwrap();
        make_fifo(&path);
    }
}

fn metric(server: &Server, name: &str) -> Option<f64> {
    Scrape::of(server.admin()).value(name)
}

/// Returns a client configuration that trusts these certificates.
fn trust(certificates: &[CertificateDer<'static>]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    certificates.iter().for_each(|certificate| roots.add(certificate.clone()).unwrap());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    // Without resumption, each connection receives the current certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

/// Connects and returns the server's certificate.
fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<(Client, CertificateDer<'static>)> {
    let mut tcp: TcpStream = dial(address)?;
    let name = "127.0.0.1".try_into().unwrap();
    let mut tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    let shown = tls.peer_certificates().unwrap()[0].clone().into_owned();
    Ok((Client::over(StreamOwned::new(tls, tcp)), shown))
}

fn name(reply: &Reply) -> &str {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body["profile"]["linkedin_url"].as_str().unwrap().rsplit('/').next().unwrap()
}

#[test]
fn reloads_certificate_and_vendors_without_dropping_lookups() {
    let (old, new) = (Vendor::that(Behavior::Matches("old")), Vendor::that(Behavior::Matches("new")));
    let world = World::new(&old);
    let first = world.set_certificate();
    let server = world.serve();
    let address = server.address();
    // The files may already change, because the server reads them only at startup and on SIGHUP.
    let second = world.set_certificate();
    let trusted = trust(&[first.clone(), second.clone()]);
    let (mut steady, shown) = connect(address, &trusted).unwrap();
    assert_eq!(shown, first);

    let requests = AtomicUsize::new(0);
    // Two clients reuse their connection, and two reconnect for each lookup.
    let clients = [true, true, false, false].map(|keeps| {
        let (world, trusted, requests) = (&world, &trusted, &requests);
        let mut client = connect(address, trusted).unwrap().0;
        move || {
            if !keeps {
                client = connect(address, trusted).unwrap().0;
            }
            let reply = client.enrich(&world.key, EMAIL).unwrap();
            assert!(["old", "new"].contains(&name(&reply)));
            requests.fetch_add(1, Ordering::Relaxed);
        }
    });
    beside(clients, || {
        let pause = |count: usize| {
            let enough = requests.load(Ordering::Relaxed) + count;
            eventually("lookups go on", || (requests.load(Ordering::Relaxed) >= enough).then_some(()));
        };
        pause(20);
        world.set_vendor(&new, "second-s3cret");
        server.hang_up();
        server.wait_for_log(TAKEN, 1);
        let (mut client, shown) = connect(address, &trusted).unwrap();
        assert_eq!(shown, second);
        assert_eq!(name(&client.enrich(&world.key, EMAIL).unwrap()), "new");
        pause(20);
    });
    assert_eq!(
        name(&steady.enrich(&world.key, EMAIL).unwrap()),
        "new",
        "a connection outlives its certificate"
    );
    drop(steady);

    // A second reload replaces what the first one did.
    let third = world.set_certificate();
    let newest = Vendor::that(Behavior::Matches("newest"));
    world.set_vendor(&newest, "third-s3cret");
    server.hang_up();
    server.wait_for_log(TAKEN, 2);
    let (mut client, shown) = connect(address, &trust(std::slice::from_ref(&third))).unwrap();
    assert_eq!(shown, third);
    assert_eq!(name(&client.enrich(&world.key, EMAIL).unwrap()), "newest");
    drop(client);
    assert!(old.requests().iter().all(|head| head.contains("first-s3cret")));
    assert!(new.requests().iter().all(|head| head.contains("second-s3cret")));
    let log = server.stop();
    assert!(!log.contains("s3cret") && !log.contains("marlowe"), "{log}");
}

#[test]
fn reload_replaces_the_certificate_of_the_web_application() {
    let world = World::new(&Vendor::that(Behavior::NoMatch));
    world.enrich.file("enrich.toml", format!("console.listen = 0\n{CONFIG}"));
    let first = world.set_certificate();
    let server = world.serve();
    let console = server.console_url().strip_prefix("https://").unwrap().parse().unwrap();
    let second = world.set_certificate();
    let trusted = trust(&[first.clone(), second.clone()]);
    assert_eq!(connect(console, &trusted).unwrap().1, first);
    server.hang_up();
    server.wait_for_log(TAKEN, 1);
    assert_eq!(connect(console, &trusted).unwrap().1, second);
}

#[test]
fn invalid_file_keeps_the_previous_configuration() {
    let vendor = Vendor::that(Behavior::Matches("ada"));
    let world = World::new(&vendor);
    let certificate = world.set_certificate();
    let trusted = trust(std::slice::from_ref(&certificate));
    let server = world.serve();
    let is_reloaded = || metric(&server, "enrich_config_last_reload_successful");
    assert_eq!(is_reloaded(), Some(1.0));
    let good = vendor.description("acme");
    let mut refused = 0;
    for (file, bad, restored) in [
        ("acme.toml", good.replace("matches", "hits"), &good),
        ("acme.toml", good.replace("/url", "url"), &good),
        ("acme.key", "s3cret\n\n".to_owned(), &"s3cret".to_owned()),
        ("enrich.toml", CONFIG.replace("file =", "fiel ="), &CONFIG.to_owned()),
        ("enrich.toml", "[resolver]\ndeadline_ms = 20001".to_owned(), &CONFIG.to_owned()),
    ] {
        world.enrich.file(file, bad);
        server.hang_up();
        refused += 1;
        server.wait_for_log(REFUSED, refused);
        assert_eq!(is_reloaded(), Some(0.0), "{file}");
        world.enrich.file(file, restored);
    }
    // The certificate does not match the key. The new vendor is valid, but it is not applied either.
    world.set_vendor(&Vendor::that(Behavior::Matches("new")), "second-s3cret");
    world.enrich.file("key.pem", rcgen::KeyPair::generate().unwrap().serialize_pem());
    server.hang_up();
    server.wait_for_log(REFUSED, refused + 1);

    let (mut client, shown) = connect(server.address(), &trusted).unwrap();
    assert_eq!((name(&client.enrich(&world.key, EMAIL).unwrap()), shown), ("ada", certificate));
    drop(client);

    // Failed reloads leave nothing behind.
    std::fs::remove_file(&world.config).unwrap();
    for nth in 2..=5 {
        server.hang_up();
        server.wait_for_log(REFUSED, refused + nth);
    }
    world.enrich.file("enrich.toml", CONFIG);
    let certificate = world.set_certificate();
    server.hang_up();
    server.wait_for_log(TAKEN, 1);
    assert_eq!(is_reloaded(), Some(1.0));
    let (mut client, shown) = connect(server.address(), &trust(std::slice::from_ref(&certificate))).unwrap();
    assert_eq!((name(&client.enrich(&world.key, EMAIL).unwrap()), shown), ("new", certificate));
    drop(client);
    let log = server.stop();
    for expected in [
        "acme.toml, line 2, bills: ",
        "acme.toml, line 10, answer.profile: ",
        "line 3, vendors.fiel: ",
        "line 2, resolver.deadline_ms: ",
        "key.pem",
        "enrich.toml: No such file",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains("s3cret") && log.matches(TAKEN).count() == 1, "{log}");
}

#[test]
fn reports_settings_that_need_a_restart_and_applies_the_rest() {
    let (old, new) = (Vendor::that(Behavior::Matches("old")), Vendor::that(Behavior::Matches("new")));
    let world = World::new(&old);
    let config = |first: &str| {
        let config = format!("{first}windows = {{ file = \"windows.url\" }}\n{VENDOR}");
        world.enrich.file("enrich.toml", config)
    };
    world.enrich.file("windows.url", "memory");
    let server = world.enrich.serve_with(&config(""));
    world.set_vendor(&new, "second-s3cret");
    world.enrich.file("windows.url", "redis://127.0.0.1:1");
    config("plaintext = true\nprice.found = 5\n");
    server.hang_up();
    server.wait_for_log("need a restart", 1);
    assert_eq!(name(&server.connect().enrich(&world.key, EMAIL).unwrap()), "new");
    assert_eq!(world.enrich.spent(), 1);
    let log = server.stop();
    assert!(log.contains("settings=\"plaintext, price.found, windows\""), "{log}");
}

#[test]
fn a_signal_during_the_start_reloads_after_it() {
    let vendor = Vendor::that(Behavior::Matches("ada"));
    let world = World::new(&vendor);
    std::fs::remove_file(&world.config).unwrap();
    make_fifo(&world.config);
    let config = world.config.to_str().unwrap();
    let mut serve = world.enrich.command(&["serve", "--listen", "127.0.0.1:0", "--config", config]);
    let mut child = serve.env("ENRICH_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
    // Opening the pipe waits until the server opens it.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&world.config).unwrap();
    std::fs::remove_file(&world.config).unwrap();
    world.enrich.file("enrich.toml", format!("price.found = 5\n{VENDOR}"));
    send(Signal::HUP, &child);
    pipe.write_all(VENDOR.as_bytes()).unwrap();
    drop(pipe);
    let log: Vec<_> = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take_while(|line| !line.contains("settings=\"price.found\""))
        .collect();
    assert_eq!(child.try_wait().unwrap(), None, "it ended: {log:?}");
    assert!(log.iter().any(|line| line.contains(TAKEN)), "{log:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn serves_while_a_file_hangs_and_reloads_or_stops_at_once() {
    let (old, new) = (Vendor::that(Behavior::Matches("old")), Vendor::that(Behavior::Matches("new")));
    let world = World::new(&old);
    let trusted = trust(&[world.set_certificate()]);
    let server = world.serve();
    let ask = || connect(server.address(), &trusted).unwrap().0.enrich(&world.key, EMAIL).unwrap();
    world.set_endless_vendor();
    server.hang_up();
    eventually("the file is being read", || (server.threads("reload") == 1).then_some(()));
    assert_eq!(name(&ask()), "old", "a new connection is accepted meanwhile");
    server.wait_for_log("the settings and the files in them were not read within 10s", 1);
    assert_eq!(name(&ask()), "old");

    // The thread of the first reload is still blocked.
    std::fs::remove_file(world.enrich.path("acme.toml")).unwrap();
    world.set_vendor(&new, "second-s3cret");
    server.hang_up();
    server.wait_for_log(TAKEN, 1);
    assert_eq!(name(&ask()), "new");
    world.set_endless_vendor();
    server.hang_up();
    eventually("the file is being read", || (server.threads("reload") == 2).then_some(()));
    let log = server.stop();
    assert_eq!(log.matches(REFUSED).count(), 1, "the stop waited for the file: {log}");
}

#[test]
fn warns_of_a_certificate_that_clients_refuse_and_of_a_key_that_others_can_read() {
    let world = World::new(&Vendor::that(Behavior::Matches("ada")));
    let check = || {
        let ran = world.enrich.run(&["config", "check", world.config.to_str().unwrap()]);
        assert!(ran.success, "{}", ran.stderr);
        ran.stderr
    };
    world.set_certificate();
    assert_eq!(check(), "");
    let mut server = world.serve();
    let expired = "cert.pem is valid from 2001-01-01T00:00:00Z to 2002-01-01T00:00:00Z; replace it or correct the clock";
    let early = "cert.pem is valid from 2990-01-01T00:00:00Z to 3000-01-01T00:00:00Z; replace it or correct the clock";
    let readable = "key.pem is readable by other users (mode 0640); run `chmod 600";
    for (first, end, mode, warning, expiry) in [
        (2001, 2002, 0o600, expired, Some(1_009_843_200.0)),
        (2990, 3000, 0o600, early, Some(32_503_680_000.0)),
        // Its first year is before 1970.
        (1960, 3000, 0o600, "cannot read the validity of", None),
        (2000, 3000, 0o640, readable, Some(32_503_680_000.0)),
    ] {
        world.enrich.certificate_of_years("127.0.0.1", first, end);
        std::fs::set_permissions(world.enrich.path("key.pem"), Permissions::from_mode(mode)).unwrap();
        assert!(check().contains(warning), "{warning}: {}", check());
        server.hang_up();
        server.wait_for_log(TAKEN, 1);
        server.wait_for_log(warning, 1);
        assert_eq!(metric(&server, "enrich_certificate_expiry_time_seconds"), expiry, "{warning}");
        server.stop();
        server = world.serve();
        server.wait_for_log(warning, 1);
    }
}

#[cfg(feature = "tools")]
#[test]
fn reads_a_default_file_that_appears_after_the_start() {
    use crate::enrich::disk::{Disk, with_mounts};

    with_mounts("reload::reads_a_default_file_that_appears_after_the_start", || {
        let (enrich, _) = Enrich::with_key(1, 500);
        let _etc = Disk::mount_over("/etc".into());
        let server = enrich.serve(&[]);
        std::fs::create_dir("/etc/enrich").unwrap();
        std::fs::write("/etc/enrich/enrich.toml", "unknown = 1").unwrap();
        server.hang_up();
        server.wait_for_log(REFUSED, 1);
    });
}
