//! TLS of a run: an [`Authority`] that the run makes for itself, a [`TlsServer`] with which links end the TLS of clients, and
//! [`TlsRelay`]s through which programs that write plain text reach servers that speak TLS.
//!
//! A link ends TLS, so its tap reads plain text and a fault on a message finds it; a relay begins TLS again towards the server.
//! Both ends of both connections present a certificate of the authority, and refuse a peer that has none.
//!
//! Without the feature `rustls` none of the three can be made.

mod authority;
#[cfg(feature = "rustls")]
mod certify;
#[cfg(feature = "rustls")]
mod config;
mod files;
#[cfg(feature = "rustls")]
mod join;
#[cfg(feature = "rustls")]
mod relay;
mod reset;
#[cfg(not(feature = "rustls"))]
mod without;

pub use authority::{Authority, TlsIdentity};
#[cfg(feature = "rustls")]
pub use config::{TlsClient, TlsServer};
pub use files::TlsFiles;
#[cfg(feature = "rustls")]
pub use relay::TlsRelay;
pub use reset::reset;
#[cfg(not(feature = "rustls"))]
pub use without::{Unmade as TlsClient, Unmade as TlsRelay, Unmade as TlsServer};
