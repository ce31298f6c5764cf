//! ZooKeeper servers: configuration file, command line, container, and readiness by the four-letter word `srvr`.
//!
//! Settings: <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html>

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::data::{first_session, guard};
use super::membership::{ZkMembership, server_line, super_digest};
use crate::cluster::{
    CONTAINER_FOLDER, ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeAddress, NodeSetup, Peering,
    Readiness, ServerSoftware, Serving, missing_program, probe_by_bytes,
};

/// The folder of ZooKeeper's jars in Debian's packages.
const DEBIAN_JARS: &str = "usr/share/java";
const DEBIAN_JAR: &str = "zookeeper.jar";
/// A part of it, which it would otherwise take from this machine: it names others by their whole paths.
const DEBIAN_JUTE: &str = "zookeeper-jute.jar";
/// ZooKeeper logs nothing without a logging backend on the class path.
const DEBIAN_LOGGER: &str = "slf4j-simple.jar";
/// The jar for TLS, which Debian's `zookeeper.jar` does not name.
const DEBIAN_NETTY_CODEC: &str = "netty-codec.jar";
/// A test server is small and must start quickly.
const JVM_FLAGS: &[&str] = &[
    "-Xms16m",
    "-Xmx128m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Dzookeeper.cnxTimeout=1000",
    "-Dzookeeper.fastleader.maxNotificationInterval=1000",
];
/// The time of a follower to join, in ticks.
const INIT_LIMIT: u32 = 20;
/// The most by which a follower may fall behind, in ticks.
const SYNC_LIMIT: u32 = 10;

/// Returns the tick of servers for clients with this lease, a tenth of it: the server grants no session shorter than two ticks and
/// rounds to ticks.
pub fn tick(lease: Duration) -> Duration {
    Duration::from_millis((lease.as_millis() / 10).clamp(100, 2000) as u64)
}

/// Returns the longest session that the server grants: enough for the clients' own and the observer's.
fn max_session_ms(lease: Duration) -> u128 {
    lease.as_millis().max(60_000)
}

pub static SOFTWARE: ServerSoftware = ServerSoftware {
    backend: "zk",
    product: "ZooKeeper",
    nodes: 3,
    ports: &[2181, 2888, 3888],
    keeps_data: true,
    kill: KillSignal::Kill,
    stop: None,
    images: &[include_str!("image").trim_ascii(), "harness-zk:debian"],
    install_hint: "apt-get install default-jre-headless libzookeeper-java libslf4j-java (or set ZOOKEEPER_HOME to an unpacked release)",
    files: &["zoo.cfg", "myid"],
    peering: Peering::Socks,
    missing: &missing,
    launch: &launch,
    confined: true,
    container: &container,
    probe: &|server| Box::pin(probe_by_bytes(server, |_| b"srvr".to_vec(), answer)),
    guard: LoginGuard::ByCommand(&|servers, _| Box::pin(guard(servers))),
    first_connection: Some(|server| Box::pin(first_session(server))),
    membership: Some(&ZkMembership),
    upgrade: Ok(&KeptData {
        folders: &["/data", "/datalog"],
        missing: |folder| {
            let jars = "zookeeper.jar, or lib with those of a release,";
            class_path_in(folder).map_or(vec![jars.to_owned()], |_| Vec::new())
        },
    }),
    speaks_tls: true,
};

fn missing() -> Vec<String> {
    let mut missing = missing_program("java");
    if class_path().is_none() {
        missing.push("zookeeper.jar".to_owned());
    }
    missing
}

fn launch(setup: &NodeSetup) -> Launch {
    let mut args = jvm_flags(setup);
    args.push("-Dorg.slf4j.simpleLogger.showDateTime=true".into());
    args.push("-cp".into());
    let jars = setup.programs.as_deref().map_or_else(class_path, class_path_in);
    args.push(jars.unwrap_or_default());
    args.push("org.apache.zookeeper.server.quorum.QuorumPeerMain".into());
    args.push(setup.data.join("zoo.cfg").display().to_string());
    Launch {
        // this machine's Java runs another version, too, unless that has its own
        program: setup.program("java"),
        args,
        files: vec![
            ("zoo.cfg".into(), configuration(setup)),
            ("data/myid".into(), format!("{}\n", setup.me().number)),
        ],
        secrets: setup.tls_files(),
        ..Launch::default()
    }
}

/// Returns a server's line in the configuration; that of a replaceable ensemble has its port for clients.
fn server_in(setup: &NodeSetup, m: &NodeAddress) -> String {
    match setup.replaceable {
        true => server_line(m),
        false => format!("server.{}={}:{}:{}", m.number, m.host, m.ports[1], m.ports[2]),
    }
}

fn container(setup: &NodeSetup) -> ContainerSpec {
    let server = |m: &NodeAddress| match (setup.replaceable, setup.tls.is_some()) {
        (false, false) => format!("{};{}", server_in(setup, m), m.ports[0]),
        _ => server_in(setup, m),
    };
    let servers: Vec<String> = setup.nodes.iter().map(server).collect();
    let env = [
        ("ZOO_MY_ID", setup.me().number.to_string()),
        ("ZOO_SERVERS", servers.join(" ")),
        ("ZOO_TICK_TIME", tick(setup.lease).as_millis().to_string()),
        ("ZOO_INIT_LIMIT", INIT_LIMIT.to_string()),
        ("ZOO_SYNC_LIMIT", SYNC_LIMIT.to_string()),
        ("ZOO_MAX_CLIENT_CNXNS", "0".into()),
        ("ZOO_STANDALONE_ENABLED", "false".into()),
        ("ZOO_ADMINSERVER_ENABLED", "false".into()),
        ("ZOO_4LW_COMMANDS_WHITELIST", "*".into()),
        (
            "ZOO_CFG_EXTRA",
            format!(
                "forceSync={} maxSessionTimeout={} {}{}",
                force_sync(setup),
                max_session_ms(setup.lease),
                if setup.replaceable { "reconfigEnabled=true " } else { "" },
                tls_settings(setup, Path::new(CONTAINER_FOLDER)).join(" ")
            ),
        ),
        ("JVMFLAGS", jvm_flags(setup).join(" ")),
    ];
    ContainerSpec {
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        files: setup.tls_files_of_container(),
        ..ContainerSpec::default()
    }
}

fn answer(bytes: &[u8], closed: bool) -> Readiness {
    if !closed {
        return Readiness::Unfinished;
    }
    let text = String::from_utf8_lossy(bytes);
    let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    match (after("Mode:"), after("Zookeeper version:")) {
        (Some(role), version) => {
            let leads = ["leader", "standalone"].contains(&role);
            let version = version.and_then(|version| version.split(['-', ',']).next());
            Readiness::Serving(Serving::new(role, leads, version.unwrap_or("?")))
        }
        (None, _) => Readiness::NotYet(text.lines().next().unwrap_or("it closed the connection").to_owned()),
    }
}

/// Returns the value of `forceSync`: whether a transaction is acknowledged only after its log is synced.
fn force_sync(setup: &NodeSetup) -> &'static str {
    if setup.syncs { "yes" } else { "no" }
}

fn jvm_flags(setup: &NodeSetup) -> Vec<String> {
    let mut flags: Vec<String> = JVM_FLAGS.iter().map(ToString::to_string).collect();
    if let Some(proxy) = setup.peer_proxy() {
        flags.push(format!("-DsocksProxyHost={}", proxy.ip()));
        flags.push(format!("-DsocksProxyPort={}", proxy.port()));
        // unset, or with any value, it would add loopback to the direct connections
        flags.push("-DsocksNonProxyHosts=".to_owned());
    }
    if setup.replaceable {
        flags.push(format!(
            "-Dzookeeper.DigestAuthenticationProvider.superDigest={}",
            super_digest(setup.in_virtual_time)
        ));
        // a container in the place of another one has another address
        flags.push("-Dsun.net.inetaddr.ttl=1".to_owned());
    }
    flags
}

/// Returns the settings of the port for TLS in place of the plain one; none without TLS. Servers connect to each other as
/// without. <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#Quorum+TLS>
fn tls_settings(setup: &NodeSetup, folder: &Path) -> Vec<String> {
    let Some(paths) = setup.tls_paths(folder) else {
        return Vec::new();
    };
    vec![
        format!("secureClientPort={}", setup.me().ports[0]),
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
        format!("ssl.keyStore.location={}", paths.key_and_certificate),
        "ssl.keyStore.type=PEM".to_owned(),
        format!("ssl.trustStore.location={}", paths.ca),
        "ssl.trustStore.type=PEM".to_owned(),
    ]
}

fn configuration(setup: &NodeSetup) -> String {
    let me = setup.me();
    let servers: String = setup.nodes.iter().map(|m| server_in(setup, m) + "\n").collect();
    let plain = format!("clientPort={}\nclientPortAddress={}", me.ports[0], setup.bind);
    let clients = match (setup.replaceable, &setup.tls) {
        // the lines of the servers have their ports
        (true, _) => "reconfigEnabled=true".to_owned(),
        (false, None) => plain,
        (false, Some(_)) => tls_settings(setup, &setup.data).join("\n"),
    };
    format!(
        "tickTime={tick}\ninitLimit={INIT_LIMIT}\nsyncLimit={SYNC_LIMIT}\ndataDir={data}\n{clients}\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n\
         standaloneEnabled=false\nforceSync={sync}\nmaxSessionTimeout={max}\n{servers}",
        sync = force_sync(setup),
        max = max_session_ms(setup.lease),
        tick = tick(setup.lease).as_millis(),
        data = setup.data.join("data").display(),
    )
}

/// Returns the jars of this machine: of a release that is unpacked under `ZOOKEEPER_HOME`, or of Debian's packages.
fn class_path() -> Option<String> {
    let home = std::env::var_os("ZOOKEEPER_HOME").map(PathBuf::from);
    let released = home.and_then(|home| class_path_of_release(&home));
    released.or_else(|| class_path_of_jars(&Path::new("/").join(DEBIAN_JARS)))
}

/// Returns the jars in a folder: of an unpacked release, of unpacked packages of Debian, or the latter's alone.
fn class_path_in(folder: &Path) -> Option<String> {
    class_path_of_release(folder)
        .or_else(|| class_path_of_jars(&folder.join(DEBIAN_JARS)))
        .or_else(|| class_path_of_jars(folder))
}

fn class_path_of_release(home: &Path) -> Option<String> {
    let lib = home.join("lib");
    let mut entries = std::fs::read_dir(lib).ok()?.flatten();
    let has_jars = entries.any(|entry| entry.path().extension().is_some_and(|extension| extension == "jar"));
    has_jars.then(|| format!("{0}/lib/*:{0}/*", home.display()))
}

fn class_path_of_jars(folder: &Path) -> Option<String> {
    let jars = [DEBIAN_JUTE, DEBIAN_JAR, DEBIAN_LOGGER, DEBIAN_NETTY_CODEC].map(|jar| folder.join(jar));
    let there = jars.iter().filter(|jar| jar.is_file());
    let there: Vec<String> = there.map(|jar| jar.display().to_string()).collect();
    folder.join(DEBIAN_JAR).is_file().then(|| there.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_quorum_is_not_serving() {
        let text = b"This ZooKeeper instance is not currently serving requests\n";
        assert!(matches!(answer(text, true), Readiness::NotYet(why) if why.contains("not currently serving")));
    }

    #[test]
    fn a_leader_tells_its_role_and_version() {
        let text = b"Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on 2022\nMode: leader\n";
        let serving = Serving::new("leader", true, "3.8.0");
        assert_eq!(answer(text, true), Readiness::Serving(serving));
        assert_eq!(answer(b"Zookeeper ver", false), Readiness::Unfinished);
    }

    #[test]
    fn the_shortest_session_is_well_below_the_lease() {
        for lease_ms in [1000, 2000, 30_000] {
            let lease = Duration::from_millis(lease_ms);
            assert!(2 * tick(lease) * 2 <= lease);
        }
    }
}
