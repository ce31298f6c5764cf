//! etcd servers: command line, container, and readiness by the maintenance status of the JSON gateway.
//!
//! Settings: <https://etcd.io/docs/v3.5/op-guide/configuration/>

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::guard::guard;
use super::membership::{EtcdMembership, peer_url};
use crate::cluster::{
    CONTAINER_FOLDER, ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeAddress, NodeSetup, Peering,
    ProbedServer, Readiness, ServerSoftware, Serving, lacks, missing_program, probe_by_bytes,
};

const HEARTBEAT: Duration = Duration::from_millis(100);
const ELECTION_TIMEOUT: Duration = Duration::from_millis(1000);
/// The folder of the data in a container.
const CONTAINER_DATA: &str = "/tmp/etcd-data";

pub static SOFTWARE: ServerSoftware = ServerSoftware {
    backend: "etcd",
    product: "etcd",
    nodes: 3,
    ports: &[2379, 2380],
    keeps_data: true,
    kill: KillSignal::Kill,
    stop: None,
    images: &[include_str!("image").trim_ascii(), "harness-etcd:debian"],
    install_hint: "apt-get install etcd-server (or put an etcd binary on PATH)",
    files: &[],
    peering: Peering::Socks,
    missing: &|| missing_program("etcd"),
    launch: &launch,
    confined: true,
    container: &container,
    probe: &|server| Box::pin(probe_by_bytes(server, question, answer)),
    guard: LoginGuard::ByCommand(&|servers, login| Box::pin(guard(servers, login))),
    first_connection: None,
    membership: Some(&EtcdMembership),
    upgrade: Ok(&KeptData {
        folders: &[CONTAINER_DATA],
        missing: |folder| lacks(folder, &["etcd"]),
    }),
    speaks_tls: true,
};

fn launch(setup: &NodeSetup) -> Launch {
    // etcd refuses processors that it does not list; the flag is harmless elsewhere
    let mut env = vec![("ETCD_UNSUPPORTED_ARCH".to_owned(), "arm64".to_owned())];
    env.extend(proxy_environment(setup));
    let data = setup.data.join("data").display().to_string();
    Launch {
        program: setup.program("etcd"),
        args: arguments(setup, &setup.bind, &data, &setup.data),
        env,
        secrets: setup.tls_files(),
        ..Launch::default()
    }
}

fn container(setup: &NodeSetup) -> ContainerSpec {
    let mut command = vec!["etcd".to_owned()];
    command.extend(arguments(setup, "0.0.0.0", CONTAINER_DATA, Path::new(CONTAINER_FOLDER)));
    ContainerSpec {
        env: proxy_environment(setup),
        command,
        files: setup.tls_files_of_container(),
    }
}

fn question(server: &ProbedServer) -> Vec<u8> {
    let at = server.address;
    format!(
        "POST /v3/maintenance/status HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
         Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    .into_bytes()
}

fn answer(bytes: &[u8], closed: bool) -> Readiness {
    if !closed {
        return Readiness::Unfinished;
    }
    let text = String::from_utf8_lossy(bytes);
    let body = text.find('{').and_then(|start| Some(&text[start..=text.rfind('}')?]));
    match body.map(serde_json::from_str::<Value>) {
        Some(Ok(status)) => readiness(&status),
        _ => Readiness::NotYet(text.lines().next().unwrap_or("it closed the connection").to_owned()),
    }
}

/// Returns the readiness by the answer of `/v3/maintenance/status`, in which numbers come as strings.
fn readiness(status: &Value) -> Readiness {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (error, leader) = (text(&status["error"]), text(&status["leader"]));
    if !error.is_empty() {
        return Readiness::NotYet(error);
    }
    if leader.is_empty() || leader == "0" {
        return Readiness::NotYet("it knows no leader".into());
    }
    let leads = leader == text(&status["header"]["member_id"]);
    let role = if leads { "leader" } else { "follower" };
    Readiness::Serving(Serving::new(role, leads, &text(&status["version"])))
}

/// Returns the environment for connections to its peers through the peer proxy. It sends nothing else by plain HTTP.
fn proxy_environment(setup: &NodeSetup) -> Vec<(String, String)> {
    let Some(proxy) = setup.peer_proxy() else {
        return Vec::new();
    };
    let variables = [
        ("HTTP_PROXY", format!("socks5://{proxy}")),
        // the exceptions of this machine's user would bypass the proxy
        ("NO_PROXY", String::new()),
        ("no_proxy", String::new()),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the arguments. `folder` has the files of TLS, which is for clients alone: connections between servers are as without.
fn arguments(setup: &NodeSetup, bind: &str, data: &str, folder: &Path) -> Vec<String> {
    let me = setup.me();
    let scheme = if setup.tls.is_some() { "https" } else { "http" };
    let peer = |node: &NodeAddress| peer_url(node, setup.peer_proxy().is_some());
    let state = if setup.joins { "existing" } else { "new" };
    let cluster = setup.nodes.iter();
    let cluster: Vec<String> = cluster.map(|node| format!("{}={}", node.name, peer(node))).collect();
    let settings = [
        ("--name", me.name.clone()),
        ("--data-dir", data.to_owned()),
        ("--listen-client-urls", format!("{scheme}://{bind}:{}", me.ports[0])),
        (
            "--advertise-client-urls",
            format!("{scheme}://{}:{}", me.host, me.ports[0]),
        ),
        ("--listen-peer-urls", format!("http://{bind}:{}", me.ports[1])),
        ("--initial-advertise-peer-urls", peer(me)),
        ("--initial-cluster", cluster.join(",")),
        ("--initial-cluster-state", state.into()),
        ("--heartbeat-interval", HEARTBEAT.as_millis().to_string()),
        ("--election-timeout", ELECTION_TIMEOUT.as_millis().to_string()),
        ("--log-level", "warn".into()),
        ("--logger", "zap".into()),
    ];
    // a random password needs no slow hash
    let login = setup.login.iter().map(|_| ("--bcrypt-cost", "4".to_owned()));
    let tls = setup.tls_paths(folder).into_iter().flat_map(|paths| {
        [
            ("--cert-file", paths.certificate),
            ("--key-file", paths.key),
            ("--trusted-ca-file", paths.ca),
        ]
    });
    let flags = settings.into_iter().chain(login).chain(tls);
    let words = flags.flat_map(|(flag, value)| [flag.to_owned(), value]);
    let of_clients = setup.tls.iter().map(|_| "--client-cert-auth".to_owned());
    words.chain(of_clients).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: &str =
        "HTTP/1.1 200 OK\r\n\r\n{\"header\":{\"member_id\":\"7\"},\"version\":\"3.4.23\",\"leader\":\"7\"}";

    #[test]
    fn a_leader_is_the_member_whose_id_leads() {
        let serving = Serving::new("leader", true, "3.4.23");
        assert_eq!(answer(LEADER.as_bytes(), true), Readiness::Serving(serving));
    }

    #[test]
    fn a_member_without_a_leader_does_not_serve() {
        let without = LEADER.replace("\"leader\":\"7\"", "\"raftTerm\":\"2\"");
        let not_yet = Readiness::NotYet("it knows no leader".into());
        assert_eq!(answer(without.as_bytes(), true), not_yet);
    }
}
