//! Redis Cluster: three masters, each with a third of the keys and a replica. The masters find one of them dead by a vote, and its
//! replica takes its place.
//!
//! The parts of the servers are written into `nodes.conf` before they start, so that a cluster is whole from its first moment.
//! The others and clients know each server by its peer proxy, and its cluster bus by its own port: so a replica can be cut off
//! from its master's writes, and still votes. Settings: <https://redis.io/docs/latest/operate/oss_and_stack/management/scaling/>,
//! the file: `clusterSaveConfig` in <https://github.com/redis/redis/blob/7.0/src/cluster.c>

use std::fmt::Write;

use super::control::RedisReplication;
use super::server;
use crate::backends::BackendOptions;
use crate::cluster::{Launch, LoginGuard, NodeSetup, Peering, Readiness, ServerSoftware, Serving, probe_by_bytes};

/// The nodes after these are their replicas, in the same order.
const MASTERS: usize = 3;
const NODES: u32 = 6;
/// The number of slots for keys.
const SLOTS: usize = 16_384;
/// The silence after which the others declare a master dead: the default is 15 s, and a run of a minute shows more with one.
const NODE_TIMEOUT_MS: u32 = 1_000;

/// The file with the slots of each server, which a server rewrites when they change.
const NODES_FILE: &str = "nodes.conf";

pub static SOFTWARE: ServerSoftware = CLUSTER;

pub const CLUSTER: ServerSoftware = ServerSoftware {
    product: "Redis Cluster",
    nodes: NODES,
    // the second one is that of the cluster bus
    ports: &[6379, 16379],
    files: &[NODES_FILE],
    // the bus has no proxy, and a container has another address for it than it announces
    images: &[],
    peering: Peering::Announced(&RedisReplication),
    launch: &|setup| launch(server::PROGRAM, setup),
    probe: &|server| Box::pin(probe_by_bytes(server, |_| b"CLUSTER INFO\r\nINFO\r\n".to_vec(), answer)),
    guard: LoginGuard::Unknown,
    upgrade: Err("its masters and replicas would need an order of their own"),
    ..server::PLAIN
};

/// Returns the nodes with the same keys, by part.
pub fn groups() -> [Vec<usize>; MASTERS] {
    std::array::from_fn(|master| vec![master, master + MASTERS])
}

pub fn refuse(options: &BackendOptions) -> Option<String> {
    let is = "cluster is three masters and a replica of each";
    server::refuse_in_topology(options, NODES, is, "a cluster has one master for each key")
}

pub fn launch(program: &str, setup: &NodeSetup) -> Launch {
    let mut args: Vec<String> = server::words(server::settings(setup, &setup.bind)).collect();
    args.extend(["--dir".to_owned(), setup.data.display().to_string()]);
    let mut set = |name: &str, value: String| args.extend([format!("--cluster-{name}"), value]);
    set("enabled", "yes".into());
    set("config-file", NODES_FILE.into());
    set("node-timeout", NODE_TIMEOUT_MS.to_string());
    set("port", bus(setup, setup.me).to_string());
    // parts whose master lives are served
    set("require-full-coverage", "no".into());
    // a replica takes its master's place after any silence, and stays with that one master
    set("replica-validity-factor", "0".into());
    set("allow-replica-migration", "no".into());
    if let Some(own) = setup.peer_proxy() {
        set("announce-ip", own.ip().to_string());
        set("announce-port", own.port().to_string());
        set("announce-bus-port", bus(setup, setup.me).to_string());
    }
    Launch {
        program: setup.program(program),
        args,
        files: vec![(NODES_FILE.to_owned(), nodes_file(setup))],
        ..Launch::default()
    }
}

fn bus(setup: &NodeSetup, node: usize) -> u16 {
    setup.nodes[node].ports[1]
}

/// Returns the slots of each server, in the form of the servers' own file.
fn nodes_file(setup: &NodeSetup) -> String {
    let mut lines = String::new();
    for (node, address) in setup.peer_proxies.iter().enumerate() {
        let (id, bus, part) = (server::id(node), bus(setup, node), node % MASTERS);
        let (epoch, own) = (part + 1, if node == setup.me { "myself," } else { "" });
        let (role, slots) = if node < MASTERS {
            let (first, next) = (SLOTS * part / MASTERS, SLOTS * (part + 1) / MASTERS);
            ("master -".to_owned(), format!(" {first}-{}", next - 1))
        } else {
            (format!("slave {}", server::id(part)), String::new())
        };
        let _ = writeln!(lines, "{id} {address}@{bus} {own}{role} 0 0 {epoch} connected{slots}");
    }
    let _ = writeln!(lines, "vars currentEpoch {MASTERS} lastVoteEpoch 0");
    lines
}

/// Parses the readiness: a server serves when its cluster does, and leads if it has written: that master has a lock.
fn answer(bytes: &[u8], closed: bool) -> Readiness {
    let text = String::from_utf8_lossy(bytes);
    let has = |line: &str| text.lines().any(|other| other.trim() == line);
    match server::answer(bytes, closed) {
        Readiness::Serving(_) if !has("cluster_state:ok") => Readiness::NotYet("its cluster is incomplete".to_owned()),
        Readiness::Serving(serving) => Readiness::Serving(Serving {
            leads: serving.leads && !has("rdb_changes_since_last_save:0"),
            ..serving
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(me: usize) -> NodeSetup {
        NodeSetup {
            peer_proxies: (1..=6).map(|port| ([127, 0, 0, 1], 40_000 + port).into()).collect(),
            ..NodeSetup::of_test(NODES, &[20_000, 30_000], me)
        }
    }

    #[test]
    fn every_slot_has_one_master_and_every_master_a_replica() {
        let file = nodes_file(&setup(4));
        let lines: Vec<Vec<&str>> = file.lines().map(|line| line.split(' ').collect()).collect();
        let mut next = 0;
        for master in &lines[..MASTERS] {
            let (first, last) = master[8].split_once('-').unwrap();
            assert_eq!(first.parse(), Ok(next), "{file}");
            next = last.parse::<usize>().unwrap() + 1;
        }
        assert_eq!(next, 16_384);
        assert!(lines[4][2] == "myself,slave" && lines[4][3] == lines[1][0], "{file}");
        assert_eq!(lines[4][1], "127.0.0.1:40005@30005", "its proxy, and its own bus");
        assert_eq!(file.matches("myself").count(), 1);
        assert_eq!(groups()[1], [1, 4]);
    }

    #[test]
    fn a_master_serves_with_its_cluster_and_leads_once_it_has_written() {
        let of = |state: &str, changes: u32| {
            let info = format!(
                "$9\r\ncluster_state:{state}\r\n$9\r\nredis_version:7.0.15\r\nrdb_changes_since_last_save:{changes}\r\nrole:master\r\n# Keyspace\r\n"
            );
            answer(info.as_bytes(), false)
        };
        let leads = |readiness| match readiness {
            Readiness::Serving(serving) => serving.leads,
            other => panic!("{other:?}"),
        };
        assert!(matches!(of("fail", 1), Readiness::NotYet(_)));
        assert!(leads(of("ok", 10)) && !leads(of("ok", 0)));
        assert_eq!(answer(b"$9\r\ncluster_state:ok\r\n", false), Readiness::Unfinished);
    }
}
