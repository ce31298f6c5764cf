//! NATS servers: configuration file, command line, container, and readiness by a request to JetStream's API.
//!
//! Settings: <https://docs.nats.io/running-a-nats-service/configuration>

use harness_workloads::Login;
use harness_workloads::nats::api::{self, BUCKET, StreamAnswer};
use harness_workloads::nats::{NatsGreeting, NatsReply, lone_answer, lone_request};

use super::bucket;
use crate::cluster::{
    CONTAINER_FOLDER, ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeSetup, Peering, ProbedServer,
    Readiness, ServerSoftware, Serving, lacks, missing_program, probe_by_bytes,
};

/// The index of the port for the connections between servers.
const ROUTE: usize = 1;
const CONFIGURATION: &str = "nats.conf";
/// The file with its users, if it has any.
const USERS: &str = "users.conf";
/// The folder of the data in a container.
const CONTAINER_DATA: &str = "/data";

pub static SOFTWARE: ServerSoftware = ServerSoftware {
    backend: "nats",
    product: "NATS",
    nodes: 3,
    ports: &[4222, 6222],
    keeps_data: true,
    kill: KillSignal::Kill,
    stop: None,
    images: &[include_str!("image").trim_ascii(), "harness-nats:debian"],
    install_hint: "apt-get install nats-server (or put a nats-server binary on PATH)",
    files: &[CONFIGURATION],
    peering: Peering::Dialled { port: ROUTE },
    missing: &|| missing_program("nats-server"),
    launch: &launch,
    confined: true,
    container: &container,
    probe: &|server| Box::pin(probe_by_bytes(server, question, answer)),
    guard: LoginGuard::FromStart,
    first_connection: None,
    membership: None,
    upgrade: Ok(&KeptData {
        folders: &[CONTAINER_DATA],
        missing: |folder| lacks(folder, &["nats-server"]),
    }),
    speaks_tls: false,
};

fn launch(setup: &NodeSetup) -> Launch {
    let file = setup.data.join(CONFIGURATION).display().to_string();
    let data = setup.data.join("data").display().to_string();
    let program = setup.find_program("nats-server");
    let users = users(setup).map(|users| (USERS.to_owned(), users));
    Launch {
        program: program.unwrap_or_else(|| "nats-server".into()),
        args: vec!["-c".into(), file],
        files: vec![(CONFIGURATION.into(), configuration(setup, &data))],
        secrets: users.into_iter().collect(),
        ..Launch::default()
    }
}

fn container(setup: &NodeSetup) -> ContainerSpec {
    let at = |file: &str| format!("{CONTAINER_FOLDER}/{file}");
    let configuration = configuration(setup, CONTAINER_DATA);
    let users = users(setup).map(|users| (at(USERS), users));
    ContainerSpec {
        command: vec!["-c".into(), at(CONFIGURATION)],
        files: users.into_iter().chain([(at(CONFIGURATION), configuration)]).collect(),
        ..ContainerSpec::default()
    }
}

/// Returns the configuration of the login.
fn users(setup: &NodeSetup) -> Option<String> {
    let Login { user, password } = setup.login.as_deref()?;
    Some(format!(
        "authorization {{ user: \"{user}\", password: \"{password}\" }}\n"
    ))
}

fn configuration(setup: &NodeSetup, data: &str) -> String {
    let (me, bind) = (setup.me(), &setup.bind);
    // by default it syncs every two minutes. Servers before 2.10 know no other way
    let sync = if setup.syncs { ", sync_interval: always" } else { "" };
    let mut text = format!(
        "server_name: {}\nlisten: \"{bind}:{}\"\njetstream {{ store_dir: \"{data}\", max_mem: 64MB, max_file: 256MB{sync} }}\n",
        me.name, me.ports[0]
    );
    if setup.login.is_some() {
        text += &format!("include '{USERS}'\n");
    }
    if setup.nodes.len() > 1 {
        // an unused address, for servers that learn of this one from others, if they are to dial the proxies alone
        let announced = match setup.peer_proxies.is_empty() {
            true => "",
            false => ", advertise: \"127.0.0.1:1\"",
        };
        text += &format!(
            "cluster {{ name: harness, listen: \"{bind}:{}\", no_advertise: true{announced}, routes: [{}] }}\n",
            me.ports[ROUTE],
            routes(setup)
        );
    }
    text
}

/// Returns the addresses at which this server dials the others.
fn routes(setup: &NodeSetup) -> String {
    let others = setup.nodes.iter().enumerate().filter(|(node, _)| *node != setup.me);
    let address = |(node, other): (usize, &crate::cluster::NodeAddress)| match setup.proxy_before(node) {
        Some(proxy) => format!("\"nats://{proxy}\""),
        None => format!("\"nats://{}:{}\"", other.host, other.ports[ROUTE]),
    };
    others.map(address).collect::<Vec<_>>().join(", ")
}

/// Returns the request for the state of the locks' bucket, or of the recipes' until it is known. It has an answer only after the
/// servers have elected its leader.
fn question(server: &ProbedServer) -> Vec<u8> {
    let named = server.keys.get().and_then(|keys| bucket(keys).ok());
    let asks = api::stream_state(&api::stream_of(named.unwrap_or(BUCKET)));
    let inbox = format!("_INBOX.harness.{}.{}", server.me, server.address.port());
    lone_request(&asks, server.login.as_deref(), &inbox)
}

fn answer(bytes: &[u8], _: bool) -> Readiness {
    match lone_answer(bytes) {
        Ok(Some((server, reply))) => serving(server, &reply),
        Err(why) => Readiness::NotYet(why),
        Ok(None) => Readiness::Unfinished,
    }
}

fn serving(server: NatsGreeting, reply: &NatsReply) -> Readiness {
    let stream = match api::answer::<StreamAnswer>(reply) {
        Ok(stream) => Some(stream),
        // no client has made the bucket
        Err(error) if error.is_no_stream() => None,
        Err(error) => return Readiness::NotYet(error.to_string()),
    };
    let leader = stream.and_then(|stream| stream.cluster).map(|cluster| cluster.leader);
    let (role, leads) = match (server.cluster, leader) {
        (None, _) => ("standalone", true),
        (Some(_), Some(leader)) if leader == server.server_name => ("leader", true),
        (Some(_), _) => ("follower", false),
    };
    Readiness::Serving(Serving::new(role, leads, &server.version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Node, probed};

    fn said(info: &str, payload: &str) -> Vec<u8> {
        format!("INFO {info}\r\nMSG i 1 {}\r\n{payload}\r\n", payload.len()).into_bytes()
    }

    const INFO: &str = r#"{"server_name":"n1","version":"2.10.27","cluster":"harness"}"#;

    fn role(bytes: &[u8]) -> Option<(String, bool)> {
        match answer(bytes, false) {
            Readiness::Serving(serving) => Some((serving.role, serving.leads)),
            _ => None,
        }
    }

    #[test]
    fn the_leader_is_the_server_that_leads_the_bucket() {
        let stream = |leader: &str| format!(r#"{{"config":{{"max_age":1}},"cluster":{{"leader":"{leader}"}}}}"#);
        assert_eq!(role(&said(INFO, &stream("n1"))), Some(("leader".into(), true)));
        assert_eq!(role(&said(INFO, &stream("n2"))), Some(("follower".into(), false)));
        let none = r#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        assert_eq!(role(&said(INFO, none)), Some(("follower".into(), false)));
        let alone = r#"{"server_name":"n1","version":"2.10.27"}"#;
        assert_eq!(role(&said(alone, none)), Some(("standalone".into(), true)));
    }

    #[test]
    fn servers_are_asked_for_the_bucket_of_the_locks_once_it_is_known() {
        let node = Node {
            name: "n1".into(),
            address: ([127, 0, 0, 1], 4222).into(),
            log: "log".into(),
            peer_proxy: None,
        };
        let servers = probed(&[node], &[], None);
        let asks_for = |stream: &str| {
            let bytes = String::from_utf8(question(&servers[0])).unwrap();
            assert!(bytes.contains(&format!("$JS.API.STREAM.INFO.{stream} ")), "{bytes}");
        };
        asks_for("KV_harness");
        servers[0].set_key_prefix("jobs/locks.");
        asks_for("KV_jobs");
    }

    #[test]
    fn servers_without_a_leader_do_not_serve() {
        let unavailable =
            r#"{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}"#;
        let bytes = said(INFO, unavailable);
        assert!(matches!(answer(&bytes, false), Readiness::NotYet(why) if why.contains("unavailable")));
        assert_eq!(answer(&bytes[..40], false), Readiness::Unfinished);
    }

    #[test]
    fn servers_dial_each_other_where_they_are_told() {
        let plain = NodeSetup::of_test(3, &[4000, 6000], 1);
        let text = configuration(&plain, "/data");
        let routes = r#"routes: ["nats://127.0.0.1:6001", "nats://127.0.0.1:6003"]"#;
        assert!(text.contains(routes), "{text}");
        assert!(!text.contains("advertise: \"") && !text.contains("sync"), "{text}");
        let proxied = NodeSetup {
            peer_proxies: (1..=6).map(|port| ([127, 0, 0, 1], 40_000 + port).into()).collect(),
            syncs: true,
            ..plain
        };
        let text = configuration(&proxied, "/data");
        let routes = r#"routes: ["nats://127.0.0.1:40003", "nats://127.0.0.1:40004"]"#;
        for part in [routes, "advertise: \"", "sync_interval: always"] {
            assert!(text.contains(part), "{text}");
        }
        let alone = NodeSetup::of_test(1, &[4000, 6000], 0);
        assert!(!configuration(&alone, "/data").contains("cluster"));
    }
}
