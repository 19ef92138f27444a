//! A client machine that sends HTTP requests to the nodes.

use std::time::Duration;

use bytes::Bytes;
use enrich_lib::key::ApiKey;
use enrich_lib::wire;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::Full;
use tokio::time::{sleep, timeout};

use crate::connection::Connection;
use crate::event::{Event, Reply, Sent};
use crate::plan::{Ask, Http, Plan, Wish, node_name, prober, strange_key, tenant};
use crate::trace::Trace;

/// Sends its requests sequentially, on one or several connections.
pub(crate) struct Client {
    /// The client's number, or `None` for the prober.
    number: Option<usize>,
    key: ApiKey,
    /// The requests, each with its number in the run.
    asks: Vec<(usize, Ask)>,
}

impl Client {
    /// Returns client `number` of the plan.
    pub(crate) fn new(plan: &Plan, number: usize) -> Self {
        let asks = (plan.first_request(number)..).zip(plan.clients[number].iter().cloned()).collect();
        Self { number: Some(number), key: tenant().1, asks }
    }

    /// Returns the client that probes every node after healing, once or until the node returns 200.
    pub(crate) fn prober(plan: &Plan) -> Self {
        let patience = Duration::from_secs(10);
        let ask = |node| Ask {
            pause: Duration::ZERO,
            node,
            wish: Wish::Known,
            shared: None,
            http: Http::One,
            is_next: false,
            patience,
        };
        let nodes = (0..plan.stores.nodes()).flat_map(|node| vec![node; plan.stores.probes_max()]);
        let asks = (plan.first_request(plan.clients.len())..).zip(nodes.map(ask)).collect();
        Self { number: None, key: prober().1, asks }
    }

    pub(crate) async fn run(self, plan: Plan, trace: Trace) -> turmoil::Result {
        let mut kept = None;
        let mut served = None;
        for (number, ask) in &self.asks {
            if self.number.is_none() && served == Some(ask.node) {
                continue;
            }
            sleep(ask.pause).await;
            kept = kept.filter(|before: &Connection| ask.is_next && before.serves(ask.node, ask.http));
            let sent = self.sent(&plan, *number, ask, kept.is_some());
            trace.note(Event::Sent(sent.clone()));
            let event = match timeout(ask.patience, exchange(&sent, &mut kept)).await {
                Ok(Ok(reply)) => Event::Received(*number, reply),
                Ok(Err(error)) => Event::Lost(*number, error.to_string()),
                Err(_) => Event::Lost(*number, "the client hangs up".to_owned()),
            };
            if matches!(&event, Event::Received(_, reply) if reply.status == 200) {
                served = Some(ask.node);
            }
            // An HTTP/1 connection cannot be reused after a failure.
            if ask.http == Http::One && matches!(event, Event::Lost(..)) {
                kept = None;
            }
            trace.note(event);
        }
        Ok(())
    }

    fn sent(&self, plan: &Plan, number: usize, ask: &Ask, is_next: bool) -> Sent {
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
            is_next,
            email: plan.email(number, ask.wish, ask.shared),
            key: key.map(|key| key.reveal().to_owned()),
            profile: Plan::profile(number, ask.shared).as_str().to_owned(),
        }
    }
}

/// Sends the request and waits for the reply. Opens a connection if `kept` is empty.
async fn exchange(sent: &Sent, kept: &mut Option<Connection>) -> turmoil::Result<Reply> {
    let request = request(sent)?;
    let connection = match kept {
        Some(connection) => connection,
        None => kept.insert(Connection::open(sent.node, sent.http).await?),
    };
    connection.ask(request).await
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
