//! One connection, from accept to close.
//!
//! The hyper connection is created when the first byte arrives. When the connection becomes idle, it is
//! suspended: the hyper connection and its buffers are dropped, and created again for the next request.

use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::server::conn::http1::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::activity::{ConnectionActivity, ConnectionTimeout, InFlight, Wait};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::registry::Slot;
use crate::shutdown::Shutdown;
use crate::stream::{Stream, Version};
use crate::wake::WakeGated;

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

    let mut http = http1::Builder::new();
    http.auto_date_header(date_header)
        .header_read_timeout(None)
        // A client may shut down its sending half after its last request.
        .half_close(true)
        .max_headers(limits.head_lines_max)
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

    /// Serves a connection until it is closed or evicted.
    pub(crate) async fn serve<Io>(self: Arc<Self>, io: Io, slot: Slot)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = &slot.activity;
        let served = async {
            match &self.tls {
                None => self.serve_http(io, activity).await,
                // Boxed because its future is far larger than that of a plain connection.
                Some(tls) => Box::pin(self.serve_tls(tls, io, activity)).await,
            }
        };
        let evicted = pin!(slot.evicted());
        let mut evicted = WakeGated::new(evicted);
        tokio::select! { biased;
            () = served => {}
            () = &mut evicted => tracing::debug!("closed an idle connection in favour of a new one"),
        }
    }

    async fn serve_tls<Io>(&self, tls: &TlsAcceptor, io: Io, activity: &Arc<ConnectionActivity>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = timeout(self.limits().handshake_timeout, tls.accept(io));
        let handshake = tokio::select! { biased;
            () = self.shutdown.closing.cancelled() => return,
            handshake = handshake => handshake,
        };
        match handshake {
            Ok(Ok(io)) => self.serve_http(io, activity).await,
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn serve_http<Io>(&self, io: Io, activity: &Arc<ConnectionActivity>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut stream = Stream::new(io, activity, &*self.handler);
        let mut since = Instant::now();
        let Some(version) = self.with_timeout(Wait::Head, since, stream.detect_version()).await else {
            return;
        };
        loop {
            // Boxed so that its memory is freed while the connection is idle.
            let end = match version {
                Version::Http1 => Box::pin(self.serve_http1(&mut stream, activity, since)).await,
                Version::Http2 => Box::pin(self.serve_http2(&mut stream, activity, since)).await,
            };
            match end {
                End::Aborted => return,
                End::Finished => break,
                End::Suspended(idle_since) => {
                    let next = self.with_timeout(Wait::Idle, idle_since, stream.has_next_head()).await;
                    let Some(true) = next else { break };
                }
            }
            since = Instant::now();
        }
        if timeout(self.limits().close_timeout, stream.close()).await.is_err() {
            log_timeout(Wait::Close);
        }
    }

    async fn serve_http1<Io>(
        &self,
        stream: &mut Stream<'_, Io, H>,
        activity: &ConnectionActivity,
        since: Instant,
    ) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| self.handler.answer(request, InFlight::new(activity)));
        let mut http = self.http1.serve_connection(TokioIo::new(stream), service);
        let (shut_down, shutdown) = (http1::Connection::graceful_shutdown, &self.shutdown.closing);
        let end = self.drive(Pin::new(&mut http), shut_down, shutdown, activity, since).await;
        let Parts { io, read_buf, .. } = http.into_parts();
        io.into_inner().put_back(&read_buf);
        end
    }

    async fn serve_http2<Io>(
        &self,
        stream: &mut Stream<'_, Io, H>,
        activity: &Arc<ConnectionActivity>,
        since: Instant,
    ) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| {
            let (handler, in_flight) = (self.handler.clone(), InFlight::new(activity.clone()));
            async move { handler.answer(request, in_flight).await }
        });
        let http = pin!(self.http2.serve_connection(TokioIo::new(stream), service));
        // A graceful shutdown of HTTP/2 still accepts the streams that the client opened before it received
        // the GOAWAY frame.
        let (shut_down, shutdown) = (http2::Connection::graceful_shutdown, &self.shutdown.draining);
        self.drive(http, shut_down, shutdown, activity, since).await
    }

    /// Drives the hyper connection to its end. Starts its graceful shutdown on `shutdown`, when a wait times
    /// out and when the connection is idle.
    async fn drive<Http>(
        &self,
        mut http: Pin<&mut Http>,
        shut_down: fn(Pin<&mut Http>),
        shutdown: &CancellationToken,
        activity: &ConnectionActivity,
        since: Instant,
    ) -> End
    where
        Http: Future<Output = hyper::Result<()>>,
    {
        let mut connection_timeout = ConnectionTimeout::new(activity, since, self.limits());
        let shutdown = pin!(shutdown.cancelled());
        let mut shutdown = WakeGated::new(shutdown);
        let mut suspended_since = None;
        let mut is_shutting_down = false;
        loop {
            // The order ensures that a request that arrives just before a timeout is served, and that
            // simulations are deterministic.
            tokio::select! { biased;
                finished = &mut http => {
                    finished.unwrap_or_else(|error| log_error(&error));
                    return suspended_since.map_or(End::Finished, End::Suspended);
                }
                () = &mut shutdown, if !is_shutting_down => activity.begin_close(),
                wait = &mut connection_timeout => match wait {
                    Wait::Idle if activity.can_suspend() && !is_shutting_down => {
                        suspended_since = Some(connection_timeout.since());
                    }
                    Wait::Idle => {
                        suspended_since = None;
                        activity.begin_close();
                    }
                    Wait::Lookup => {
                        activity.set_lookup_timed_out();
                        return End::Aborted;
                    }
                    Wait::Head | Wait::Close => {
                        log_timeout(wait);
                        return End::Aborted;
                    }
                },
            }
            is_shutting_down = true;
            shut_down(http.as_mut());
        }
    }

    /// Awaits `operation`. Returns `None` on timeout, on an I/O error and when the server shuts down.
    async fn with_timeout<T>(
        &self,
        wait: Wait,
        since: Instant,
        operation: impl Future<Output = io::Result<T>>,
    ) -> Option<T> {
        let deadline = since + wait.timeout(self.limits());
        tokio::select! { biased;
            result = operation => result.map_err(|error| log_error(&error)).ok(),
            () = self.shutdown.closing.cancelled() => None,
            () = sleep_until(deadline) => {
                log_timeout(wait);
                None
            }
        }
    }
}

/// The way in which the hyper connection ended.
enum End {
    /// The connection is closed immediately.
    Aborted,
    /// All replies are sent. The client may still close its half of the connection.
    Finished,
    /// The connection has been idle since this instant and waits for the next request.
    Suspended(Instant),
}

fn log_timeout(wait: Wait) {
    match wait {
        Wait::Head => tracing::debug!("timed out waiting for the head of a request"),
        Wait::Idle | Wait::Lookup => {}
        Wait::Close => {
            tracing::debug!("timed out waiting for the client to close its half of the connection")
        }
    }
}

fn log_error(error: &dyn Error) {
    tracing::debug!(%error, "connection failed");
}
