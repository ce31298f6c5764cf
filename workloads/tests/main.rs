//! The client protocol, and the generated messages of etcd's API: one program, so that one is linked.

#[cfg(feature = "generate")]
mod generated;
mod protocol;
