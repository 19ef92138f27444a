//! One connection, from its first byte to its last. While nothing happens on it, it has no buffers and no HTTP state: hyper
//! comes with the first byte, leaves when the connection is idle, and comes again with the next.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::server::conn::http1::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::answer::Desk;
use crate::aside::Aside;
use crate::limits::Limits;
use crate::pulse::{Alarm, InFlight, Pulse, Wait};
use crate::stream::{Stream, Version};

/// What all connections share.
pub(crate) struct Connections {
    pub(crate) desk: Arc<Desk>,
    pub(crate) http1: http1::Builder,
    pub(crate) http2: http2::Builder<TokioExecutor>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Says to each connection that it should end as soon as it has no request in flight.
    pub(crate) stop: CancellationToken,
}

/// hyper's HTTP/1 as we use it. Its own timeouts are off: they can't tell a slow head from an idle connection.
pub(crate) fn http1(limits: &Limits, date_header: bool) -> http1::Builder {
    /// hyper panics below this.
    const HYPER_BUFFER_BYTES_MIN: usize = 8_192;

    let mut http = http1::Builder::new();
    http.auto_date_header(date_header)
        .header_read_timeout(None)
        // A client may end its half once it has said everything.
        .half_close(true)
        .max_headers(limits.head_lines_max)
        .max_buf_size(limits.head_bytes_max.max(HYPER_BUFFER_BYTES_MIN));
    http
}

/// hyper's HTTP/2 as we use it.
///
/// One reply escapes us: to a head above four times [`Limits::head_bytes_max`], the h2 crate itself answers 431 without a
/// body. Up to there it is ours, and 400.
pub(crate) fn http2(limits: &Limits, date_header: bool) -> http2::Builder<TokioExecutor> {
    /// What a client may make us buffer on a stream, in and out; on a connection, four times that.
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
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let pulse = Arc::new(Pulse::new());
        let mut stream = Stream::new(io, &pulse);
        let mut since = Instant::now();
        let Some(version) = self.in_time(Wait::Head, since, stream.open()).await else { return };
        loop {
            // Boxed, so that its room is given back while the connection rests.
            let end = match version {
                Version::Http1 => Box::pin(self.serve_http1(&mut stream, &pulse, since)).await,
                Version::Http2 => Box::pin(self.serve_http2(&mut stream, &pulse, since)).await,
            };
            match end {
                End::Abrupt => return,
                End::InOrder => break,
                End::Rest(idle_since) => {
                    let Some(true) = self.in_time(Wait::Idle, idle_since, stream.reopen()).await else {
                        break;
                    };
                }
            }
            since = Instant::now();
        }
        if timeout(self.desk.limits.close_time_max, stream.close()).await.is_err() {
            tell_of_late(Wait::Close);
        }
    }

    async fn serve_http1<Io>(&self, stream: &mut Stream<'_, Io>, pulse: &Pulse, since: Instant) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| {
            let in_flight = InFlight::new(pulse);
            async move {
                let response = self.desk.answer(request).await;
                drop(in_flight);
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = self.http1.serve_connection(TokioIo::new(stream), service);
        let end = self.drive(Pin::new(&mut http), http1::Connection::graceful_shutdown, pulse, since).await;
        let Parts { io, read_buf, .. } = http.into_parts();
        io.into_inner().put_back(&read_buf);
        end
    }

    async fn serve_http2<Io>(&self, stream: &mut Stream<'_, Io>, pulse: &Arc<Pulse>, since: Instant) -> End
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let service = service_fn(|request| {
            let (desk, in_flight) = (self.desk.clone(), InFlight::new(pulse.clone()));
            async move {
                let response = desk.answer(request).await;
                drop(in_flight);
                Ok::<_, Infallible>(response)
            }
        });
        let http = pin!(self.http2.serve_connection(TokioIo::new(stream), service));
        self.drive(http, http2::Connection::graceful_shutdown, pulse, since).await
    }

    /// Lets hyper serve until it is done, and tells it when it should be.
    async fn drive<Http>(
        &self,
        mut http: Pin<&mut Http>,
        end: fn(Pin<&mut Http>),
        pulse: &Pulse,
        since: Instant,
    ) -> End
    where
        Http: Future<Output = hyper::Result<()>>,
    {
        let mut alarm = Alarm::new(pulse, since, &self.desk.limits);
        let stopped = pin!(self.stop.cancelled());
        let mut stopped = Aside::new(stopped);
        let mut rests_since = None;
        let mut is_ending = false;
        loop {
            // In this order, so that a request that came just in time is served, and a simulation repeats itself.
            tokio::select! { biased;
                ended = &mut http => {
                    ended.unwrap_or_else(|error| tell_of_break(&error));
                    return rests_since.map_or(End::InOrder, End::Rest);
                }
                () = &mut stopped, if !is_ending => pulse.begin_close(),
                wait = &mut alarm => match wait {
                    Wait::Idle if pulse.can_rest() && !is_ending => rests_since = Some(alarm.since()),
                    Wait::Idle => {
                        rests_since = None;
                        pulse.begin_close();
                    }
                    Wait::Head | Wait::Close => {
                        tell_of_late(wait);
                        return End::Abrupt;
                    }
                },
            }
            is_ending = true;
            end(http.as_mut());
        }
    }

    /// Waits for what comes. `None` if the connection is to end before: it is late, or broken, or the host stops.
    async fn in_time<T>(
        &self,
        wait: Wait,
        since: Instant,
        coming: impl Future<Output = io::Result<T>>,
    ) -> Option<T> {
        let deadline = since + wait.time_max(&self.desk.limits);
        tokio::select! { biased;
            came = coming => came.map_err(|error| tell_of_break(&error)).ok(),
            () = self.stop.cancelled() => None,
            () = sleep_until(deadline) => {
                tell_of_late(wait);
                None
            }
        }
    }
}

/// How HTTP on a connection came to an end.
enum End {
    /// Nothing more is said on either side.
    Abrupt,
    /// All is said, and the client is to take note of it.
    InOrder,
    /// It goes on with the next request. There has been none in flight since then.
    Rest(Instant),
}

fn tell_of_late(wait: Wait) {
    match wait {
        Wait::Head => tracing::debug!("a request's head took too long"),
        Wait::Idle => {}
        Wait::Close => tracing::debug!("a client did not take note of the end"),
    }
}

fn tell_of_break(error: &dyn Error) {
    tracing::debug!(%error, "a connection ended early");
}
