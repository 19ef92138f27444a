//! The layer in front of other services.

#![allow(clippy::unwrap_used, reason = "a test that can't go on ends there")]

mod events;
mod keys;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::middleware::{Next, from_fn};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use enrich_lib::drive::Service;
use enrich_lib::email::Email;
use enrich_lib::key::{ApiKey, KeyDigest};
use enrich_lib::memory::{AccountTable, Directory, KeyTable, WindowTable};
use enrich_lib::model::{LookupId, ProfileUrl, WorkspaceId};
use enrich_lib::observe::{LookupEvent, Observer};
use enrich_lib::ports::{Keys, Resolver};
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::Answer;
use enrich_lib::window::{Quota, Workspace};
use enrich_tower::{BodyLimits, Endpoint, Enrich, EnrichLayer, TracingObserver};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use tower::{Layer, Service as _, ServiceExt};
use tower_http::limit::RequestBodyLimitLayer;

const PATH: &str = "/api/v1/person/enrich";

#[tokio::test]
async fn answers_lookups_and_passes_other_paths_to_inner_service() {
    let gateway = Router::new()
        .route("/hello", get(async || "hello"))
        .route("/api/v1/person/enrich/more", get(async || Json(1)))
        .layer(layer());

    let (status, body) = text(gateway.clone().oneshot(lookup()).await.unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        body.ends_with(
            r#""status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/ada-marlowe"}}"#
        ),
        "{body}"
    );

    for (path, expected) in [
        ("/hello", (StatusCode::OK, "hello")),
        ("/api/v1/person/enrich/more", (StatusCode::OK, "1")),
        ("/api/v1/person/enrich/", (StatusCode::NOT_FOUND, "")),
        ("/", (StatusCode::NOT_FOUND, "")),
    ] {
        let (status, body) =
            text(gateway.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap())
                .await;
        assert_eq!((status, &*body), expected, "{path}");
    }
}

/// Servers remove the body of such a reply over HTTP/1.1 only.
#[tokio::test]
async fn rejected_head_request_has_no_body() {
    let head = Request::head(PATH).body(Body::empty()).unwrap();
    let answered = text(gateway().oneshot(head).await.unwrap()).await;
    assert_eq!(answered, (StatusCode::METHOD_NOT_ALLOWED, String::new()));
}

/// A port that fails each call.
struct Unreachable;

#[async_trait]
impl Keys for Unreachable {
    async fn find(&self, _: &KeyDigest) -> Result<Option<Workspace>, PortError> {
        // An error with a source.
        Err(PortError::new(axum::Error::new("called")))
    }
}

/// axum issue 3892: other layers change the type of the body.
#[tokio::test]
async fn works_under_limits_of_bodies_and_middleware_functions() {
    let gateway = Router::new()
        .route("/hello", get(async || "hello"))
        .layer(layer())
        .layer(from_fn(async |request: axum::extract::Request, next: Next| next.run(request).await))
        .layer(RequestBodyLimitLayer::new(64 * 1_024));
    let (status, _) = text(gateway.clone().oneshot(lookup()).await.unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    let hello = gateway.oneshot(Request::get("/hello").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(text(hello).await, (StatusCode::OK, "hello".to_owned()));
}

#[tokio::test]
async fn endless_empty_chunks_time_out() {
    let mut limits = BodyLimits::default();
    limits.timeout = Duration::from_millis(10);
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::new()));
    let endless = lookup().map(|_| Body::from_stream(chunks));
    let response = layer().limits(limits).layer(Router::new()).oneshot(endless).await.unwrap();
    assert_eq!(response.headers()["error-reason"], "body-too-slow");
}

/// axum issue 2634: a limit of each clone would be multiplied by the number of connections.
#[tokio::test]
async fn clones_and_services_of_one_layer_share_the_burst_limit() {
    let layer = layer();
    let first = layer.layer(Router::new());
    let gateways = [first.clone(), first, layer.layer(Router::new()), layer.clone().layer(Router::new())];
    for (counted, gateway) in (1..).zip(gateways) {
        let response = gateway.oneshot(lookup()).await.unwrap();
        let remaining = response.headers()["ratelimit-remaining"].to_str().unwrap();
        assert_eq!(remaining, (Quota::default().limit() - counted).to_string());
    }
}

#[tokio::test]
async fn readiness_is_that_of_inner_service() {
    #[derive(Clone)]
    struct Busy(Arc<AtomicBool>);

    impl tower::Service<Request<Body>> for Busy {
        type Response = Response<Body>;
        type Error = &'static str;
        type Future = std::future::Ready<Result<Response<Body>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            if self.0.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(Err("it is gone")) }
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::ready(Err("it was not ready"))
        }
    }

    let busy = Busy(Arc::new(AtomicBool::new(true)));
    let mut gateway = layer().layer(busy.clone());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(gateway.poll_ready(&mut cx).is_pending());
    busy.0.store(false, Ordering::SeqCst);
    assert_eq!(gateway.poll_ready(&mut cx), Poll::Ready(Err("it is gone")));
}

#[tokio::test(start_paused = true)]
async fn completes_lookup_of_disconnected_client() {
    let (service, accounts) = service(Arc::new(Slow));
    let events = Arc::new(Events::default());
    let layer = EnrichLayer::new(service).observer(Arc::new((TracingObserver::default(), events.clone())));
    let hung_up =
        tokio::time::timeout(Duration::from_secs(1), layer.layer(Router::new()).oneshot(lookup())).await;
    assert!(hung_up.is_err());
    assert_eq!(accounts.balance(&demo()).held, 1);
    assert_eq!(events.take(), ["client gone"]);

    layer.drain().await;
    let balance = accounts.balance(&demo());
    assert_eq!((balance.held, balance.spent), (0, 1));
    assert_eq!(events.take(), [format!("found demo {}", key().digest().key_id())]);
}

#[tokio::test(start_paused = true)]
async fn lookup_completes_on_its_runtime_if_it_was_polled() {
    let (service, accounts) = service(Arc::new(Slow));
    let endpoint = Arc::new(Endpoint::new(service));
    let [unpolled, mut polled] = [(); 2].map(|()| {
        let (head, _) = lookup().into_parts();
        endpoint.answer_http(&head, Ok(r#"{"email":"ada.marlowe@gmail.com"}"#.into()))
    });
    assert!(futures_util::poll!(&mut polled).is_pending());
    std::thread::spawn(|| drop((unpolled, polled))).join().unwrap();
    assert_eq!(endpoint.lookups.len(), 1);
    endpoint.lookups.close();
    endpoint.lookups.wait().await;
    let balance = accounts.balance(&demo());
    assert_eq!((balance.held, balance.spent), (0, 1));
}

/// An observer that keeps the outcome, the workspace and the key of each event.
#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Events {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn finished(&self, event: &LookupEvent<'_>) {
        let (outcome, workspace, key) =
            (event.ending.outcome(), event.workspace.unwrap(), event.key.unwrap());
        self.0.lock().unwrap().push(format!("{outcome} {workspace} {key}"));
    }

    fn client_gone(&self, _: LookupId) {
        self.0.lock().unwrap().push("client gone".to_owned());
    }
}

#[tokio::test]
async fn debug_output_contains_no_key_or_email() {
    let (layer, mut gateway) = (layer(), gateway());
    let future = gateway.call(lookup());
    let shown = format!("{layer:?} {gateway:?} {future:?}");
    assert!(!shown.contains("enr_") && !shown.contains("ada"), "{shown}");
}

/// A resolver that returns a match after 3 s.
struct Slow;

#[async_trait]
impl Resolver for Slow {
    async fn find(&self, _: &Query) -> Result<Answer, PortError> {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(ProfileUrl::from_name("ada-marlowe").ok().into())
    }
}

struct Broken;

#[async_trait]
impl Resolver for Broken {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        panic!("{}", query.email.canonical());
    }
}

/// Returns a gateway whose inner service has no routes.
fn gateway() -> Enrich<Router> {
    layer().layer(Router::new())
}

/// Returns a layer over in-memory ports, with the one person who is looked up.
fn layer() -> EnrichLayer {
    EnrichLayer::new(service(people()).0)
}

fn people() -> Arc<Directory> {
    let people = Directory::default();
    people.insert(
        &Email::parse("ada.marlowe@gmail.com").unwrap(),
        ProfileUrl::from_name("ada-marlowe").unwrap(),
    );
    Arc::new(people)
}

fn service(resolver: Arc<dyn Resolver>) -> (Service, Arc<AccountTable>) {
    let (keys, accounts) = (KeyTable::default(), Arc::new(AccountTable::default()));
    keys.insert(key().digest(), Workspace::new(demo(), Quota::default()));
    accounts.grant(&demo(), 10).unwrap();
    let windows = Arc::new(WindowTable::default());
    let service = Service::new(Arc::new(keys), windows, accounts.clone(), resolver);
    (service, accounts)
}

fn lookup() -> Request<Body> {
    Request::post(PATH)
        .header("authorization", format!("Bearer {}", key().reveal()))
        .header("content-type", "application/json")
        .body(Body::from(r#"{"email":"ada.marlowe@gmail.com"}"#))
        .unwrap()
}

fn key() -> ApiKey {
    ApiKey::generate(|| 7)
}

fn demo() -> WorkspaceId {
    "demo".parse().unwrap()
}

async fn text<B>(response: Response<B>) -> (StatusCode, String)
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(body.to_vec()).unwrap())
}
