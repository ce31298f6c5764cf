//! The generated client of etcd's own API, as far as locks need it: [`etcdserverpb`] for keys, leases and watches,
//! [`v3lockpb`] and [`v3electionpb`] for the server's own lock and election.

#![expect(missing_docs, unused_qualifications, reason = "generated")]

pub mod etcdserverpb {
    tonic::include_proto!("etcdserverpb");
}

pub mod v3lockpb {
    tonic::include_proto!("v3lockpb");
}

pub mod v3electionpb {
    tonic::include_proto!("v3electionpb");
}
