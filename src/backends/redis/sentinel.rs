//! Redis with Sentinel: a master, two replicas, and three sentinels that watch them, elect one of themselves when the master is
//! silent, and let that one promote a replica.
//!
//! The others know each server and each sentinel by its peer proxy: that is the address that it announces, and the one that
//! clients get. Settings: <https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/>

use std::fmt::Write;
use std::net::SocketAddr;

use harness_workloads::protocol::MASTER_NAME;

use super::control::RedisReplication;
use super::server;
use crate::backends::BackendOptions;
use crate::cluster::{ContainerSpec, Launch, NodeSetup, Peering, Readiness, ServerSoftware, Serving, probe_by_bytes};

/// The number of the master and its replicas; the nodes after them are sentinels.
pub const SERVERS: usize = 3;
const NODES: u32 = 6;
/// The number of sentinels that must find the master silent.
const QUORUM: u32 = 2;
/// The silence after which a sentinel declares a master down: the default is 30 s, and a run of a minute shows more with one.
const DOWN_AFTER_MS: u32 = 1_000;
/// Half of the time after which the sentinels try again if a failover did not complete.
const FAILOVER_MS: u32 = 3_000;

/// The configuration of a server, which it rewrites when its role changes.
const CONFIGURATION: &str = "redis.conf";
/// Its path in a container: every image lets the server write to that folder.
const IN_CONTAINER: &str = "/data/redis.conf";

pub static SOFTWARE: ServerSoftware = SENTINELS;

pub const SENTINELS: ServerSoftware = ServerSoftware {
    nodes: NODES,
    files: &[CONFIGURATION],
    peering: Peering::Announced(&RedisReplication),
    launch: &|setup| launch(server::PROGRAM, setup),
    container: &|setup| container(server::PROGRAM, setup),
    probe: &|server| Box::pin(probe_by_bytes(server, |_| b"INFO\r\n".to_vec(), answer)),
    upgrade: Err("the sentinels and their servers would need an order of their own"),
    ..server::PLAIN
};

pub fn refuse(options: &BackendOptions) -> Option<String> {
    let is = "sentinel is a master, two replicas and three sentinels";
    server::refuse_in_topology(options, NODES, is, "sentinels have one")
}

fn is_sentinel(setup: &NodeSetup) -> bool {
    setup.me >= SERVERS
}

pub fn launch(program: &str, setup: &NodeSetup) -> Launch {
    Launch {
        program: setup.program(program),
        args: command(setup, &setup.data.join(CONFIGURATION).display().to_string()),
        files: vec![(
            CONFIGURATION.to_owned(),
            configuration(setup, &setup.bind, &setup.data.display().to_string()),
        )],
        ..Launch::default()
    }
}

pub fn container(program: &str, setup: &NodeSetup) -> ContainerSpec {
    let mut given = vec![program.to_owned()];
    given.extend(command(setup, IN_CONTAINER));
    ContainerSpec {
        command: given,
        files: vec![(IN_CONTAINER.to_owned(), configuration(setup, "0.0.0.0", "/data"))],
        ..ContainerSpec::default()
    }
}

fn command(setup: &NodeSetup, file: &str) -> Vec<String> {
    let mut words = vec![file.to_owned()];
    words.extend(is_sentinel(setup).then(|| "--sentinel".to_owned()));
    words
}

/// Returns the configuration, with all servers and sentinels: these would find new replicas only every ten seconds.
fn configuration(setup: &NodeSetup, bind: &str, folder: &str) -> String {
    if is_sentinel(setup) {
        return sentinel_configuration(setup, bind, folder);
    }
    let mut lines = format!("dir {folder}\n");
    for (flag, value) in server::settings(setup, bind) {
        let value = if value.is_empty() { "\"\"".to_owned() } else { value };
        let _ = writeln!(lines, "{} {value}", flag.trim_start_matches('-'));
    }
    if let (Some(own), Some(first)) = (setup.peer_proxy(), setup.peer_proxies.first()) {
        let _ = writeln!(lines, "replica-announce-ip {}", own.ip());
        let _ = writeln!(lines, "replica-announce-port {}", own.port());
        if setup.me > 0 {
            let _ = writeln!(lines, "replicaof {} {}", first.ip(), first.port());
        }
    }
    lines
}

fn sentinel_configuration(setup: &NodeSetup, bind: &str, folder: &str) -> String {
    let name = MASTER_NAME;
    let at = |address: &SocketAddr| format!("{} {}", address.ip(), address.port());
    let mut lines = format!(
        "dir {folder}\nport {}\nbind {bind}\nprotected-mode no\ndaemonize no\nsentinel myid {}\n",
        setup.me().ports[0],
        server::id(setup.me)
    );
    if let Some(own) = setup.peer_proxy() {
        let _ = writeln!(lines, "sentinel announce-ip {}", own.ip());
        let _ = writeln!(lines, "sentinel announce-port {}", own.port());
    }
    for (node, address) in setup.peer_proxies.iter().enumerate() {
        let _ = match node {
            0 => writeln!(
                lines,
                "sentinel monitor {name} {} {QUORUM}\nsentinel down-after-milliseconds {name} {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout {name} {FAILOVER_MS}\nsentinel parallel-syncs {name} 2",
                at(address)
            ),
            _ if node < SERVERS => writeln!(lines, "sentinel known-replica {name} {}", at(address)),
            _ if node != setup.me => writeln!(
                lines,
                "sentinel known-sentinel {name} {} {}",
                at(address),
                server::id(node)
            ),
            _ => Ok(()),
        };
    }
    lines
}

/// Parses the readiness: a sentinel serves when it sees its master, both replicas and both other sentinels. A master leads while
/// it has replicas: a replaced one has none.
fn answer(bytes: &[u8], closed: bool) -> Readiness {
    let text = String::from_utf8_lossy(bytes);
    let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // the second is Valkey's word
    if after("redis_mode:").or(after("server_mode:")) == Some("sentinel") {
        let Some(master) = after("master0:") else {
            return Readiness::Unfinished;
        };
        let has = |part: &str| master.split(',').any(|other| other == part);
        // without the line's end its last field may be longer
        return match text.ends_with("\n") && has("status=ok") && has("slaves=2") && has("sentinels=3") {
            true => {
                let version = server::version(after).unwrap_or("?");
                Readiness::Serving(Serving::new("sentinel", false, version))
            }
            false => Readiness::NotYet(format!("as a sentinel it sees {master}")),
        };
    }
    match server::answer(bytes, closed) {
        Readiness::Serving(serving) => Readiness::Serving(Serving {
            leads: serving.leads && after("connected_slaves:").is_some_and(|count| count != "0"),
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
            peer_proxies: (1..=6).map(|port| ([10, 0, 0, 1], 40_000 + port).into()).collect(),
            ..NodeSetup::of_test(NODES, &[20_000], me)
        }
    }

    #[test]
    fn servers_and_sentinels_announce_their_proxies_and_know_each_other_by_them() {
        let of = |me| configuration(&setup(me), "127.0.0.1", "/tmp");
        assert!(!of(0).contains("replicaof"), "{}", of(0));
        assert!(of(2).contains("replicaof 10.0.0.1 40001\n"), "{}", of(2));
        assert!(of(2).contains("replica-announce-port 40003\n") && of(2).contains("save \"\"\n"));
        let (sentinel, itself) = (of(4), format!("40005 {}", server::id(4)));
        for (part, times) in [
            ("sentinel monitor harness 10.0.0.1 40001 2\n", 1),
            ("sentinel announce-port 40005\n", 1),
            ("known-replica", 2),
            ("known-sentinel", 2),
            (itself.as_str(), 0),
        ] {
            assert_eq!(sentinel.matches(part).count(), times, "{part}: {sentinel}");
        }
        assert_eq!(command(&setup(4), "x"), ["x", "--sentinel"]);
    }

    #[test]
    fn a_sentinel_serves_once_it_sees_all_and_a_master_without_replicas_does_not_lead() {
        let sentinel = |status: &str| {
            let info =
                format!("$9\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\nmaster0:name=harness,{status}\r\n");
            answer(info.as_bytes(), false)
        };
        let all = "status=ok,address=10.0.0.1:40001,slaves=2,sentinels=3";
        assert!(matches!(sentinel(all), Readiness::Serving(serving) if serving.role == "sentinel" && !serving.leads));
        assert!(matches!(sentinel(&all.replace("ok", "sdown")), Readiness::NotYet(_)));
        assert!(matches!(sentinel(&all.replace("s=2", "s=1")), Readiness::NotYet(_)));
        let leads = |replicas: u32| {
            let info = format!("redis_mode:standalone\r\nrole:master\r\nconnected_slaves:{replicas}\r\n# Keyspace\r\n");
            match answer(info.as_bytes(), false) {
                Readiness::Serving(serving) => serving.leads,
                other => panic!("{other:?}"),
            }
        };
        assert!(leads(2) && leads(1) && !leads(0));
    }
}
