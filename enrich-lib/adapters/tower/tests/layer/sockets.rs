//! axum and hyper gateways over TCP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use enrich_tower::EnrichLayer;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower::util::MapFutureLayer;
use tower::{Layer, service_fn};

use crate::{Gate, demo, key, layer, service};

#[tokio::test]
async fn both_answer_lookups_and_own_paths_on_one_connection() {
    let events = Arc::default();
    for address in [axum(layer(), &events).await, hyper(layer(), &events).await] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let found = ask(&mut stream, &lookup()).await;
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
        assert!(
            found.ends_with(r#""profile":{"linkedin_url":"https://www.linkedin.com/in/ada-marlowe"}}"#),
            "{found}"
        );
        let hello = ask(&mut stream, "GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert!(hello.starts_with("HTTP/1.1 200 OK\r\n") && hello.ends_with("hello"), "{hello}");
    }
}

#[tokio::test]
async fn both_complete_lookup_of_disconnected_client() {
    for is_axum in [true, false] {
        let gate = Gate::default();
        let (service, accounts) = service(Arc::new(gate.clone()));
        let layer = EnrichLayer::new(service);
        let let_go = Arc::default();
        let address = match is_axum {
            true => axum(layer.clone(), &let_go).await,
            false => hyper(layer.clone(), &let_go).await,
        };
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(lookup().as_bytes()).await.unwrap();
        gate.requested().await;
        assert_eq!(accounts.balance(&demo()).held, 1);

        drop(stream);
        timeout(Duration::from_secs(10), let_go.notified()).await.expect("the server takes note");
        gate.open();
        let lookups = layer.lookups();
        lookups.close();
        timeout(Duration::from_secs(10), lookups.wait()).await.expect("the lookup completes");
        let balance = accounts.balance(&demo());
        assert_eq!((balance.held, balance.spent), (0, 1));
    }
}

/// Notifies on drop that the server has dropped a request, answered or not.
struct LetGo(Arc<Notify>);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Wraps each response future in a [`LetGo`] guard.
fn telling<F>(let_go: &Arc<Notify>) -> MapFutureLayer<impl Fn(F) -> BoxFuture<F::Output> + Clone + use<F>>
where
    F: Future + Send + 'static,
{
    let let_go = let_go.clone();
    MapFutureLayer::new(move |response: F| -> BoxFuture<F::Output> {
        let let_go = LetGo(let_go.clone());
        Box::pin(async move {
            let _let_go = let_go;
            response.await
        })
    })
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

async fn axum(layer: EnrichLayer, let_go: &Arc<Notify>) -> SocketAddr {
    let (listener, address) = listener().await;
    let gateway = Router::new().route("/hello", get(async || "hello")).layer(layer).layer(telling(let_go));
    tokio::spawn(async move { axum::serve(listener, gateway).await });
    address
}

async fn hyper(layer: EnrichLayer, let_go: &Arc<Notify>) -> SocketAddr {
    let (listener, address) = listener().await;
    let hello = |_: http::Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))
    };
    let gateway = telling(let_go).layer(layer.layer(service_fn(hello)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let gateway = TowerToHyperService::new(gateway.clone());
            tokio::spawn(async move {
                let http = auto::Builder::new(TokioExecutor::new());
                http.serve_connection(TokioIo::new(stream), gateway).await.ok();
            });
        }
    });
    address
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn lookup() -> String {
    let (key, body) = (key(), r#"{"email":"ada.marlowe@gmail.com"}"#);
    format!(
        "POST /api/v1/person/enrich HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        key.reveal(),
        body.len()
    )
}

/// Sends a request and reads the whole reply, whose end its `content-length` gives.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    let whole = async {
        loop {
            stream.read_buf(&mut reply).await.unwrap();
            let text = String::from_utf8_lossy(&reply);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if body.len() == length.parse::<usize>().unwrap() {
                return text.into_owned();
            }
        }
    };
    timeout(Duration::from_secs(10), whole).await.expect("a whole reply")
}
