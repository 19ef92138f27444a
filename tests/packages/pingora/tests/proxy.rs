//! The proxy in front of an upstream server, over TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use enrich_golden::{Kind, Server as Golden, Stores, over_tcp, scenarios};
use enrich_lib::drive::Service;
use enrich_tower::Endpoint;
use pingora_core::server::Server;
use pingora_gateway::Gateway;
use pingora_proxy::http_proxy_service;

/// An upstream server that returns the path and the body of each request, and counts them.
fn upstream(requests: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, requests) = (connection.unwrap(), requests.clone());
            thread::spawn(move || {
                let mut request = Vec::new();
                while !request.ends_with(b"end") {
                    let mut bytes = [0; 1_024];
                    match connection.read(&mut bytes).unwrap() {
                        0 => return,
                        n => request.extend(&bytes[..n]),
                    }
                }
                requests.fetch_add(1, Ordering::Relaxed);
                let path = String::from_utf8(request).unwrap();
                let path = path.split(' ').nth(1).unwrap().to_owned();
                let length = path.len();
                let reply =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{path}");
                connection.write_all(reply.as_bytes()).unwrap();
            });
        }
    });
    address
}

/// Serves until the test process ends.
fn serve(service: Service, upstream: SocketAddr) -> SocketAddr {
    // Pingora does not report the port that it was given.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    thread::spawn(move || {
        let gateway = Gateway { endpoint: Arc::new(Endpoint::new(service)), upstream: upstream.to_string() };
        let mut server = Server::new(None).unwrap();
        server.bootstrap();
        let mut proxy = http_proxy_service(&server.configuration, gateway);
        proxy.add_tcp(&address.to_string());
        server.add_service(proxy);
        server.run_forever();
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "the proxy does not listen");
        thread::yield_now();
    }
    address
}

/// Every status of the interface, oversized bodies and wrong methods, byte by byte.
#[test]
fn replies_match_the_transcripts_and_reach_no_upstream_server() {
    let (scenarios, requests) = (scenarios().unwrap(), Arc::new(AtomicUsize::new(0)));
    let stores = Stores::prepare(&scenarios);
    let address = serve(stores.service.clone(), upstream(requests.clone()));
    let server = Golden::new(over_tcp(address), Kind::Gateway, stores.keys).with_faults(stores.faults);
    let report = server.run(&scenarios);
    println!("{report}");
    assert!(report.failed.is_empty(), "{report}");
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

#[test]
fn other_requests_reach_the_upstream_server_with_their_bodies() {
    let requests = Arc::new(AtomicUsize::new(0));
    let stores = Stores::prepare(&[]);
    let address = serve(stores.service, upstream(requests.clone()));
    let mut client = TcpStream::connect(address).unwrap();
    client
        .write_all(
            b"POST /other HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 8\r\n\r\nbody-end",
        )
        .unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("/other"), "{reply}");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
