//! Fuzzing of a connection to the server, in memory and with a paused clock.

mod server;
mod http1;
mod http2;

use tokio::runtime;

use self::server::{ConnectionResult, Server};

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Sends `data` to a server at once, and on a second connection in two pieces.
pub fn http(data: &[u8]) {
    let at_once = replies_to(&[data]);
    let replies = if data.starts_with(HTTP2_PREFACE) {
        http2::check(&at_once.bytes)
    } else {
        // Segmentation must not change the meaning. The pause between the pieces is shorter than every
        // timeout of the server.
        let (start, rest) = data.split_at(data.len() / 2);
        let in_pieces = replies_to(&[start, rest]);
        assert!(
            http1::are_equivalent(&at_once.bytes, &in_pieces.bytes),
            "{}\n{}",
            at_once.bytes.escape_ascii(),
            in_pieces.bytes.escape_ascii()
        );
        http1::check(&at_once.bytes)
    };
    // Over HTTP/2, a stream that the client resets is billed without a reply. No credits may stay held in any
    // case.
    let found = replies.iter().filter(|status| **status == 200).count() as u64;
    let (balance, is_http2) = (at_once.balance, data.starts_with(HTTP2_PREFACE));
    assert!(
        balance.spent == found || is_http2 && balance.spent > found,
        "{found} replies with status 200, {balance:?}"
    );
    assert_eq!(balance.held, 0, "{balance:?}");
}

/// Sends `pieces` to a new server, one second apart. Returns its replies and the balance.
fn replies_to(pieces: &[&[u8]]) -> ConnectionResult {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O").block_on(Server::new().exchange(pieces))
}
