//! PostgreSQL servers: command line, container, and readiness by the answer to a start-up message.
//!
//! Messages: <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::path::PathBuf;
use std::sync::Arc;

use harness_workloads::Login;
use nix::sys::signal::Signal;
use tokio::time::sleep;

use super::control::PostgresReplication;
use super::looks::connect;
use crate::backends::AS_USER;
use crate::cluster::{
    ContainerSpec, KillSignal, Launch, LoginGuard, NodeSetup, Peering, ProbedServer, Readiness, ServerAccess,
    ServerSoftware, Serving, find_program, probe_by_bytes,
};
use crate::limits::READY_POLL;

pub static SOFTWARE: ServerSoftware = ServerSoftware {
    backend: "postgres",
    product: "PostgreSQL",
    nodes: 1,
    ports: &[5432],
    keeps_data: true,
    kill: KillSignal::Kill,
    // an immediate shutdown, without which a segment of shared memory stays
    stop: Some(Signal::SIGQUIT),
    images: &[include_str!("image").trim_ascii(), "harness-postgres:debian"],
    install_hint: "apt-get install postgresql (or put initdb and postgres on PATH)",
    files: &[],
    peering: Peering::Replication(&PostgresReplication),
    missing: &|| programs().map_or(vec!["postgres".to_owned()], |_| Vec::new()),
    launch: &launch,
    confined: true,
    container: &container,
    probe: &|server| Box::pin(probe_by_bytes(server, question, answer)),
    guard: LoginGuard::ByCommand(&|servers, login| Box::pin(guard(servers.first(), login))),
    first_connection: None,
    membership: None,
    upgrade: Err("its data belong to one major version, and pg_upgrade converts them only while no server runs"),
    speaks_tls: false,
};

/// Returns the folder with the programs of the server: Debian has one for each version, outside of PATH.
fn programs() -> Option<PathBuf> {
    // the others are beside the real file
    if let Some(program) = find_program("postgres").and_then(|program| program.canonicalize().ok()) {
        return program.parent().map(PathBuf::from);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let newest = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let folder = version.path().join("bin");
        folder.join("postgres").is_file().then_some((number, folder))
    });
    newest.max().map(|(_, folder)| folder)
}

/// The user for the programs.
const USER: &str = r#"as="setpriv --pdeathsig=KILL"
user=postgres
"#;

/// Makes the data if there are none.
const MAKE: &str = r#"[ -s data/PG_VERSION ] ||
  $as "$0/initdb" --auth=trust --username=postgres --encoding=UTF8 --no-locale --no-sync -D data || exit
# in virtual time its clients have addresses of their own
[ -z "$HARNESS_VIRTUAL_TIME" ] || echo "host all all all trust" >>data/pg_hba.conf
"#;

/// Becomes the server.
const START: &str = r#"exec $as "$0/postgres" -D data "$@"
"#;

/// The step before it for a standby: a copy of the data of the primary at the host and port in `FOLLOW`.
const COPY: &str = r#"copy() {
  while rm -rf data; do
    $as "$0/pg_basebackup" --host="$1" --port="$2" --username=postgres --pgdata=data --wal-method=stream \
      --checkpoint=fast --write-recovery-conf --no-sync --no-password && return
    sleep 0.1
  done
}
[ -z "$FOLLOW" ] || [ -s data/PG_VERSION ] || copy $FOLLOW
"#;

/// Runs the server, and again on a copy of another primary's data, if a file has its address when the server ends.
const START_REPLICATED: &str = r#"while true; do
  $as "$0/postgres" -D data "$@" &
  server=$!
  trap 'kill -QUIT $server' QUIT
  while kill -0 $server 2>/dev/null; do
    wait $server
    status=$?
  done
  [ -s follow ] || exit $status
  read -r host port <follow
  rm follow
  copy "$host" "$port"
done
"#;

fn launch(setup: &NodeSetup) -> Launch {
    let folder_of = |program: PathBuf| program.parent().map(PathBuf::from);
    let folder = match &setup.programs {
        Some(_) => setup.find_program("postgres").and_then(folder_of),
        None => programs(),
    };
    let folder = folder.unwrap_or_default().display().to_string();
    let primary = setup.peer_proxy();
    let script = match primary {
        None => [USER, AS_USER, MAKE, START].concat(),
        Some(_) => [USER, AS_USER, COPY, MAKE, START_REPLICATED].concat(),
    };
    let follow = primary.filter(|_| setup.me > 0);
    let env = follow.map(|primary| ("FOLLOW".to_owned(), format!("{} {}", primary.ip(), primary.port())));
    let mut args = vec!["-c".to_owned(), script, folder];
    args.extend(arguments(setup, &setup.bind));
    // no socket in a shared folder
    args.extend(["-c".to_owned(), "unix_socket_directories=".to_owned()]);
    Launch {
        program: "/bin/sh".into(),
        args,
        env: env.into_iter().collect(),
        ..Launch::default()
    }
}

fn container(setup: &NodeSetup) -> ContainerSpec {
    let mut command = vec!["postgres".to_owned()];
    command.extend(arguments(setup, "*"));
    ContainerSpec {
        env: vec![("POSTGRES_HOST_AUTH_METHOD".into(), "trust".into())],
        command,
        ..ContainerSpec::default()
    }
}

fn arguments(setup: &NodeSetup, bind: &str) -> Vec<String> {
    let settings = [
        ("listen_addresses", bind.to_owned()),
        ("port", setup.me().ports[0].to_string()),
        // for the most clients of a run, and the observer
        ("max_connections", "600".into()),
        // a standby whose link was cut connects again at once
        ("wal_retrieve_retry_interval", "100ms".into()),
        // in its own folder, which is removed with it
        ("dynamic_shared_memory_type", "mmap".into()),
        // with the session's name, which is the owner for clients and the observer
        ("log_line_prefix", "%m [%p] %c ".into()),
    ];
    let words = settings.map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
    words.into_iter().flatten().collect()
}

/// Makes the only user who may log in, with all rights, and makes the server require a password from everyone.
async fn guard(server: ServerAccess, login: Arc<Login>) -> Result<(), String> {
    let server = ServerAccess { login: None, ..server };
    let connection = connect(&server).await?;
    // neither has a character that would end its quotes
    let Login { user, password } = &*login;
    let file = connection.column("SHOW hba_file").await?.concat().replace('\'', "''");
    let statements = [
        format!("CREATE ROLE \"{user}\" SUPERUSER LOGIN PASSWORD '{password}'"),
        format!("COPY (SELECT 'host all all all scram-sha-256') TO '{file}'"),
        "SELECT pg_reload_conf()".to_owned(),
    ];
    for statement in statements {
        connection.column(&statement).await?;
    }
    // it reads the file a moment later
    while connect(&server).await.is_ok() {
        sleep(READY_POLL).await;
    }
    Ok(())
}

/// Returns a start-up message of protocol 3.0.
fn question(_: &ProbedServer) -> Vec<u8> {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let mut message = (8 + parameters.len() as u32).to_be_bytes().to_vec();
    message.extend(196_608_u32.to_be_bytes());
    message.extend(parameters);
    message
}

fn answer(bytes: &[u8], _: bool) -> Readiness {
    let mut serving = Serving::new("primary", true, "?");
    let mut rest = bytes;
    while let Some((kind, body, after)) = message(rest) {
        let texts: Vec<_> = body.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        match (kind, &texts[..]) {
            // it requires a password, which it does when it serves
            (b'R', _) if !body.starts_with(&[0; 4]) => return Readiness::Serving(serving),
            (b'E', fields) => {
                let said = fields.iter().find_map(|field| field.strip_prefix('M'));
                return Readiness::NotYet(said.unwrap_or("it refuses").to_owned());
            }
            (b'S', [name, value, ..]) if name == "server_version" => {
                // `15.8 (Debian 15.8-0+deb12u1)`
                serving.version = value.split(' ').next().unwrap_or_default().to_owned();
            }
            (b'S', [name, value, ..]) if name == "in_hot_standby" && value == "on" => {
                serving.role = "standby".into();
                serving.leads = false;
            }
            (b'Z', _) => return Readiness::Serving(serving),
            _ => {}
        }
        rest = after;
    }
    Readiness::Unfinished
}

/// Returns the kind and the content of the first whole message, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let length = u32::from_be_bytes(rest.first_chunk().copied()?) as usize;
    let (whole, after) = rest.split_at_checked(length.max(4))?;
    Some((*kind, &whole[4..], after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(messages: &[(u8, &[u8])]) -> Vec<u8> {
        let each = messages.iter().flat_map(|(kind, body)| {
            let length = (4 + body.len() as u32).to_be_bytes();
            [&[*kind][..], &length, body].concat()
        });
        each.collect()
    }

    #[test]
    fn a_server_serves_when_it_is_ready_for_a_query() {
        let version = (b'S', &b"server_version\x0015.8 (Debian 15.8-0)\0"[..]);
        let serves = said(&[(b'R', &[0; 4]), version, (b'Z', b"I")]);
        let serving = |role: &str| Readiness::Serving(Serving::new(role, role == "primary", "15.8"));
        assert_eq!(answer(&serves, false), serving("primary"));
        assert_eq!(answer(&serves[..serves.len() - 2], false), Readiness::Unfinished);
        let standby = said(&[(b'R', &[0; 4]), version, (b'S', b"in_hot_standby\0on\0"), (b'Z', b"I")]);
        assert_eq!(answer(&standby, false), serving("standby"));
    }

    #[test]
    fn a_server_that_starts_up_says_so() {
        let starts = said(&[(b'E', b"SFATAL\0C57P03\0Mthe database system is starting up\0\0")]);
        let not_yet = Readiness::NotYet("the database system is starting up".into());
        assert_eq!(answer(&starts, true), not_yet);
    }
}
