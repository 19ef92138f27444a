//! HTTP over Pingora's session: a lookup's request is read and answered here, any other goes to the upstream.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use enrich_lib::body::{BODY_BYTES_MAX, Body, BodyFault};
use enrich_lib::drive::Service;
use enrich_lib::lookup::Request;
use enrich_lib::model::{Arrival, Timestamp};
use enrich_lib::wire;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderValue, Response, Version};
use pingora::Result;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::{ProxyHttp, Session};
use pingora::upstreams::peer::HttpPeer;
use tokio::time::timeout;

use crate::walk;

/// A proxy in front of `upstream` that answers lookups itself.
#[derive(Debug)]
pub struct Gateway {
    /// The policy, and the four stores.
    pub service: Service,
    /// Where all that is no lookup goes, in plain HTTP.
    pub upstream: SocketAddr,
    /// How long a client may take for its body, from the end of its head.
    pub body_time_max: Duration,
}

impl Gateway {
    /// For a body, unless the operator sets another.
    pub const BODY_TIME_MAX: Duration = Duration::from_secs(5);

    /// For a client to take note that its connection ends.
    const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = ();

    fn new_ctx(&self) {}

    /// Answers lookups. `false` passes the request on.
    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        if session.req_header().uri.path() != wire::PATH {
            return Ok(false);
        }
        session.set_pipelining_enabled(true); // what came behind this request is answered after it
        let response = match check(session.req_header()) {
            Err(response) => *response,
            Ok(()) => {
                // A stranger's too: with it unread the connection would end, and a prober could tell 401s apart.
                let body = self.gather(session).await;
                self.look_up(wire::request(&session.req_header().headers, body)).await
            }
        };
        respond(session, response).await.map_err(|fault| fault.into_down())?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.upstream, false, String::new())))
    }

    /// What the log says of a request that failed: not its query, in which a client may have put an email.
    fn request_summary(&self, session: &Session, _: &()) -> String {
        let head = session.req_header();
        format!("{} {}", head.method, head.uri.path())
    }
}

impl Gateway {
    /// The body, or why there is none. No more of it is kept than a lookup may have.
    async fn gather(&self, session: &mut Session) -> Body {
        let length = session.get_header(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) {
            return Err(BodyFault::TooLarge);
        }
        let body = async {
            if expects_continue(session.req_header()) {
                let keepalive = session.get_keepalive(); // which Pingora ends with any head before the body's end
                session.write_continue_response().await.map_err(|_| BodyFault::CutOff)?;
                session.set_keepalive(keepalive);
            }
            let mut body = BytesMut::new();
            while let Some(bytes) = session.read_request_body().await.map_err(|_| BodyFault::CutOff)? {
                if body.len() + bytes.len() > BODY_BYTES_MAX {
                    return Err(BodyFault::TooLarge);
                }
                body.extend_from_slice(&bytes);
            }
            Ok(body.freeze())
        };
        timeout(self.body_time_max, body).await.unwrap_or(Err(BodyFault::TooSlow))
    }

    /// In a task of its own: whatever becomes of the client and its session, the hold is settled, and a store that
    /// panics is a 500.
    async fn look_up(&self, request: Request) -> Response<Bytes> {
        match tokio::spawn(walk::look_up(self.service.clone(), arrive(), request)).await {
            Ok(reply) => wire::response(&reply),
            Err(_) => {
                log::error!("a lookup panicked"); // over what is not said: it could quote the email
                wire::broken()
            }
        }
    }
}

/// Whether a request for the path is one that is looked up; if not, the answer to give.
fn check(head: &RequestHeader) -> Result<(), Box<Response<Bytes>>> {
    // "A server MUST respond with a 400 status code to any HTTP/1.1 request message that lacks a Host header field" (RFC
    // 9112, 3.2). Pingora refuses two of them by itself.
    if head.version == Version::HTTP_11 && !head.headers.contains_key(HOST) {
        return Err(Box::new(wire::malformed()));
    }
    wire::route(&head.method, head.uri.path())
}

/// HTTP/1.0 knows no `Expect` (RFC 9110, 10.1.1).
fn expects_continue(head: &RequestHeader) -> bool {
    let expect = head.headers.get(EXPECT).map_or(&b""[..], HeaderValue::as_bytes);
    head.version != Version::HTTP_10 && expect.eq_ignore_ascii_case(b"100-continue")
}

/// The clock and the randomness are the gateway's.
fn arrive() -> Arrival {
    // A clock before 1970 is a clock that was never set.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp::from_unix_ms(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
    Arrival::new(now, rand::random())
}

/// Sends a whole response, its header names as they are. Pingora adds `Date` and `Connection`, and on HTTP/1 ends a
/// connection on which a body was left unread: the next request could only be found behind the rest of this one.
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
        // Our half ends, which on HTTP/2 it has, then what the client still sends is read: what is left unread would reset
        // the connection, or the stream, and a reset overtakes our reply (RFC 9112, 9.6).
        session.shutdown().await;
        session.set_total_drain_timeout(Some(Gateway::CLOSE_TIME_MAX));
        let _ = session.drain_request_body().await; // whether it came to its end matters to nobody
    }
    Ok(())
}
