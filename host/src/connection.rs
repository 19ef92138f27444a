//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::answer::Desk;
use crate::aside::Aside;
use crate::limits::Limits;
use crate::pulse::{Alarm, Pulse, Wait};
use crate::stream::Stream;

/// What all connections share.
pub(crate) struct Connections {
    pub(crate) desk: Arc<Desk>,
    pub(crate) http: auto::Builder<TokioExecutor>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Says to each connection that it should end as soon as it has no request in flight.
    pub(crate) stop: CancellationToken,
}

/// hyper as we use it. Its own timeouts are off: they can't tell a slow head from an idle connection.
///
/// One reply escapes us: to an HTTP/2 head above four times [`Limits::head_bytes_max`], the h2 crate itself answers 431
/// without a body. Up to there it is ours, and 400.
pub(crate) fn http(limits: &Limits, date_header: bool) -> auto::Builder<TokioExecutor> {
    /// hyper panics below this.
    const HYPER_BUFFER_BYTES_MIN: usize = 8_192;
    /// What a client may make us buffer on a stream, in and out; on a connection, four times that.
    const STREAM_BYTES_MAX: u32 = 64 * 1_024;

    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .auto_date_header(date_header)
        .header_read_timeout(None)
        // A client may end its half once it has said everything.
        .half_close(true)
        .max_headers(limits.head_lines_max)
        .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN));
    http.http2()
        .timer(TokioTimer::new())
        .auto_date_header(date_header)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(u32::try_from(limits.head_bytes_max.saturating_mul(4)).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(STREAM_BYTES_MAX * 4)
        .max_send_buf_size(STREAM_BYTES_MAX as usize);
    http
}

impl Connections {
    pub(crate) async fn serve<Io>(self: Arc<Self>, io: Io)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match &self.tls {
            None => self.serve_http(io).await,
            // Boxed, as it is far larger: a connection without TLS should not take its room.
            Some(tls) => Box::pin(self.serve_tls(tls, io)).await,
        }
    }

    async fn serve_tls<Io>(&self, tls: &TlsAcceptor, io: Io)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = timeout(self.desk.limits.handshake_time_max, tls.accept(io));
        let stopped = self.stop.cancelled();
        let handshake = tokio::select! { biased;
            () = stopped => return,
            handshake = handshake => handshake,
        };
        match handshake {
            Ok(Ok(io)) => self.serve_http(io).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!("the TLS handshake took too long"),
        }
    }

    async fn serve_http<Io>(&self, io: Io)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let pulse = Arc::new(Pulse::new());
        let service = service_fn(|request| {
            let (desk, in_flight) = (self.desk.clone(), pulse.begin_request());
            async move {
                let response = desk.answer(request).await;
                drop(in_flight);
                Ok::<_, Infallible>(response)
            }
        });
        let stream = TokioIo::new(Stream::new(io, pulse.clone()));
        let mut connection = pin!(self.http.serve_connection(stream, service));
        let mut alarm = Aside::new(Alarm::new(&pulse, &self.desk.limits));
        let stopped = pin!(self.stop.cancelled());
        let mut stopped = Aside::new(stopped);
        let mut is_ending = false;
        loop {
            // In this order, so that a request that came just in time is served, and a simulation repeats itself.
            tokio::select! { biased;
                ended = &mut connection => return ended.unwrap_or_else(
                    |error| tracing::debug!(%error, "a connection ended early"),
                ),
                () = &mut stopped, if !is_ending => {}
                wait = &mut alarm => match wait {
                    Wait::Idle => {}
                    Wait::Head => return tracing::debug!("a request's head took too long"),
                    Wait::Close => return tracing::debug!("a client did not take note of the end"),
                },
            }
            is_ending = true;
            pulse.begin_close();
            connection.as_mut().graceful_shutdown();
        }
    }
}
