//! One connection, from accept to close.
//!
//! The hyper connection is created when the first bytes show the HTTP version. It takes 12 KB of memory.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use crate::activity::{Activity, Reason, Verdict, Wait};
use crate::handler::{Handler, log_lookup_timeout};
use crate::limits::Limits;
use crate::registry::Slot;
use crate::shutdown::Shutdown;
use crate::stream::{Stream, Version};

/// State shared by all connections.
pub(crate) struct Connections<H> {
    handler: Arc<H>,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
    pub(crate) shutdown: Arc<Shutdown>,
}

/// Returns hyper's HTTP/1 configuration. hyper's timeouts are disabled because they do not distinguish a slow
/// head from an idle connection.
fn http1(limits: &Limits, date_header: bool) -> http1::Builder {
    /// hyper panics below this size.
    const HYPER_BUFFER_BYTES_MIN: usize = 8_192;
    /// hyper panics if a `HeaderMap` does not have room for this number.
    const HEADER_MAP_LINES_MAX: usize = 24_576;

    let mut http = http1::Builder::new();
    http.auto_date_header(date_header)
        .header_read_timeout(None)
        // A client may shut down its sending half after its last request.
        .half_close(true)
        .max_headers(limits.head_lines_max.min(HEADER_MAP_LINES_MAX))
        .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN));
    http
}

/// Returns hyper's HTTP/2 configuration.
///
/// The h2 crate itself replies 431 without a body to a head larger than four times
/// [`Limits::head_bytes_max`]. Smaller oversized heads receive this server's 400.
fn http2(limits: &Limits, date_header: bool) -> http2::Builder<TokioExecutor> {
    /// Buffer limit of one stream, in each direction. A connection's receive window is four times as large.
    const STREAM_BYTES_MAX: u32 = 64 * 1_024;

    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .auto_date_header(date_header)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.head_bytes_max.saturating_mul(4)).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(STREAM_BYTES_MAX * 4)
        .max_send_buf_size(STREAM_BYTES_MAX as usize);
    http
}

impl<H: Handler> Connections<H> {
    pub(crate) fn new(
        handler: Arc<H>,
        tls: Option<Arc<ServerConfig>>,
        date_header: bool,
        shutdown: Arc<Shutdown>,
    ) -> Self {
        let (http1, http2) = (http1(handler.limits(), date_header), http2(handler.limits(), date_header));
        Self { handler, http1, http2, tls: tls.map(Into::into), shutdown }
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.handler.limits()
    }

    /// Serves a connection until it is closed.
    pub(crate) async fn serve<Io>(self: Arc<Self>, io: Io, slot: Slot)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = &slot.activity;
        match &self.tls {
            None => self.serve_http(io, activity).await,
            // Boxed because its future is far larger than that of a plain connection.
            Some(tls) => Box::pin(self.serve_tls(tls, io, activity)).await,
        }
    }

    async fn serve_tls<Io>(&self, tls: &TlsAcceptor, io: Io, activity: &Arc<Activity>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        activity.begin(Wait::Handshake);
        if let Ok(io) = self.wait_for(tls.accept(io), activity).await {
            activity.begin(Wait::Head);
            self.serve_http(io, activity).await;
        }
    }

    async fn serve_http<Io>(&self, io: Io, activity: &Arc<Activity>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut stream = Stream::new(io, activity, &*self.handler);
        let Ok(version) = self.wait_for(stream.detect_version(), activity).await else { return };
        // Boxed because a connection that sends nothing needs neither.
        let end = match version {
            Version::Http1 => Box::pin(self.serve_http1(&mut stream, activity)).await,
            Version::Http2 => Box::pin(self.serve_http2(&mut stream, activity)).await,
        };
        activity.begin(Wait::Close);
        let _ = match end {
            End::Aborted => return,
            End::Idle => self.wait_for(stream.shut_down(), activity).await,
            End::Finished => self.wait_for(stream.close(), activity).await,
        };
    }

    async fn serve_http1<Io>(&self, stream: &mut Stream<'_, Io, H>, activity: &Arc<Activity>) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| self.handler.answer(request, activity.begin_request()));
        let http = pin!(self.http1.serve_connection(TokioIo::new(stream), service));
        self.drive(http, http1::Connection::graceful_shutdown, activity).await
    }

    async fn serve_http2<Io>(&self, stream: &mut Stream<'_, Io, H>, activity: &Arc<Activity>) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| {
            let (handler, in_flight) = (self.handler.clone(), activity.begin_request());
            async move { handler.answer(request, in_flight).await }
        });
        let http = pin!(self.http2.serve_connection(TokioIo::new(stream), service));
        self.drive(http, http2::Connection::graceful_shutdown, activity).await
    }

    /// Drives the hyper connection to its end. Starts its graceful shutdown when the connection finishes.
    async fn drive<Http>(
        &self,
        mut http: Pin<&mut Http>,
        shut_down: fn(Pin<&mut Http>),
        activity: &Activity,
    ) -> End
    where
        Http: Future<Output = hyper::Result<()>>,
    {
        loop {
            // The order ensures that a request that arrives just before a timeout is served, and that
            // simulations are deterministic.
            tokio::select! { biased;
                finished = &mut http => {
                    finished.unwrap_or_else(|error| log_error(&error));
                    return End::Finished;
                }
                verdict = activity.verdict(self.limits(), &self.shutdown) => match verdict {
                    Verdict::Finish => activity.begin(Wait::Finish),
                    Verdict::Close => return End::Idle,
                    Verdict::Abort(reason) => {
                        log_abort(reason);
                        return End::Aborted;
                    }
                },
            }
            shut_down(http.as_mut());
        }
    }

    /// Awaits `operation`, unless the connection has to be closed.
    async fn wait_for<T, E: Error>(
        &self,
        operation: impl Future<Output = Result<T, E>>,
        activity: &Activity,
    ) -> Result<T, ()> {
        tokio::select! { biased;
            result = operation => result.map_err(|error| log_error(&error)),
            verdict = activity.verdict(self.limits(), &self.shutdown) => {
                if let Verdict::Abort(reason) = verdict {
                    log_abort(reason);
                }
                Err(())
            }
        }
    }
}

/// The way in which the hyper connection ended.
enum End {
    /// The connection is closed immediately.
    Aborted,
    /// All replies are sent. The client may not have received the last one.
    Finished,
    /// The client waits for nothing.
    Idle,
}

fn log_abort(reason: Reason) {
    match reason {
        Reason::Timeout(wait) => tracing::debug!("timed out waiting for {wait}"),
        Reason::Lookup(id) => log_lookup_timeout(id),
        Reason::Evicted => tracing::debug!("closed a connection without a lookup in favour of a new one"),
    }
}

fn log_error(error: &dyn Error) {
    tracing::debug!(%error, "connection failed");
}
