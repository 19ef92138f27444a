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
use crate::node::PORT;
use crate::plan::{Http, node_name};

/// A connection that stays open until it is dropped or the node closes it.
pub(crate) struct Connection {
    node: usize,
    sender: Sender,
    _tasks: JoinSet<hyper::Result<()>>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(node: usize, http: Http) -> turmoil::Result<Self> {
        let stream = TokioIo::new(TcpStream::connect((node_name(node), PORT)).await?);
        let mut tasks = JoinSet::new();
        let sender = match http {
            Http::One => {
                let (sender, connection) = http1::handshake(stream).await?;
                tasks.spawn(connection);
                Sender::One(sender)
            }
            Http::Two => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tasks.spawn(connection);
                Sender::Two(sender)
            }
        };
        Ok(Self { node, sender, _tasks: tasks })
    }

    /// Returns whether the connection can carry a request of this HTTP version to this node. The node may have closed it
    /// already.
    pub(crate) fn serves(&self, node: usize, http: Http) -> bool {
        self.node == node
            && match &self.sender {
                Sender::One(sender) => http == Http::One && !sender.is_closed(),
                Sender::Two(sender) => http == Http::Two && !sender.is_closed(),
            }
    }

    /// Sends the request and waits for the whole reply.
    ///
    /// Dropping the future cancels the request. On HTTP/1 this requires closing the connection; on HTTP/2 only the stream is
    /// reset.
    pub(crate) async fn ask(&mut self, request: Request<Full<Bytes>>) -> turmoil::Result<Reply> {
        let response = match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Two(sender) => {
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
    Ok(Reply { status: head.status.as_u16(), headers: texts(&head.headers), body })
}

fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
