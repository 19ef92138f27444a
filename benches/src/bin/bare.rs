//! Bare hyper: what HTTP costs by itself. It reads a request and answers with as many bytes as a lookup has.
//!
//! One single-threaded runtime a core, on a port that they share.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket};

const REPLY: &[u8] = br#"{"lookup_id":"lookup_01a1fc3deb41791784f7eeb00ad60d16","status":"found","profile":{"linkedin_url":"https://www.linkedin.com/in/sample-ada-marlowe-001"}}"#;

#[allow(clippy::print_stderr, reason = "whoever starts it reads the address there, as of the others")]
fn main() -> std::io::Result<()> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let first = runtime()?;
    let listener = first.block_on(async { listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))) })?;
    let address = listener.local_addr()?;
    eprintln!("serving http://{address}");
    for _ in 1..thread::available_parallelism()?.get() {
        let runtime = runtime()?;
        thread::spawn(move || runtime.block_on(async { serve(listen(address)?).await }));
    }
    first.block_on(serve(listener))
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

async fn serve(listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let reply = Response::builder().header("content-type", "application/json");
    Ok(reply.body(Full::new(Bytes::from_static(REPLY))).expect("a header and a body"))
}
