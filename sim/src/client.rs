//! A client machine that sends HTTP requests to the nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use enrich_lib::wire;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::Connection;
use crate::event::{Event, Reply, SentRequest};
use crate::keys::KeyOf;
use crate::plan::Plan;
use crate::request::{HttpVersion, PlannedRequest, RequestKind};
use crate::topology::{PROBES_MAX, node_name};
use crate::trace::Trace;
use crate::workspaces::KeyTexts;

/// Why a request whose client stopped waiting has failed.
pub(crate) const TIMED_OUT: &str = "the client timed out";

/// Sends its requests on one or several connections, sequentially unless it is a crowd.
#[derive(Clone)]
pub(crate) struct Client {
    /// The client's number, or `None` for the prober.
    number: Option<usize>,
    key: KeyOf,
    keys: KeyTexts,
    /// Sends all requests at once.
    is_crowd: bool,
    /// The requests, each with its number in the run.
    requests: Vec<(usize, PlannedRequest)>,
}

impl Client {
    /// Returns client `number` of the plan.
    pub(crate) fn new(plan: &Plan, number: usize, keys: KeyTexts) -> Self {
        let requests = (plan.first_request(number)..).zip(plan.clients[number].iter().cloned()).collect();
        let key = match (number % 2, plan.has_two_workspaces) {
            (0, _) => KeyOf::Clients,
            (_, true) => KeyOf::Second,
            (_, false) => KeyOf::ClientsOther,
        };
        Self { number: Some(number), key, keys, is_crowd: plan.crowd == Some(number), requests }
    }

    /// Returns the client that probes every node after healing, once or until the node returns 200. All probes take
    /// longer than a circuit breaker stays open.
    pub(crate) fn prober(plan: &Plan, keys: KeyTexts) -> Self {
        let timeout = Duration::from_secs(10);
        let probe = |node, n| {
            let pause = if n == 0 { Duration::ZERO } else { Duration::from_secs(2) };
            PlannedRequest::new(pause, node, RequestKind::Known, HttpVersion::Http1, timeout)
        };
        let nodes = 0..plan.stores.nodes();
        let probes = nodes.flat_map(|node| (0..PROBES_MAX).map(move |n| probe(node, n)));
        let requests = (plan.first_request(plan.clients.len())..).zip(probes).collect();
        Self { number: None, key: KeyOf::Prober, keys, is_crowd: false, requests }
    }

    pub(crate) async fn run(mut self, plan: Arc<Plan>, trace: Trace) -> turmoil::Result {
        if self.is_crowd {
            let (requests, mut members) = (std::mem::take(&mut self.requests), JoinSet::new());
            for request in requests {
                let member = Self { requests: vec![request], is_crowd: false, ..self.clone() };
                members.spawn_local(member.run_in_order(plan.clone(), trace.clone()));
            }
            while members.join_next().await.is_some() {}
        } else {
            self.run_in_order(plan, trace).await;
        }
        Ok(())
    }

    async fn run_in_order(self, plan: Arc<Plan>, trace: Trace) {
        let mut open_connection = None;
        let mut served_node = None;
        for (number, planned) in &self.requests {
            if self.number.is_none() && served_node == Some(planned.node) {
                continue;
            }
            sleep(planned.pause).await;
            open_connection = open_connection.filter(|previous: &Connection| {
                planned.reuses_connection && previous.can_carry(planned.node, planned.http)
            });
            let sent = self.sent(&plan, *number, planned, open_connection.is_some());
            trace.record(Event::RequestSent(sent.clone()));
            let event = match timeout(planned.timeout, exchange(&sent, &mut open_connection)).await {
                Ok(Ok(reply)) => Event::ReplyReceived(*number, reply),
                Ok(Err(error)) => Event::RequestFailed(*number, error.to_string()),
                Err(_) => Event::RequestFailed(*number, TIMED_OUT.to_owned()),
            };
            if matches!(&event, Event::ReplyReceived(_, reply) if reply.status == 200) {
                served_node = Some(planned.node);
            }
            // An HTTP/1 connection cannot be reused after a failure.
            if planned.http == HttpVersion::Http1 && matches!(event, Event::RequestFailed(..)) {
                open_connection = None;
            }
            trace.record(event);
        }
    }

    fn sent(
        &self,
        plan: &Plan,
        number: usize,
        planned: &PlannedRequest,
        reuses_connection: bool,
    ) -> SentRequest {
        let key = match planned.kind {
            RequestKind::NoKey => None,
            RequestKind::UnknownKey => Some(KeyOf::Nobody),
            _ => Some(planned.key.unwrap_or(self.key)),
        };
        SentRequest {
            number,
            client: self.number,
            node: planned.node,
            kind: planned.kind,
            http: planned.http,
            reuses_connection,
            email: plan.email(number, planned.kind, planned.shared_person),
            is_test: key.is_some_and(KeyOf::is_test),
            key: key.map(|key| self.keys.text(key)),
            idempotency_key: planned.idempotency_key.map(|number| format!("order-{number}")),
            profile: Plan::profile(number, planned.shared_person).as_str().to_owned(),
        }
    }
}

/// Sends the request and waits for the reply. Opens a connection if `open_connection` is empty.
async fn exchange(sent: &SentRequest, open_connection: &mut Option<Connection>) -> turmoil::Result<Reply> {
    let request = request(sent)?;
    let connection = match open_connection {
        Some(connection) => connection,
        None => open_connection.insert(Connection::open(sent.node, sent.http).await?),
    };
    connection.send(request).await
}

fn request(sent: &SentRequest) -> turmoil::Result<Request<Full<Bytes>>> {
    let extra_field = if sent.kind == RequestKind::UnknownField { r#","name":"Ada""# } else { "" };
    let body = format!(r#"{{"email":"{}"{extra_field}}}"#, sent.email);
    let (node, path) = (node_name(sent.node), wire::PATH);
    let mut request = match sent.http {
        HttpVersion::Http1 => Request::post(path).header(HOST, node),
        HttpVersion::Http2 => Request::post(format!("http://{node}{path}")),
    };
    if let Some(key) = &sent.key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    if let Some(key) = &sent.idempotency_key {
        request = request.header("idempotency-key", key);
    }
    Ok(request.header(CONTENT_TYPE, "application/json").body(Full::from(body))?)
}
