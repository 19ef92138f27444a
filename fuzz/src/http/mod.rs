//! Fuzzing of a connection to the server, in memory and with a paused clock.

mod http1;
mod http2;
mod world;

use std::time::Duration;

use tokio::runtime;

use self::world::{Ending, World};

/// Timeout of a connection: 75 s idle and 5 s to close, or 5 s for a body, with a margin.
const TIME_MAX: Duration = Duration::from_secs(90);

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Sends `data` to a server at once, and on a second connection in two pieces.
pub fn http(data: &[u8]) {
    let whole = said(&[data]);
    let replies = if data.starts_with(HTTP2_PREFACE) {
        http2::check(&whole.bytes)
    } else {
        // Segmentation must not change the meaning. The pause between the pieces is shorter than every timeout of the
        // server.
        let (start, rest) = data.split_at(data.len() / 2);
        let pieces = said(&[start, rest]);
        assert!(
            http1::are_alike(&whole.bytes, &pieces.bytes),
            "{}\n{}",
            whole.bytes.escape_ascii(),
            pieces.bytes.escape_ascii()
        );
        http1::check(&whole.bytes)
    };
    // Over HTTP/2, a stream that the client resets is billed without a reply. No credits may stay held in any case.
    let found = replies.iter().filter(|status| **status == 200).count() as u64;
    let (balance, is_http2) = (whole.balance, data.starts_with(HTTP2_PREFACE));
    assert!(balance.spent == found || is_http2 && balance.spent > found, "{found} found, {balance:?}");
    assert_eq!(balance.held, 0, "{balance:?}");
}

/// Sends `pieces` to a new server, one second apart. Returns its replies and the balance.
fn said(pieces: &[&[u8]]) -> Ending {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing").block_on(World::new().hear(pieces))
}
