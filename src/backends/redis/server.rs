//! Servers of Redis and Valkey: command line, container, and readiness by `INFO`.
//!
//! Settings: <https://redis.io/docs/latest/operate/oss_and_stack/management/config-file/>

use std::path::Path;

use harness_workloads::Login;

use super::control::RedisReplication;
use crate::backends::BackendOptions;
use crate::cluster::{
    CONTAINER_FOLDER, ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeSetup, Peering, ProbedServer,
    Readiness, ServerSoftware, ServerTlsPaths, Serving, lacks, missing_program, probe_by_bytes,
};

pub static SOFTWARE: ServerSoftware = PLAIN;

pub(super) const PROGRAM: &str = "redis-server";

/// Software of independent servers, or of a primary with a replica.
pub const PLAIN: ServerSoftware = ServerSoftware {
    backend: "redis",
    product: "Redis",
    nodes: 1,
    ports: &[6379],
    keeps_data: false,
    kill: KillSignal::Kill,
    stop: None,
    images: &[include_str!("image").trim_ascii(), "harness-redis:debian"],
    install_hint: "apt-get install redis-server (or put a redis-server binary on PATH)",
    files: &[],
    peering: Peering::Replication(&RedisReplication),
    missing: &|| missing_program(PROGRAM),
    launch: &|setup| launch(PROGRAM, setup),
    confined: true,
    container: &|setup| container(PROGRAM, setup),
    probe: &|server| Box::pin(probe_by_bytes(server, question, answer)),
    guard: LoginGuard::FromStart,
    first_connection: None,
    membership: None,
    upgrade: Ok(&KeptData {
        folders: &["/data"],
        missing: |folder| lacks(folder, &[PROGRAM]),
    }),
    speaks_tls: true,
};

/// Refuses a number of servers that is not the topology's, and a lock of a majority, which has masters of its own.
pub(super) fn refuse_in_topology(options: &BackendOptions, nodes: u32, is: &str, masters: &str) -> Option<String> {
    if let Some(recipe) = options.recipe.filter(|recipe| recipe.servers.is_some()) {
        return Some(format!(
            "{} is a lock on several independent masters, and {masters}\nhint: --recipe redis-set-px-lua",
            recipe.name
        ));
    }
    let given = options.nodes;
    (given != nodes).then(|| format!("--topology {is}, and --nodes is {given}\nhint: leave --nodes out"))
}

/// The file with its users, if it has any.
const USERS: &str = "users.conf";
/// Its path in a container.
const CONTAINER_USERS: &str = "/harness/users.conf";

/// Returns the local process of `program`: Redis, or a store with its settings and commands.
pub fn launch(program: &str, setup: &NodeSetup) -> Launch {
    let users = users(setup);
    // the file of settings comes before the others
    let file = users.as_ref().map(|_| setup.data.join(USERS).display().to_string());
    let mut args: Vec<String> = file.into_iter().collect();
    args.extend(arguments(setup, &setup.bind, &setup.data));
    args.extend(["--dir".to_owned(), setup.data.display().to_string()]);
    let users = users.map(|users| (USERS.to_owned(), users));
    Launch {
        program: setup.program(program),
        args,
        secrets: users.into_iter().chain(setup.tls_files()).collect(),
        ..Launch::default()
    }
}

pub fn container(program: &str, setup: &NodeSetup) -> ContainerSpec {
    let users = users(setup);
    let mut command = vec![program.to_owned()];
    command.extend(users.as_ref().map(|_| CONTAINER_USERS.to_owned()));
    command.extend(arguments(setup, "0.0.0.0", Path::new(CONTAINER_FOLDER)));
    let users = users.map(|users| (CONTAINER_USERS.to_owned(), users));
    ContainerSpec {
        command,
        files: users.into_iter().chain(setup.tls_files_of_container()).collect(),
        ..ContainerSpec::default()
    }
}

/// Returns the users of a server with a login, which is also that of its replicas.
/// <https://redis.io/docs/latest/operate/oss_and_stack/management/security/acl/>
fn users(setup: &NodeSetup) -> Option<String> {
    let Login { user, password } = setup.login.as_deref()?;
    Some(format!(
        "user default off\nuser {user} on >{password} ~* &* +@all\nmasteruser {user}\nmasterauth {password}\n"
    ))
}

fn question(server: &ProbedServer) -> Vec<u8> {
    let log_in = server.login.as_deref().map(|Login { user, password }| {
        let words = [user.as_str(), password];
        let [user, password] = words.map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*3\r\n$4\r\nAUTH\r\n{user}{password}")
    });
    (log_in.unwrap_or_default() + "INFO\r\n").into_bytes()
}

pub fn answer(bytes: &[u8], _: bool) -> Readiness {
    let text = String::from_utf8_lossy(bytes);
    // after a login, it is the second reply
    if let Some(error) = text.trim_start_matches("+OK\r\n").strip_prefix('-') {
        return Readiness::NotYet(error.trim().to_owned());
    }
    let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // the keyspace section is the last one
    match (after("role:"), version(after), text.contains("# Keyspace")) {
        (Some("slave"), _, true) if after("master_link_status:") != Some("up") => {
            Readiness::NotYet("it is not in sync with its master".into())
        }
        (Some("slave"), version, true) => serving("replica", version),
        (Some(role), version, true) => serving(role, version),
        _ => Readiness::Unfinished,
    }
}

/// Returns the version in an answer to `INFO`. A Valkey also has that of the Redis that it is compatible with.
pub(super) fn version<'a>(after: impl Fn(&str) -> Option<&'a str>) -> Option<&'a str> {
    after("valkey_version:").or_else(|| after("redis_version:"))
}

/// Returns forty hexadecimal digits, which identify a node for sentinels and the servers of a cluster.
pub(super) fn id(node: usize) -> String {
    format!("{:040x}", node + 1)
}

fn serving(role: &str, version: Option<&str>) -> Readiness {
    Readiness::Serving(Serving::new(role, role == "master", version.unwrap_or("?")))
}

/// Returns the settings: no persistence, so that the entries of a test end with the server, unless the disk or its content is the
/// subject of the run; then the log of appends, synced each second as its makers advise. The observer reads the keyspace events.
pub(super) fn settings(setup: &NodeSetup, bind: &str) -> [(&'static str, String); 10] {
    [
        ("--port", setup.me().ports[0].to_string()),
        ("--bind", bind.to_owned()),
        ("--save", String::new()),
        ("--appendonly", if setup.syncs { "yes" } else { "no" }.into()),
        ("--appendfsync", "everysec".into()),
        ("--daemonize", "no".into()),
        ("--protected-mode", "no".into()),
        ("--notify-keyspace-events", "Kg$x".into()),
        // a replica is in sync at once, not after five seconds
        ("--repl-diskless-sync-delay", "0".into()),
        ("--loglevel", "notice".into()),
    ]
}

/// Returns the settings of the port for TLS in place of the plain one, also between a primary and its replicas.
/// <https://redis.io/docs/latest/operate/oss_and_stack/management/security/encryption/>
fn tls_settings(setup: &NodeSetup, paths: ServerTlsPaths) -> [(&'static str, String); 7] {
    [
        ("--port", "0".to_owned()),
        ("--tls-port", setup.me().ports[0].to_string()),
        ("--tls-cert-file", paths.certificate),
        ("--tls-key-file", paths.key),
        ("--tls-ca-cert-file", paths.ca),
        ("--tls-auth-clients", "yes".to_owned()),
        ("--tls-replication", "yes".to_owned()),
    ]
}

/// Returns settings in the form of a command line.
pub(super) fn words<const N: usize>(settings: [(&'static str, String); N]) -> impl Iterator<Item = String> {
    settings.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value])
}

/// Returns the arguments. `folder` has the files of TLS.
fn arguments(setup: &NodeSetup, bind: &str, folder: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = words(settings(setup, bind)).collect();
    if let Some(tls) = setup.tls_paths(folder) {
        arguments.extend(words(tls_settings(setup, tls)));
    }
    // with peer proxies the first node is the primary of the others
    if let Some(primary) = setup.peer_proxy().filter(|_| setup.me > 0) {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        arguments.extend(["--replicaof".into(), host, port]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_loads_is_not_serving_and_one_with_a_role_is() {
        assert!(matches!(
            answer(b"-LOADING Redis is loading\r\n", false),
            Readiness::NotYet(_)
        ));
        let loads = b"+OK\r\n-LOADING Redis is loading\r\n";
        assert!(matches!(answer(loads, false), Readiness::NotYet(why) if why.starts_with("LOADING")));
        let refused =
            b"-WRONGPASS invalid username-password pair or user is disabled.\r\n-NOAUTH Authentication required.\r\n";
        assert!(matches!(answer(refused, false), Readiness::NotYet(why) if why.starts_with("WRONGPASS")));
        let late = b"$9\r\n# Server\r\nrole:slave\r\nmaster_link_status:down\r\n# Keyspace\r\n";
        assert!(matches!(answer(late, false), Readiness::NotYet(why) if why.contains("in sync")));
        let info = b"$9\r\n# Server\r\nredis_version:7.0.15\r\nrole:master\r\n# Keyspace\r\n";
        assert_eq!(answer(info, false), serving("master", Some("7.0.15")));
        let valkey = b"$9\r\n# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nrole:master\r\n# Keyspace\r\n";
        assert_eq!(answer(valkey, false), serving("master", Some("9.1.2")));
        assert_eq!(answer(b"$9\r\n# Server\r\nrole:mas", false), Readiness::Unfinished);
    }
}
