//! Two connections, one of them with TLS, joined so that each ends as the other does.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::TcpStream;

use crate::reset::reset;

/// Carries bytes both ways until both ends have ended. An error of one connection resets the other.
pub(crate) async fn join<T>(mut plain: TcpStream, tls: &mut T, reset_tls: impl FnOnce(&T))
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    match copy_bidirectional(&mut plain, tls).await {
        Ok(_) => {}
        // a server that was killed sends no close_notify: an end, as it is without TLS
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        Err(_) => {
            reset(&plain);
            reset_tls(tls);
        }
    }
}
