//! HTTP/2 clients that send cheap frames which are expensive to process. The server closes the connection or
//! stops reading from it, and serves other clients meanwhile.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::sleep;

use crate::client::valid_request;
use crate::test_server::{TestServer, key};

/// Bytes of one connection that the server may accept before it closes the connection or stops reading. The
/// in-memory connection buffers 64 KiB of them.
const ACCEPTED_BYTES_MAX: usize = 4 * 1_024 * 1_024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
const FLOW_CONTROL_ERROR: u32 = 3;
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = u32::try_from(stream).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// Returns the id of the client's nth stream.
fn stream(nth: usize) -> usize {
    2 * nth + 1
}

/// Encodes header lines without compression.
fn header_block(lines: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    lines.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// Returns the header block of a lookup.
fn request_block() -> Vec<u8> {
    header_block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "api.example"),
        (":path", "/api/v1/person/enrich"),
        ("authorization", &format!("Bearer {}", key().reveal())),
        ("content-type", "application/json"),
    ])
}

async fn connect(server: &TestServer, settings: &[u8]) -> DuplexStream {
    let mut io = server.connect_raw(64 * 1_024);
    io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    io.write_all(&frame(SETTINGS, 0, 0, settings)).await.unwrap();
    io
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The server closed the connection with this error code.
    Closed(u32),
    /// The server stopped reading.
    Stalled,
}

/// Sends `nth(0)`, `nth(1)`, and so on, and checks that the server accepts few of them and serves another
/// client. The client reads replies if `reads`.
async fn flood(name: &str, reads: bool, nth: impl Fn(usize) -> Vec<u8>, expected: End) {
    let server = TestServer::new();
    let (mut reader, mut writer) = tokio::io::split(connect(&server, &[]).await);
    let (mut received, mut accepted) = (Vec::new(), 0);
    let mut frames = (0..).map(nth);
    let end = loop {
        let bytes: Vec<_> = frames.by_ref().take(100).flatten().collect();
        let read = async {
            match reads {
                true => while reader.read_buf(&mut received).await.is_ok_and(|bytes| bytes > 0) {},
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            written = writer.write_all(&bytes) => written.unwrap_or_default(),
            () = read => {}
            () = sleep(Duration::from_secs(1)) => break End::Stalled,
        }
        accepted += bytes.len();
        // From now on, the server discards what it receives.
        if let Some(code) = error_code(&received) {
            break End::Closed(code);
        }
        assert!(accepted < ACCEPTED_BYTES_MAX, "{name}: {accepted} bytes");
    };
    assert_eq!(end, expected, "{name}");
    assert_eq!(server.connect().send(valid_request()).await.status, 200, "{name}");
}

/// Returns the error code of the last GOAWAY frame.
fn error_code(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)?;
        if *kind == GOAWAY {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        bytes = rest;
    }
    code
}

#[tokio::test(start_paused = true)]
async fn closes_or_stops_reading_from_connection_with_too_many_frames() {
    // CVE-2023-44487.
    let block = header_block(&[(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/")]);
    let reset = |nth| {
        let request = frame(HEADERS, END_STREAM | END_HEADERS, stream(nth), &block);
        [request, frame(RESET, 0, stream(nth), &8_u32.to_be_bytes())].concat()
    };
    flood("requests that are reset", true, reset, End::Closed(ENHANCE_YOUR_CALM)).await;

    // CVE-2024-27316.
    for bytes in [0, 10, 16_384] {
        let endless = |nth| match nth {
            0 => frame(HEADERS, END_STREAM, 1, &request_block()),
            _ => frame(CONTINUATION, 0, 1, &header_block(&[("x", "y")]).repeat(bytes / 5)),
        };
        let name = format!("a head of {bytes} bytes per frame");
        flood(&name, true, endless, End::Closed(ENHANCE_YOUR_CALM)).await;
    }

    let update = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
    flood("windows above the maximum", true, |_| update.clone(), End::Closed(FLOW_CONTROL_ERROR)).await;

    for (name, frames) in [("pings", frame(PING, 0, 0, &[0; 8])), ("settings", frame(SETTINGS, 0, 0, &[]))] {
        flood(name, false, |_| frames.repeat(10), End::Stalled).await;
    }
}

/// One byte in a header block can refer to a header line of 4 KiB. A server that kept such a head would wait
/// for its body.
#[tokio::test(start_paused = true)]
async fn closes_connection_whose_head_expands_to_64_mb() {
    let server = TestServer::new();
    let mut io = connect(&server, &[]).await;
    // A literal of 4,000 bytes that enters the table, with its length as a prefixed integer.
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4_000]].concat();
    let small = frame(HEADERS, END_STREAM | END_HEADERS, stream(0), &[request_block(), entry].concat());
    let bomb = frame(HEADERS, END_HEADERS, stream(1), &[request_block(), vec![0x80 | 62; 16_000]].concat());
    io.write_all(&[small, bomb].concat()).await.unwrap();
    let mut received = Vec::new();
    let reading = async { while io.read_buf(&mut received).await.is_ok_and(|bytes| bytes > 0) {} };
    tokio::time::timeout(Duration::from_secs(10), reading).await.expect("the connection closes");
    assert_eq!(error_code(&received), Some(ENHANCE_YOUR_CALM));
    assert_eq!(server.connect().send(valid_request()).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn closes_connection_that_accepts_no_bodies_after_the_idle_timeout() {
    let server = TestServer::new();
    let mut io = connect(&server, &[&INITIAL_WINDOW_SIZE[..], &[0; 4]].concat()).await;
    for nth in 0..64 {
        let request = frame(HEADERS, END_HEADERS, stream(nth), &request_block());
        io.write_all(&[request, frame(DATA, END_STREAM, stream(nth), b"{}")].concat()).await.unwrap();
    }
    assert_eq!(server.connect().send(valid_request()).await.status, 200);
    let _ = io.read_to_end(&mut Vec::new()).await;
    assert_eq!(server.elapsed_seconds(), 75 + 1);
}

#[tokio::test(start_paused = true)]
async fn rejects_slow_bodies_after_5_s() {
    let server = TestServer::new();
    let mut io = connect(&server, &[]).await;
    for nth in 0..64 {
        io.write_all(&frame(HEADERS, END_HEADERS, stream(nth), &request_block())).await.unwrap();
    }
    for _ in 0..6 {
        for nth in 0..64 {
            io.write_all(&frame(DATA, 0, stream(nth), b" ")).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    // A stream that has ended frees its place.
    let lookup = [
        frame(HEADERS, END_HEADERS, stream(64), &request_block()),
        frame(DATA, END_STREAM, stream(64), crate::test_server::BODY.as_bytes()),
    ];
    io.write_all(&lookup.concat()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.spent(), 1);
}
