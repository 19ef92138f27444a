//! A server on several threads. Each connection is served by one thread from accept to close.
//!
//! One task accepts connections and dispatches each one to the thread with the fewest connections. Sockets
//! that share the port (`SO_REUSEPORT`) would avoid the dispatch, but the kernel distributes connections by a
//! hash. With the few long-lived connections of a load balancer, one thread could get most of them. In
//! addition, a second server started on the same port by mistake would receive half of the connections
//! instead of an error.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::listener::Acceptor;
use crate::log::Log;
use crate::outbox::Outbox;
use crate::registry::{Registry, Slot};
use crate::server::{Services, serve};
use crate::shutdown::Shutdown;

/// A pool of worker threads.
///
/// The threads end when the pool is dropped, together with all tasks spawned on them, for example a store's
/// connection. The pool must therefore outlive the stores.
#[derive(Debug)]
pub struct Workers {
    threads: Vec<Handle>,
    _stop: DropGuard,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot start a thread.
    pub fn start(count: NonZeroUsize) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let start = |index| {
            let (runtime, stop) = (Builder::new_current_thread().enable_all().build()?, stop.clone());
            let handle = runtime.handle().clone();
            let thread = thread::Builder::new().name(format!("worker-{index}"));
            thread.spawn(move || runtime.block_on(stop.cancelled_owned()))?;
            Ok(handle)
        };
        let threads = (0..count.get()).map(start).collect::<io::Result<_>>()?;
        Ok(Self { threads, _stop: stop.drop_guard() })
    }

    /// Serves connections on all threads, like [`run`](crate::run). The [`Limits`](crate::Limits) apply to
    /// the whole server.
    pub async fn run(&self, listener: TcpListener, services: Services, shutdown: impl Future<Output = ()>) {
        let (phases, log) = (Arc::new(Shutdown::new()), Log::new());
        let registry = Registry::new(&services.limits, phases.clone());
        services.connections.watch(&registry);
        let mut running = JoinSet::new();
        let start =
            |thread| Worker::start(thread, &mut running, services.clone(), log.clone(), phases.clone());
        let workers: Vec<_> = self.threads.iter().map(start).collect();
        let _close_if_dropped = phases.closing.clone().drop_guard();

        let is_socket_shared = services.is_socket_shared;
        let mut acceptor = Acceptor::new(listener, registry.clone(), phases.clone(), is_socket_shared);
        let accepting = async move {
            while let Some((stream, slot)) = acceptor.accept().await {
                dispatch(&workers, stream, slot);
            }
            // Closes the listener, and the channels to the threads.
        };
        let running = async {
            while let Some(stopped) = running.join_next().await {
                propagate_panic(stopped);
            }
        };
        // The order is that of `run`.
        let served = async {
            tokio::join! { biased;
                accepting,
                registry.shut_down_after(shutdown, is_socket_shared),
                running,
            }
        };
        registry.sweep_during(served).await;
    }
}

/// A serving thread.
struct Worker {
    sender: UnboundedSender<Dispatched>,
    /// Cloned into each open connection of the thread. Its reference count is the number of connections plus
    /// one.
    connections: Arc<()>,
}

impl Worker {
    /// Starts to serve on `thread`, in a task of `running`.
    ///
    /// It is not generic, so that HTTP is compiled with this crate and not with each program that uses it.
    fn start(
        thread: &Handle,
        running: &mut JoinSet<()>,
        services: Services,
        log: Log,
        phases: Arc<Shutdown>,
    ) -> Self {
        let (sender, mut receiver) = unbounded_channel();
        let outbox = Arc::new(Outbox::default());
        let sending = AbortOnDropHandle::new(thread.spawn(outbox.clone().run()));
        let streams = outbox.clone();
        let accept = async move || {
            let (stream, slot) = receive(&mut receiver).await?;
            Some((streams.stream(stream), slot))
        };
        let served = serve(accept, services, log, phases);
        let serving = async move {
            served.await;
            outbox.send();
            drop(sending);
        };
        running.spawn_on(serving, thread);
        Self { sender, connections: Arc::new(()) }
    }
}

/// A connection on its way to a thread. It is not registered with any runtime.
struct Dispatched {
    stream: std::net::TcpStream,
    slot: Slot,
}

/// Sends a connection to the thread with the fewest connections.
fn dispatch(workers: &[Worker], stream: TcpStream, mut slot: Slot) {
    let connections = |worker: &&Worker| Arc::strong_count(&worker.connections);
    let Some(worker) = workers.iter().min_by_key(connections) else { return };
    slot.on_thread = Some(worker.connections.clone());
    match stream.into_std() {
        // It fails only while the thread shuts down.
        Ok(stream) => drop(worker.sender.send(Dispatched { stream, slot })),
        Err(error) => log_failed_dispatch(&error),
    }
}

/// Receives the next connection on its thread. Returns `None` after the last one. Cancel safe.
async fn receive(dispatched: &mut UnboundedReceiver<Dispatched>) -> Option<(TcpStream, Slot)> {
    while let Some(Dispatched { stream, slot }) = dispatched.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => return Some((stream, slot)),
            Err(error) => log_failed_dispatch(&error),
        }
    }
    None
}

fn log_failed_dispatch(error: &io::Error) {
    tracing::warn!(%error, "cannot dispatch a connection to a worker thread; closing it");
}

/// Propagates a panic of a worker's accept loop. A server that has lost a worker must not keep running.
fn propagate_panic(stopped: Result<(), JoinError>) {
    if let Err(error) = stopped
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
