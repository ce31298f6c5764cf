//! Compiles the part of etcd's API that we use, in pure Rust: a plain `cargo build` needs no `protoc`.

use std::error::Error;

const PROTOS: [&str; 3] = ["etcd.proto", "lock.proto", "election.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
