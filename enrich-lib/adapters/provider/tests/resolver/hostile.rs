//! Vendors with invalid HTTP responses, or none.

use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind::{InvalidResponse, TimedOut, Unavailable};
use enrich_provider::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::world::{NAME, Outcome, description, look_up, provider};

/// A deadline that is long enough even on a busy machine.
const LONG_TIMEOUT_MS: u64 = 20_000;
/// A deadline for answers that never arrive.
const SHORT_TIMEOUT_MS: u64 = 300;

/// How a vendor handles a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    Closes,
    /// Sends these bytes and resets the connection.
    Resets(&'static str),
    /// Sends these bytes and keeps the connection open.
    Sends(&'static str),
    Hangs,
    /// Sends one byte at a time, with this pause between them.
    Drips(&'static str, Duration),
    /// Sends the first text, and then the second one repeatedly until the connection is closed.
    Floods(&'static str, &'static str),
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

/// Returns the outcome of a request, and the number of bytes that the vendor sent.
async fn outcome_of(does: Does, deadline_ms: u64) -> (Outcome, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (text, mut sent) = mpsc::unbounded_channel();
    let vendor = tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let text = text.clone();
            tokio::spawn(async move { text.send(serve(tcp, does).await) });
        }
    });
    let outcome = look_up(&provider(description(&base, deadline_ms), Client::new().unwrap())).await;
    let sent = if matches!(does, Does::Floods(..)) { sent.recv().await.unwrap() } else { 0 };
    vendor.abort();
    (outcome, sent)
}

async fn serve(mut tcp: TcpStream, does: Does) -> usize {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        if tcp.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return 0;
        }
    }
    match does {
        Does::Closes => 0,
        Does::Resets(text) => {
            let _ = tcp.write_all(text.as_bytes()).await;
            // The client must receive the bytes before the reset, which discards data in flight.
            sleep(Duration::from_millis(50)).await;
            tcp.set_zero_linger().unwrap();
            text.len()
        }
        Does::Sends(text) => {
            let _ = tcp.write_all(text.as_bytes()).await;
            let _ = tcp.shutdown().await;
            let _ = tcp.read_to_end(&mut request).await;
            text.len()
        }
        Does::Hangs => tcp.read_to_end(&mut request).await.unwrap_or(0),
        Does::Drips(text, pause) => {
            for byte in text.as_bytes() {
                if tcp.write_all(&[*byte]).await.is_err() {
                    break;
                }
                sleep(pause).await;
            }
            0
        }
        Does::Floods(first, again) => {
            let mut sent = 0;
            let mut write = tcp.write_all(first.as_bytes()).await;
            while write.is_ok() && sent < 1 << 30 {
                sent += again.len();
                write = tcp.write_all(again.as_bytes()).await;
            }
            sent
        }
    }
}

#[tokio::test]
async fn maps_each_broken_response_to_an_outcome() {
    for (does, outcome) in [
        (Does::Closes, Outcome::permanent(InvalidResponse)),
        (Does::Resets(""), Outcome::permanent(InvalidResponse)),
        (Does::Sends("SSH-2.0-OpenSSH_9.6\r\n\r\n"), Outcome::permanent(InvalidResponse)),
        (Does::Sends("HTTP/1.1 999999 ?\r\n\r\n"), Outcome::permanent(InvalidResponse)),
        (Does::Sends("HTTP/1.1 200 OK\r\ncontent-type: appli"), Outcome::permanent(InvalidResponse)),
        (
            Does::Resets(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"score\": 9",
            ),
            Outcome::permanent(InvalidResponse),
        ),
        (
            Does::Sends("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{}"),
            Outcome::permanent(InvalidResponse),
        ),
        (
            Does::Sends(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
            ),
            Outcome::permanent(InvalidResponse),
        ),
        (
            Does::Sends(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
            ),
            Outcome::permanent(InvalidResponse),
        ),
        // The status alone decides, even if the rest of the answer is cut off.
        (Does::Resets("HTTP/1.1 404 Not Found\r\ncontent-length: 99\r\n\r\n{"), Outcome::NoMatch),
    ] {
        assert_eq!(outcome_of(does, LONG_TIMEOUT_MS).await.0, outcome, "{does:?}");
    }
}

#[tokio::test]
async fn stops_reading_oversized_body() {
    let spaces = " ".repeat(64 * 1024).leak();
    let sized = format!("{HEAD}content-length: 1073741824\r\n\r\n").leak();
    let chunked = format!("{HEAD}transfer-encoding: chunked\r\n\r\n").leak();
    let chunk = format!("10000\r\n{spaces}\r\n").leak();
    for does in [Does::Floods(sized, spaces), Does::Floods(chunked, chunk)] {
        let (outcome, sent) = outcome_of(does, LONG_TIMEOUT_MS).await;
        assert_eq!(outcome, Outcome::permanent(InvalidResponse));
        // The remainder is in the buffers of the operating system.
        assert!(sent < 64 << 20, "{sent} bytes were taken");
    }
}

#[tokio::test]
async fn stops_reading_endless_headers() {
    let (outcome, sent) =
        outcome_of(Does::Floods(HEAD, "x-more: and more and more\r\n"), LONG_TIMEOUT_MS).await;
    assert_eq!(outcome, Outcome::permanent(InvalidResponse));
    assert!(sent < 64 << 20, "{sent} bytes were taken");
}

#[tokio::test]
async fn slow_vendor_times_out() {
    let second = Duration::from_secs(1);
    let body = format!("{{\"score\":95,\"person\":{{\"linkedin\":\"linkedin.com/in/{NAME}\"}}}}");
    let whole = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len()).leak();
    for does in [Does::Hangs, Does::Drips(whole, second), Does::Drips(HEAD, second)] {
        let started = Instant::now();
        assert_eq!(outcome_of(does, SHORT_TIMEOUT_MS).await.0, Outcome::permanent(TimedOut), "{does:?}");
        assert!(started.elapsed() >= Duration::from_millis(SHORT_TIMEOUT_MS));
    }
    // Slow, but within the deadline.
    let millisecond = Duration::from_millis(1);
    assert_eq!(outcome_of(Does::Drips(whole, millisecond), LONG_TIMEOUT_MS).await.0, Outcome::found());
}

#[tokio::test]
async fn does_not_wait_for_body_when_status_decides() {
    let head = "HTTP/1.1 404 Not Found\r\ncontent-length: 1073741824\r\n\r\n";
    for does in [Does::Floods(head, HEAD.repeat(1000).leak()), Does::Drips(head, Duration::ZERO)] {
        assert_eq!(outcome_of(does, LONG_TIMEOUT_MS).await.0, Outcome::NoMatch, "{does:?}");
    }
}

#[tokio::test]
async fn refused_connection_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let provider = provider(description(&base, LONG_TIMEOUT_MS), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, Outcome::retryable(Unavailable));
}

#[tokio::test]
async fn failed_tls_handshake_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("https://{}", listener.local_addr().unwrap());
    let vendor = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.write_all(HEAD.as_bytes()).await.unwrap();
    });
    let provider = provider(description(&base, LONG_TIMEOUT_MS), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, Outcome::retryable(Unavailable));
    vendor.await.unwrap();
}
