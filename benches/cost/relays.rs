//! Relays to measure the proxy beside.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use tokio::io::copy_bidirectional;

/// Starts the relay that adds the least: it polls client and server in turns, so no thread has to wake.
pub fn sleepless_relay(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        // one client after the other; between them it takes nothing from the rest of the benchmark
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(upstream).expect("redis is up");
            for stream in [&client, &server] {
                let _ = (stream.set_nodelay(true), stream.set_nonblocking(true));
            }
            let mut bytes = [0; 16 << 10];
            'carry: loop {
                for (mut from, mut to) in [(&client, &server), (&server, &client)] {
                    match from.read(&mut bytes) {
                        Ok(0) => break 'carry,
                        Ok(length) => to.write_all(&bytes[..length]).expect("a few bytes fit"),
                        Err(error) if error.kind() == WouldBlock => {}
                        Err(_) => break 'carry,
                    }
                }
                std::thread::yield_now();
            }
        }
    });
    address
}

/// Starts a relay of the usual form, on a thread of its own as the proxy is.
pub fn plain_relay(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket option");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        crate::runtime().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(upstream).await.expect("redis is up");
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
    });
    address
}
