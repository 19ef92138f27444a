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
use enrich_lib::resolver::VendorErrorKind;
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
use crate::faulty::Faults;
use crate::node::PORT;
use crate::trace::Trace;
use crate::trouble::{Fault, Port};

/// The vendor's name on the network.
pub(crate) const NAME: &str = "vendor";

type AnyError = Box<dyn Error + Send + Sync>;

/// Replies to `GET /email` with the profile or with 404.
#[derive(Clone)]
pub(crate) struct Vendor {
    pub(crate) people: Arc<Directory>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) trace: Trace,
}

impl Vendor {
    pub(crate) async fn serve(self) -> turmoil::Result {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            let vendor = self.clone();
            let service = service_fn(move |request| {
                let vendor = vendor.clone();
                async move { vendor.answer(&request).await }
            });
            let connection = server::conn::http1::Builder::new()
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service);
            // The client observes the end of the connection.
            tokio::spawn(async move { drop(connection.await) });
        }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Result<Response<Answer>, Infallible> {
        let email = request.uri().path().trim_start_matches('/');
        let (latency, fault) = self.faults.draw(Port::Resolver, 5..1_500);
        self.trace.note(Event::Sought(email.to_owned(), fault));
        sleep(latency).await;
        let found = match Email::parse(email) {
            Ok(email) => self.people.get(&email),
            Err(_) => None,
        };
        let answer = found.map_or(status(StatusCode::NOT_FOUND), |profile| {
            Response::new(Answer::Whole(Bytes::from(profile.as_str().to_owned())))
        });
        Ok(match fault {
            None => answer,
            Some(Fault::Errors) => status(StatusCode::INTERNAL_SERVER_ERROR),
            Some(Fault::Hangs) => pending().await,
            Some(Fault::Late(by)) => {
                sleep(by).await;
                answer
            }
            Some(Fault::AnswerLost) => answer.map(Answer::into_half),
        })
    }
}

fn status(status: StatusCode) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(Bytes::from_static(b"{}")));
    *response.status_mut() = status;
    response
}

/// The body of a response.
enum Answer {
    Whole(Bytes),
    /// The rest of a truncated body, and the length that its headers declare.
    Half(Option<Bytes>, usize),
    Over,
}

impl Answer {
    fn into_half(self) -> Self {
        let Self::Whole(bytes) = self else { return self };
        Self::Half(Some(bytes.slice(..bytes.len() / 2)), bytes.len())
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        Poll::Ready(match &mut *self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Over;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Half(left, _) => Some(left.take().map(Frame::data).ok_or("simulated: a reset".into())),
            Self::Over => None,
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Half(_, length) => *length as u64,
            Self::Over => 0,
        })
    }
}

/// A resolver that queries the vendor and opens a new connection for each lookup.
#[derive(Debug)]
pub(crate) struct VendorClient;

#[async_trait]
impl Resolver for VendorClient {
    async fn find(&self, query: &Query) -> Result<Option<ProfileUrl>, PortError> {
        let stream = TcpStream::connect((NAME, PORT)).await.map_err(|_| VendorErrorKind::Unavailable)?;
        match ask(stream, &query.email).await.map_err(|_| VendorErrorKind::InvalidResponse)? {
            (StatusCode::OK, profile) => {
                Ok(Some(ProfileUrl::parse(&profile).map_err(|_| VendorErrorKind::InvalidResponse)?))
            }
            (StatusCode::NOT_FOUND, _) => Ok(None),
            _ => Err(VendorErrorKind::Unavailable.into()),
        }
    }
}

/// Sends a request and returns the status and body. Fails if the body is incomplete.
async fn ask(stream: TcpStream, email: &Email) -> Result<(StatusCode, String), AnyError> {
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut connections = JoinSet::new(); // aborts the connection task when this function returns
    connections.spawn(connection);
    let request = Request::get(format!("/{}", email.canonical())).header(HOST, NAME);
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.into())?))
}
