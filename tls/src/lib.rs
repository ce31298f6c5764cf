//! TLS of a run: an [`Authority`] that the run makes for itself, a [`TlsServer`] with which links end the TLS of clients, and
//! [`TlsRelay`]s through which programs that write plain text reach servers that speak TLS.
//!
//! A link ends TLS, so its tap reads plain text and a fault on a message finds it; a relay begins TLS again towards the server.
//! Both ends of both connections present a certificate of the authority, and refuse a peer that has none.

mod authority;
mod config;
mod join;
mod relay;

pub use authority::{Authority, Identity};
pub use config::{TlsClient, TlsFiles, TlsServer};
pub use join::reset;
pub use relay::TlsRelay;
