//! A simulated vendor that returns profiles over HTTP, and the resolver that queries it.

use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use enrich_lib::email::Email;
use enrich_lib::memory::Directory;
use enrich_lib::model::ProfileUrl;
use enrich_lib::ports::Resolver;
use enrich_lib::query::Query;
use enrich_lib::refusal::PortError;
use enrich_lib::resolver::{Answer, VendorErrorKind};
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame, SizeHint};
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::sleep;
use turmoil::net::{TcpListener, TcpStream};

use crate::event::Event;
use crate::fault::{Port, PortFault};
use crate::faulty_port::ActiveFaults;
use crate::topology::{HTTP_PORT, VENDOR};
use crate::trace::Trace;

type AnyError = Box<dyn Error + Send + Sync>;

/// Replies to `GET /email` with the profile or with 404.
#[derive(Clone)]
pub(crate) struct Vendor {
    pub(crate) people: Arc<Directory>,
    pub(crate) faults: Arc<ActiveFaults>,
    pub(crate) trace: Trace,
}

impl Vendor {
    pub(crate) async fn serve(self) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, HTTP_PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let vendor = self.clone();
            let service = service_fn(move |request| {
                let vendor = vendor.clone();
                async move { vendor.respond(&request).await }
            });
            let connection = server::conn::http1::Builder::new()
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service);
            // The client observes the end of the connection.
            tokio::spawn(async move { drop(connection.await) });
        }
    }

    async fn respond<B>(&self, request: &Request<B>) -> Result<Response<ResponseBody>, Infallible> {
        let email = request.uri().path().trim_start_matches('/');
        let (latency, fault) = self.faults.draw(Port::Resolver, 5..1_500);
        self.trace.record(Event::VendorCalled(email.to_owned(), fault));
        sleep(latency).await;
        let found = match Email::parse(email) {
            Ok(email) => self.people.get(&email),
            Err(_) => None,
        };
        let response = found.map_or(status(StatusCode::NOT_FOUND), |profile| {
            Response::new(ResponseBody::Complete(Bytes::from(profile.as_str().to_owned())))
        });
        Ok(match fault {
            None => response,
            Some(PortFault::Error) => status(StatusCode::INTERNAL_SERVER_ERROR),
            Some(PortFault::Hang) => pending().await,
            Some(PortFault::Delay(by)) => {
                sleep(by).await;
                response
            }
            Some(PortFault::ResponseLost) => response.map(ResponseBody::truncated),
        })
    }
}

fn status(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Complete(Bytes::from_static(b"{}")));
    *response.status_mut() = status;
    response
}

/// The body of a response.
enum ResponseBody {
    Complete(Bytes),
    /// The rest of a truncated body, and the length that its headers declare.
    Truncated(Option<Bytes>, usize),
    Sent,
}

impl ResponseBody {
    fn truncated(self) -> Self {
        let Self::Complete(bytes) = self else { return self };
        Self::Truncated(Some(bytes.slice(..bytes.len() / 2)), bytes.len())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Poll::Ready(match &mut *self {
            Self::Complete(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Sent;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Truncated(rest, _) => {
                Some(rest.take().map(Frame::data).ok_or("simulated: the connection was reset".into()))
            }
            Self::Sent => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Complete(bytes) => bytes.len() as u64,
            Self::Truncated(_, length) => *length as u64,
            Self::Sent => 0,
        })
    }
}

/// A resolver that queries the vendor and opens a new connection for each lookup.
#[derive(Debug)]
pub(crate) struct VendorClient;

#[async_trait]
impl Resolver for VendorClient {
    async fn find(&self, query: &Query) -> Result<Answer, PortError> {
        let stream =
            TcpStream::connect((VENDOR, HTTP_PORT)).await.map_err(|_| VendorErrorKind::Unavailable)?;
        match request(stream, &query.email).await.map_err(|_| VendorErrorKind::InvalidResponse)? {
            (StatusCode::OK, profile) => {
                Ok(ProfileUrl::parse(&profile).map_err(|_| VendorErrorKind::InvalidResponse)?.into())
            }
            (StatusCode::NOT_FOUND, _) => Ok(Answer::default()),
            _ => Err(VendorErrorKind::Unavailable.into()),
        }
    }
}

/// Sends a request and returns the status and body. Fails if the body is incomplete.
async fn request(stream: TcpStream, email: &Email) -> Result<(StatusCode, String), AnyError> {
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut connections = JoinSet::new(); // aborts the connection task when this function returns
    connections.spawn(connection);
    let request = Request::get(format!("/{}", email.canonical())).header(HOST, VENDOR);
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.into())?))
}
