//! A client's connection to a node.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use turmoil::net::TcpStream;

use crate::event::Reply;
use crate::request::HttpVersion;
use crate::topology::{HTTP_PORT, node_name};

/// A connection that stays open until it is dropped or the node closes it.
pub(crate) struct Connection {
    node: usize,
    sender: Sender,
    _tasks: JoinSet<hyper::Result<()>>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(node: usize, http: HttpVersion) -> turmoil::Result<Self> {
        let stream = TokioIo::new(TcpStream::connect((node_name(node), HTTP_PORT)).await?);
        let mut tasks = JoinSet::new();
        let sender = match http {
            HttpVersion::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tasks.spawn(connection);
                Sender::Http1(sender)
            }
            HttpVersion::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tasks.spawn(connection);
                Sender::Http2(sender)
            }
        };
        Ok(Self { node, sender, _tasks: tasks })
    }

    /// Returns whether the connection can carry a request of this HTTP version to this node. The node may
    /// have closed it already.
    pub(crate) fn can_carry(&self, node: usize, http: HttpVersion) -> bool {
        self.node == node
            && match &self.sender {
                Sender::Http1(sender) => http == HttpVersion::Http1 && !sender.is_closed(),
                Sender::Http2(sender) => http == HttpVersion::Http2 && !sender.is_closed(),
            }
    }

    /// Sends the request and waits for the whole reply.
    ///
    /// Dropping the future cancels the request. On HTTP/1 this requires closing the connection; on HTTP/2
    /// only the stream is reset.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> turmoil::Result<Reply> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        reply(response).await
    }
}

async fn reply(response: Response<Incoming>) -> turmoil::Result<Reply> {
    let (head, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().into())?;
    Ok(Reply { status: head.status.as_u16(), headers: headers(&head.headers), body })
}

fn headers(map: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
