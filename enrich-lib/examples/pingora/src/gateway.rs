//! HTTP on a Pingora session: answers lookups, and passes every other request on to the upstream.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use enrich_lib::body::{BODY_BYTES_MAX, Body, BodyError};
use enrich_lib::drive::Service;
use enrich_lib::lookup::Request;
use enrich_lib::model::{Arrival, Timestamp};
use enrich_lib::refusal::Rejection;
use enrich_lib::wire;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderValue, Response, Version};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::{ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use tokio::time::timeout;

use crate::lookup;

/// A proxy in front of `upstream` that answers lookups itself.
#[derive(Debug)]
pub struct Gateway {
    /// The policy and the four ports.
    pub service: Service,
    /// The address that receives all other requests, in plain HTTP.
    pub upstream: SocketAddr,
    /// The timeout for a client's body, counted from the end of the request head.
    pub body_timeout: Duration,
}

impl Gateway {
    /// The default timeout for a body.
    pub const BODY_TIMEOUT: Duration = Duration::from_secs(5);

    /// The timeout for reading the rest of a body before the connection closes.
    const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = ();

    fn new_ctx(&self) {}

    /// Answers lookups. Returns `false` to pass the request on.
    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        if session.req_header().uri.path() != wire::PATH {
            return Ok(false);
        }
        session.set_pipelining_enabled(true); // answer the next request after this one
        let response = match check(session.req_header()) {
            Err(rejection) => reject(rejection),
            Ok(()) => {
                // Reads the body even if the key is invalid. Pingora closes a connection with an unread body, so that a
                // client could distinguish the reasons of a 401.
                let body = self.read_body(session).await;
                self.look_up(wire::request(&session.req_header().headers, body)).await
            }
        };
        respond(session, response).await.map_err(|error| error.into_down())?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    /// Returns the description of a failed request for the log, without the query, which may contain an email.
    fn request_summary(&self, session: &Session, _: &()) -> String {
        let head = session.req_header();
        format!("{} {}", head.method, head.uri.path())
    }
}

impl Gateway {
    /// Reads the body. Keeps at most [`BODY_BYTES_MAX`] bytes.
    async fn read_body(&self, session: &mut Session) -> Body {
        let length = session.get_header(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) {
            return Err(BodyError::TooLarge);
        }
        let body = async {
            if expects_continue(session.req_header()) {
                let keepalive = session.get_keepalive(); // any head sent before the body's end resets it
                session.write_continue_response().await.map_err(|_| BodyError::CutOff)?;
                session.set_keepalive(keepalive);
            }
            let mut body = BytesMut::new();
            while let Some(bytes) = session.read_request_body().await.map_err(|_| BodyError::CutOff)? {
                if body.len() + bytes.len() > BODY_BYTES_MAX {
                    return Err(BodyError::TooLarge);
                }
                body.extend_from_slice(&bytes);
            }
            Ok(body.freeze())
        };
        timeout(self.body_timeout, body).await.unwrap_or(Err(BodyError::TooSlow))
    }

    /// Runs the lookup in its own task, so that the hold is settled even if the client disconnects, and a panic of a store
    /// results in a 500.
    async fn look_up(&self, request: Request) -> Response<Bytes> {
        let arrival = arrive();
        match tokio::spawn(lookup::look_up(self.service.clone(), arrival, request)).await {
            Ok(reply) => wire::response(&reply),
            Err(_) => {
                log::error!("{} panicked", arrival.id); // without its message, which could contain the email
                wire::internal_error(arrival.id)
            }
        }
    }
}

/// Logs a request that is not a lookup, with the id in its response.
fn reject(rejection: Rejection) -> Response<Bytes> {
    let request_id = arrive().id;
    log::debug!("{request_id} status={} {rejection}", rejection.status());
    wire::rejection(rejection, request_id)
}

/// Checks that a request for the path is a lookup.
fn check(head: &RequestHeader) -> Result<(), Rejection> {
    // "A server MUST respond with a 400 status code to any HTTP/1.1 request message that lacks a Host header field" (RFC
    // 9112, 3.2). Pingora itself refuses duplicates.
    if head.version == Version::HTTP_11 && !head.headers.contains_key(HOST) {
        return Err(Rejection::Malformed);
    }
    wire::route(&head.method, head.uri.path())
}

/// Returns `true` if the client waits for a `100 Continue`. HTTP/1.0 does not have `Expect` (RFC 9110, 10.1.1).
fn expects_continue(head: &RequestHeader) -> bool {
    let expect = head.headers.get(EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    head.version != Version::HTTP_10 && expect.eq_ignore_ascii_case(b"100-continue")
}

/// Creates the arrival of a request. The gateway provides the clock and the randomness.
fn arrive() -> Arrival {
    // A time before 1970 means that the clock was never set.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
    Arrival::new(now, rand::random())
}

/// Sends a whole response with unchanged header names. Pingora adds `Date` and `Connection`. On HTTP/1, it closes a
/// connection with an unread body, because the next request only starts after that body.
async fn respond(session: &mut Session, response: Response<Bytes>) -> Result<()> {
    let mut head = ResponseHeader::build(response.status(), Some(8))?;
    if session.req_header().version == Version::HTTP_10 {
        head.set_version(Version::HTTP_10);
    }
    for (name, value) in response.headers() {
        head.append_header(name.to_string(), value)?;
    }
    head.insert_header("content-length", response.body().len())?;
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(response.into_body()), true).await?;

    if !session.is_body_done() {
        // Closes the sending half, unless HTTP/2 has done so already, and reads the rest of the request. Otherwise, the
        // unread bytes would reset the connection or the stream, and the reset could reach the client before the response
        // (RFC 9112, 9.6).
        session.shutdown().await;
        session.set_total_drain_timeout(Some(Gateway::CLOSE_TIMEOUT));
        let _ = session.drain_request_body().await; // best effort
    }
    Ok(())
}
