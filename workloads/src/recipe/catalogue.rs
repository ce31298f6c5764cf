//! The slice itself.

use std::time::Duration;

use super::{BackendId, Open, Recipe, Wakes};
use crate::{etcd, redis, zk};

const ZK: Recipe = Recipe {
    name: "",
    backend: BackendId::Zk,
    summary: "",
    attitudes: true,
    guid: true,
    wakes: Wakes::Notified,
    modes: false,
    tokens: true,
    fifo: true,
    servers: None,
    lease: true,
    interval: Duration::ZERO,
    open: Open::Zk(zk::predecessor_watch::open),
};

const ETCD: Recipe = Recipe {
    backend: BackendId::Etcd,
    guid: false,
    open: Open::Etcd(etcd::mutex::open),
    ..ZK
};

const REDIS: Recipe = Recipe {
    backend: BackendId::Redis,
    guid: false,
    wakes: Wakes::Polls,
    tokens: false,
    fifo: false,
    interval: Duration::from_millis(20),
    open: Open::Redis(redis::set_px_lua::open),
    ..ZK
};

/// Every lock there is.
pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "zk-polling",
        summary: "queue of ephemeral nodes; waiters list again and again",
        wakes: Wakes::Polls,
        interval: zk::polling::INTERVAL,
        open: Open::Zk(zk::polling::open),
        ..ZK
    },
    Recipe {
        name: "zk-parent-watch",
        summary: "queue of ephemeral nodes; every change wakes every waiter",
        open: Open::Zk(zk::parent_watch::open),
        ..ZK
    },
    Recipe {
        name: "zk-predecessor-watch",
        summary: "queue of ephemeral nodes; each waiter watches the one ahead",
        open: Open::Zk(zk::predecessor_watch::open),
        ..ZK
    },
    Recipe {
        name: "zk-single-node",
        summary: "one ephemeral node; whoever creates it holds, and everybody else watches it",
        guid: false,
        fifo: false,
        open: Open::Zk(zk::single_node::open),
        ..ZK
    },
    Recipe {
        name: "zk-read-write",
        summary: "queue of readers and writers; readers side by side hold together",
        modes: true,
        open: Open::Zk(zk::read_write::open),
        ..ZK
    },
    Recipe {
        name: "zk-election",
        summary: "leader election as a lock; each candidate watches the one ahead",
        open: Open::Zk(zk::election::open),
        ..ZK
    },
    Recipe {
        name: "zk-curator",
        summary: "the lock of the zookeeper-client crate, compatible with Apache Curator",
        wakes: Wakes::Unsaid,
        guid: false,
        open: Open::Zk(zk::curator::open),
        ..ZK
    },
    Recipe {
        name: "etcd-mutex",
        summary: "queue of leased keys; each waiter watches the one ahead",
        open: Open::Etcd(etcd::mutex::open),
        ..ETCD
    },
    Recipe {
        name: "etcd-lock-rpc",
        summary: "the server's own lock service",
        wakes: Wakes::Unsaid,
        open: Open::Etcd(etcd::lock_rpc::open),
        ..ETCD
    },
    Recipe {
        name: "etcd-queue",
        summary: "one leased key; clients of a process wait in a line of their own",
        fifo: false,
        open: Open::Etcd(etcd::queue::open),
        ..ETCD
    },
    Recipe {
        name: "etcd-election",
        summary: "leader election by the server's own service, as a lock",
        wakes: Wakes::Unsaid,
        open: Open::Etcd(etcd::election::open),
        ..ETCD
    },
    Recipe {
        name: "redis-setnx",
        summary: "SETNX without a time to live; DEL",
        attitudes: false,
        lease: false,
        open: Open::Redis(redis::setnx::open),
        ..REDIS
    },
    Recipe {
        name: "redis-setnx-expire",
        summary: "SETNX, then EXPIRE as a second command; DEL",
        open: Open::Redis(redis::setnx_expire::open),
        ..REDIS
    },
    Recipe {
        name: "redis-getset",
        summary: "SETNX of a deadline, GETSET when it has passed; DEL within it",
        open: Open::Redis(redis::getset::open),
        ..REDIS
    },
    Recipe {
        name: "redis-set-px-del",
        summary: "SET NX PX; a plain DEL deletes whatever is there",
        open: Open::Redis(redis::set_px_del::open),
        ..REDIS
    },
    Recipe {
        name: "redis-set-px-get-del",
        summary: "SET NX PX with a random value; GET, compare, DEL",
        open: Open::Redis(redis::set_px_get_del::open),
        ..REDIS
    },
    Recipe {
        name: "redis-set-px-lua",
        summary: "SET NX PX with a random value; a script compares and deletes",
        open: Open::Redis(redis::set_px_lua::open),
        ..REDIS
    },
    Recipe {
        name: "redis-watchdog",
        summary: "SET NX PX, renewed every third of the lease while held",
        open: Open::Redis(redis::watchdog::open),
        ..REDIS
    },
    Recipe {
        name: "redis-pubsub",
        summary: "as redis-watchdog; waiters are told by a message",
        wakes: Wakes::Notified,
        open: Open::Redis(redis::pubsub::open),
        ..REDIS
    },
    Recipe {
        name: "redlock",
        summary: "SET NX PX on a majority of independent masters",
        servers: Some(redis::redlock::MASTERS),
        open: Open::Redis(redis::redlock::open),
        ..REDIS
    },
];
