//! Signals that meet a shutdown in progress, and the exit code of the server.

use std::time::{Duration, Instant};

use crate::commands::console::Page;
use crate::enrich::vendor::{Behavior, Vendor};
use crate::enrich::{EMAIL, Enrich, Reply, Server, eventually};

/// A server whose only source is a vendor that hangs until the test releases it.
struct World {
    enrich: Enrich,
    key: String,
    vendor: Vendor,
}

impl World {
    fn serve(settings: &str) -> (Self, Server) {
        let (enrich, key) = Enrich::with_key(5, 500);
        let vendor = Vendor::that(Behavior::Hangs);
        let server = enrich.serve_with(&vendor.configure(&enrich, settings));
        (Self { enrich, key, vendor }, server)
    }

    /// Starts a lookup, runs `meanwhile` once the vendor has received it, and returns the reply.
    fn look_up_during(&self, server: &Server, meanwhile: impl FnOnce()) -> Reply {
        std::thread::scope(|scope| {
            let lookup = scope.spawn(|| server.connect().enrich(&self.key, EMAIL).unwrap());
            eventually("the vendor is asked", || (self.vendor.requests().len() == 1).then_some(()));
            meanwhile();
            lookup.join().unwrap()
        })
    }

    fn spent(&self) -> u64 {
        self.enrich.spent()
    }
}

fn announces_close(reply: &Reply) -> bool {
    reply.head.to_lowercase().contains("\r\nconnection: close\r\n")
}

#[test]
fn reloads_and_further_signals_during_a_drain_end_no_lookup() {
    let (world, server) = World::serve("");
    let reply = world.look_up_during(&server, || {
        server.terminate();
        server.wait_for_log("SIGTERM: stopping", 1);
        for _ in 0..3 {
            server.hang_up();
            server.terminate();
        }
        world.vendor.set(Behavior::Matches("ada"));
    });
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(announces_close(&reply), "{}", reply.head);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(world.spent(), 1);
}

#[test]
fn second_signal_ends_the_delay_of_a_shutdown() {
    let (world, server) = World::serve("console.listen = 0\n[connections]\nshutdown_delay_ms = 60000");
    world.vendor.set(Behavior::Matches("ada"));
    server.terminate();
    server.wait_for_log("SIGTERM: stopping", 1);
    let reply = server.connect().enrich(&world.key, EMAIL).unwrap();
    assert_eq!((reply.status, announces_close(&reply)), (200, false), "it still serves as before");
    // A web application that stops shows pages for a second more.
    let (sign_in, since) = (format!("{}/sign-in", server.console_url()), Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        assert_eq!(Page::get(&sign_in).status, 200, "after {:?}", since.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    server.terminate();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}
