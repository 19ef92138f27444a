//! Vendors with invalid HTTP responses, or none.

use std::time::Duration;

use enrich_lib::resolver::VendorErrorKind::{InvalidResponse, TimedOut, Unavailable, UnusableAnswer};
use enrich_vendors::provider::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::world::{NAME, Outcome, description, failed, found, look_up, provider};

/// A deadline that is long enough even on a busy machine.
const LONG_TIMEOUT_MS: u64 = 20_000;
/// A deadline for answers that never arrive.
const SHORT_TIMEOUT_MS: u64 = 300;

/// How a vendor handles a request.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// Sends these bytes and resets the connection.
    Resets(&'static str),
    /// Sends these bytes and keeps the connection open.
    Sends(&'static str),
    /// Sends these bytes and nothing else.
    Hangs(&'static str),
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
        Does::Resets(text) => {
            let _ = tcp.write_all(text.as_bytes()).await;
            // The client must receive the bytes before the reset, which discards data in flight.
            sleep(Duration::from_millis(50)).await;
            tcp.set_zero_linger().unwrap();
        }
        Does::Sends(text) => {
            let _ = tcp.write_all(text.as_bytes()).await;
            let _ = tcp.shutdown().await;
            let _ = tcp.read_to_end(&mut request).await;
        }
        Does::Hangs(text) => {
            let _ = tcp.write_all(text.as_bytes()).await;
            let _ = tcp.read_to_end(&mut request).await;
        }
        Does::Drips(text, pause) => {
            for byte in text.as_bytes() {
                if tcp.write_all(&[*byte]).await.is_err() {
                    break;
                }
                sleep(pause).await;
            }
        }
        Does::Floods(first, again) => {
            let mut sent = 0;
            let mut write = tcp.write_all(first.as_bytes()).await;
            while write.is_ok() && sent < 1 << 30 {
                sent += again.len();
                write = tcp.write_all(again.as_bytes()).await;
            }
            return sent;
        }
    }
    0
}

/// Returns a complete response with this body.
fn response(body: &str) -> String {
    format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len())
}

fn person(score: &str, name: &str) -> String {
    format!("{{\"score\":{score},\"person\":{{\"linkedin\":\"linkedin.com/in/{name}\"}}}}")
}

#[tokio::test]
async fn maps_each_broken_response_to_an_outcome() {
    let sends = |text: String| Does::Sends(text.leak());
    let (invalid, cut_off) = (|| failed(InvalidResponse), "content-length: 99\r\n\r\n{\"score\": 9");
    let chunked = |chunks| sends(format!("{HEAD}transfer-encoding: chunked\r\n\r\n{chunks}"));
    let whole = response(&person("95", NAME));
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        sends(whole.replace(from, to))
    };
    let upgrade = "HTTP/1.1 101 ?\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    for (name, does, outcome) in [
        ("nothing", Does::Sends(""), invalid()),
        ("a reset", Does::Resets(""), invalid()),
        ("another protocol", Does::Sends("SSH-2.0-OpenSSH_9.6\r\n\r\n"), invalid()),
        ("a status out of range", Does::Sends("HTTP/1.1 999999 ?\r\n\r\n"), invalid()),
        ("half of the head", Does::Sends("HTTP/1.1 200 OK\r\ncontent-type: appli"), invalid()),
        ("half of the body", sends(format!("{HEAD}{cut_off}")), invalid()),
        ("half of the body and a reset", Does::Resets(format!("{HEAD}{cut_off}").leak()), invalid()),
        ("a malformed chunk", chunked("zz\r\n{}\r\n"), invalid()),
        ("no last chunk", chunked("2\r\n{}\r\n"), invalid()),
        ("an informational response before it", sends("HTTP/1.1 100 ?\r\n\r\n".to_owned() + &whole), found()),
        ("a switch of protocols", sends(upgrade.to_owned() + &whole), invalid()),
        ("version 2.0", with("HTTP/1.1", "HTTP/2.0"), invalid()),
        ("version 0.9", sends(person("95", NAME)), invalid()),
        ("a second length", with("\r\n\r\n", "\r\ncontent-length: 5\r\n\r\n"), invalid()),
        ("a negative length", with("length: ", "length: -"), invalid()),
        ("a length out of range", with("length: ", "length: 99999999999999999999"), invalid()),
        ("a NUL in a header", with("\r\n\r\n", "\r\nx: \0\r\n\r\n"), invalid()),
        ("a space before a colon", with("length:", "length :"), invalid()),
        ("no type", with("content-type: application/json\r\n", ""), found()),
        ("an infinite score", sends(response(&person("1e999", NAME))), failed(UnusableAnswer)),
        ("a score that is not a number", sends(response(&person("NaN", NAME))), invalid()),
        ("a NUL in the profile", sends(response(&person("95", "ada\\u0000"))), failed(UnusableAnswer)),
        ("a missing name in it", sends(response(&person("95", "null"))), failed(UnusableAnswer)),
        ("half of a character in it", sends(response(&person("95", "ada\\ud800"))), failed(UnusableAnswer)),
        // The status alone decides, even if the rest of the answer is cut off.
        ("a status", Does::Resets("HTTP/1.1 404 ?\r\ncontent-length: 99\r\n\r\n{"), Outcome::NoMatch),
    ] {
        assert_eq!(outcome_of(does, LONG_TIMEOUT_MS).await.0, outcome, "{name}");
    }
}

/// A second response could be mistaken for the reply to the next lookup, and return the profile of another
/// person. If it arrives during that lookup, the client cannot distinguish it from the reply.
#[tokio::test]
async fn ignores_a_response_without_a_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let replies =
        format!("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n{}", response(&person("95", NAME)));
    let vendor = tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let replies = replies.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while tcp.read_buf(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                    if request.ends_with(b"}") {
                        request.clear();
                        let _ = tcp.write_all(replies.as_bytes()).await;
                    }
                }
            });
        }
    });
    let provider = provider(description(&base, LONG_TIMEOUT_MS), Client::new().unwrap());
    for _ in 0..20 {
        assert_eq!(look_up(&provider).await, Outcome::NoMatch);
    }
    vendor.abort();
}

#[tokio::test]
async fn stops_reading_an_endless_response() {
    let spaces = " ".repeat(64 * 1024).leak();
    let sized = format!("{HEAD}content-length: 1073741824\r\n\r\n").leak();
    let chunked = format!("{HEAD}transfer-encoding: chunked\r\n\r\n").leak();
    let chunk = format!("10000\r\n{spaces}\r\n").leak();
    let no_match = "HTTP/1.1 404 Not Found\r\ncontent-length: 1073741824\r\n\r\n";
    for (name, does, outcome) in [
        ("headers", Does::Floods(HEAD, "x-more: and more and more\r\n"), failed(InvalidResponse)),
        ("a body", Does::Floods(sized, spaces), failed(UnusableAnswer)),
        ("chunks", Does::Floods(chunked, chunk), failed(UnusableAnswer)),
        ("a body whose status decides", Does::Floods(no_match, spaces), Outcome::NoMatch),
    ] {
        let (actual, sent) = outcome_of(does, LONG_TIMEOUT_MS).await;
        assert_eq!(actual, outcome, "{name}");
        // The remainder is in the buffers of the operating system.
        assert!(sent < 64 << 20, "{name}: {sent} bytes were taken");
    }
}

#[tokio::test]
async fn slow_vendor_times_out() {
    let (second, whole) = (Duration::from_secs(1), &*response(&person("95", NAME)).leak());
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(100).leak();
    for (name, does) in [
        ("nothing", Does::Hangs("")),
        ("no body", Does::Hangs(&whole[..whole.len() - 1])),
        ("slow bytes", Does::Drips(whole, second)),
        ("informational responses", Does::Floods(hints, hints)),
    ] {
        let started = Instant::now();
        assert_eq!(outcome_of(does, SHORT_TIMEOUT_MS).await.0, failed(TimedOut), "{name}");
        assert!(started.elapsed() >= Duration::from_millis(SHORT_TIMEOUT_MS));
    }
    // Slow, but within the deadline.
    let quick = Does::Drips(whole, Duration::from_millis(1));
    assert_eq!(outcome_of(quick, LONG_TIMEOUT_MS).await.0, found());
}

#[tokio::test]
async fn refused_connection_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let provider = provider(description(&base, LONG_TIMEOUT_MS), Client::new().unwrap());
    assert_eq!(look_up(&provider).await, failed(Unavailable));
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
    assert_eq!(look_up(&provider).await, failed(Unavailable));
    vendor.await.unwrap();
}
