//! The messages of etcd's own API, as far as locks need them: [`etcdserverpb`] for keys, leases and watches, [`v3lockpb`] and
//! [`v3electionpb`] for the server's own lock and election.
//!
//! The code is generated from `proto/*.proto` and kept in `proto/generated`, so that a build compiles no protobuf compiler.
//! `tests/generated.rs` generates it again and compares.

#![expect(missing_docs, reason = "generated")]

pub mod etcdserverpb {
    include!("../../proto/generated/etcdserverpb.rs");
}

pub mod v3lockpb {
    include!("../../proto/generated/v3lockpb.rs");
}

pub mod v3electionpb {
    include!("../../proto/generated/v3electionpb.rs");
}
