//! A client: a machine of its own that speaks HTTP to the nodes.

use std::time::Duration;

use bytes::Bytes;
use enrich_lib::key::ApiKey;
use enrich_lib::wire;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use turmoil::net::TcpStream;

use crate::event::{Event, Reply, Sent};
use crate::node::PORT;
use crate::plan::{Ask, Http, Plan, Wish, node_name, prober, strange_key, tenant};
use crate::trace::Trace;

/// Sends its requests one after the other, each on its own connection.
pub(crate) struct Client {
    /// `None` is the prober.
    number: Option<usize>,
    key: ApiKey,
    /// With their numbers in the run.
    asks: Vec<(usize, Ask)>,
}

impl Client {
    /// A client of the plan.
    pub(crate) fn new(plan: &Plan, number: usize) -> Self {
        let asks = (plan.first_request(number)..).zip(plan.clients[number].iter().cloned()).collect();
        Self { number: Some(number), key: tenant().1, asks }
    }

    /// The client that asks each node once, when everything is healed.
    pub(crate) fn prober(plan: &Plan) -> Self {
        let patience = Duration::from_secs(10);
        let ask = |node| Ask { pause: Duration::ZERO, node, wish: Wish::Known, http: Http::One, patience };
        let asks =
            (plan.first_request(plan.clients.len())..).zip((0..plan.stores.nodes()).map(ask)).collect();
        Self { number: None, key: prober().1, asks }
    }

    pub(crate) async fn run(self, plan: Plan, trace: Trace) -> turmoil::Result {
        for (number, ask) in &self.asks {
            sleep(ask.pause).await;
            let sent = self.sent(&plan, *number, ask);
            trace.note(Event::Sent(sent.clone()));
            let event = match timeout(ask.patience, exchange(&sent)).await {
                Ok(Ok(reply)) => Event::Received(*number, reply),
                Ok(Err(error)) => Event::Lost(*number, error.to_string()),
                Err(_) => Event::Lost(*number, "the client hangs up".to_owned()),
            };
            trace.note(event);
        }
        Ok(())
    }

    fn sent(&self, plan: &Plan, number: usize, ask: &Ask) -> Sent {
        let key = match ask.wish {
            Wish::NoKey => None,
            Wish::StrangeKey => Some(strange_key()),
            _ => Some(self.key.clone()),
        };
        Sent {
            number,
            client: self.number,
            node: ask.node,
            wish: ask.wish,
            http: ask.http,
            email: plan.email(number, ask.wish),
            key: key.map(|key| key.reveal().to_owned()),
            profile: Plan::profile(number).as_str().to_owned(),
        }
    }
}

/// Sends the request and waits for the reply. Dropped before its end, it hangs up.
async fn exchange(sent: &Sent) -> turmoil::Result<Reply> {
    let stream = TokioIo::new(TcpStream::connect((node_name(sent.node), PORT)).await?);
    let request = request(sent)?;
    let mut connections = JoinSet::new(); // ends with this function
    let response = match sent.http {
        Http::One => {
            let (mut sender, connection) = http1::handshake(stream).await?;
            connections.spawn(connection);
            sender.send_request(request).await?
        }
        Http::Two => {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            connections.spawn(connection);
            sender.send_request(request).await?
        }
    };
    reply(response).await
}

fn request(sent: &Sent) -> turmoil::Result<Request<Full<Bytes>>> {
    let more = if sent.wish == Wish::ExtraField { r#","name":"Ada""# } else { "" };
    let body = format!(r#"{{"email":"{}"{more}}}"#, sent.email);
    let (node, path) = (node_name(sent.node), wire::PATH);
    let mut request = match sent.http {
        Http::One => Request::post(path).header(HOST, node),
        Http::Two => Request::post(format!("http://{node}{path}")),
    };
    if let Some(key) = &sent.key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    Ok(request.header(CONTENT_TYPE, "application/json").body(Full::from(body))?)
}

async fn reply(response: Response<Incoming>) -> turmoil::Result<Reply> {
    let (head, body) = response.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().into())?;
    Ok(Reply { status: head.status.as_u16(), headers: texts(&head.headers), body })
}

fn texts(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
