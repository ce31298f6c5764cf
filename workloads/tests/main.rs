//! The client protocol, and every recipe on real servers: one program, so that one is linked.

#[cfg(feature = "generate")]
mod generated;
mod protocol;
mod real_servers;
mod servers;
