//! The reset of a connection.

use std::time::Duration;

use tokio::net::TcpStream;

/// Makes the close of this socket a reset instead of an end of stream.
pub fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
