//! A proxy on Pingora that answers lookups itself, and passes all other requests to an upstream server.

use std::sync::Arc;

use async_trait::async_trait;
use enrich_lib::wire;
use enrich_tower::Endpoint;
use futures_util::stream::unfold;
use http_body::Frame;
use http_body_util::StreamBody;
use pingora_core::Result;
use pingora_core::protocols::http::ServerSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session};

/// The proxy.
#[derive(Debug)]
pub struct Gateway {
    /// Answers lookups. On shutdown, close its `lookups` and wait for them.
    pub endpoint: Arc<Endpoint>,
    /// The address of the upstream server.
    pub upstream: String,
}

#[async_trait]
impl ProxyHttp for Gateway {
    type CTX = ();

    fn new_ctx(&self) {}

    /// Answers a lookup before an upstream server is chosen, while its body can still be read.
    async fn request_filter(&self, session: &mut Session, (): &mut ()) -> Result<bool> {
        if session.req_header().uri.path() != wire::PATH {
            return Ok(false);
        }
        if let ServerSession::H1(connection) = session.as_downstream_mut() {
            connection.set_pipelining_enabled(true); // otherwise, Pingora closes the connection
        }
        let (head, version) = (session.req_header(), session.req_header().version);
        let response = if let Err(rejection) = wire::route(&head.method, head.uri.path()) {
            self.endpoint.reject(&head.method, rejection)
        } else {
            if head.headers.get("expect").is_some_and(|value| value == "100-continue") {
                // Pingora does not send it by itself, and closes connections whose reply precedes the body.
                session.set_close_on_response_before_downstream_finish(false);
                session.write_continue_response().await?;
                session.set_close_on_response_before_downstream_finish(true);
            }
            let body = unfold(&mut *session, async |session| {
                let data = session.read_request_body().await.transpose()?;
                Some((data.map(Frame::data), session))
            });
            // Reads the body even if the key is invalid. Otherwise, a client could distinguish the reasons of
            // a 401.
            let body = self.endpoint.read_body(StreamBody::new(body)).await;
            if body.is_err() {
                session.set_keepalive(None); // the next request cannot be found
            }
            // If the client disconnects and this future is dropped, a task completes the lookup.
            self.endpoint.answer_http(session.req_header(), body).await
        };
        let (parts, body) = response.into_parts();
        let mut head = ResponseHeader::build(parts.status, Some(parts.headers.len() + 1))?;
        for (name, value) in &parts.headers {
            // As text, so that Pingora keeps the lower case.
            head.append_header(name.as_str().to_owned(), value)?;
        }
        if !parts.headers.contains_key("content-length") {
            head.append_header("content-length", body.len())?;
        }
        head.set_version(version);
        session.write_response_header(Box::new(head), false).await?;
        session.write_response_body(Some(body), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(&*self.upstream, false, String::new())))
    }
}
