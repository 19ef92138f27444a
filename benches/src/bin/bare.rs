//! Bare hyper as a server, with one single-threaded runtime per core, on a shared port.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use enrich_benches::bare;
use tokio::net::{TcpListener, TcpSocket};

/// The allocator of the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[allow(clippy::print_stderr, reason = "the launcher reads the address from stderr")]
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
        tokio::spawn(bare::serve(stream));
    }
}
