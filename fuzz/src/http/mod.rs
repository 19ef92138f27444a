//! Fuzzing of a connection to the server, in memory and with a paused clock.

mod server;
mod http1;
mod http2;

use enrich_contract::reply;
use http::Response;
use tokio::runtime;

use self::server::{ConnectionResult, Server};

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Sends `data` to a server at once, and on a second connection in two pieces.
pub fn http(data: &[u8]) {
    let at_once = replies_to(&[data]);
    if let Some(frames) = data.strip_prefix(HTTP2_PREFACE) {
        // A stream that the client resets is billed without a reply.
        let (billed, spent) = (http2::billed(&at_once.bytes), at_once.spent());
        assert!((billed..=http2::heads(frames)).contains(&spent), "{billed} billed replies, {spent} spent");
        return;
    }
    // Segmentation must not change the meaning. The pause between the pieces is shorter than every timeout of
    // the server.
    let (start, rest) = data.split_at(data.len() / 2);
    let in_pieces = replies_to(&[start, rest]);
    let has_head = data.windows(4).any(|word| word == b"HEAD");
    assert!(
        http1::are_equivalent(&at_once.bytes, &in_pieces.bytes, has_head),
        "{}\n{}",
        at_once.bytes.escape_ascii(),
        in_pieces.bytes.escape_ascii()
    );
    for connection in [at_once, in_pieces] {
        let replies = http1::check(&connection.bytes, has_head);
        let billed = replies.iter().filter(|(_, is_billed)| *is_billed).count();
        assert_eq!(connection.spent(), billed, "{replies:?}");
    }
}

/// Returns whether the lookup of a reply pays for it. Panics unless the specification allows the reply.
fn is_billed(response: &Response<impl AsRef<[u8]>>) -> bool {
    let reply = reply::check(response).unwrap_or_else(|error| panic!("{error}"));
    reply.profile.is_some() && reply.paid_by.is_none()
}

/// Sends `pieces` to a new server, one second apart. Returns its replies and the balance.
fn replies_to(pieces: &[&[u8]]) -> ConnectionResult {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(Server::new().exchange(pieces))
}
