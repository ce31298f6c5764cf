//! The client protocol, and the generated client of etcd's API: one program, so that one is linked.

#[cfg(feature = "generate")]
mod generated;
mod protocol;
