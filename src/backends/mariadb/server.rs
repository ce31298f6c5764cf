//! MariaDB servers: command line, container, and readiness by logging in.
//!
//! Options: <https://mariadb.com/docs/server/server-management/starting-and-stopping-mariadb/mariadbd-options>

use std::net::SocketAddr;

use harness_workloads::Login;
use harness_workloads::mariadb::{MysqlConnection, MysqlError, literal};

use crate::backends::AS_USER;
use crate::cluster::{
    ContainerSpec, KeptData, KillSignal, Launch, LoginGuard, NodeSetup, Peering, ProbedServer, ServerSoftware, Serving,
    lacks, missing_program,
};
use crate::limits::PROBE;

pub static SOFTWARE: ServerSoftware = ServerSoftware {
    backend: "mariadb",
    product: "MariaDB",
    nodes: 1,
    ports: &[3306],
    keeps_data: true,
    kill: KillSignal::Kill,
    stop: None,
    images: &[include_str!("image").trim_ascii(), "harness-mariadb:debian"],
    install_hint: "apt-get install mariadb-server (or put mariadbd and mariadb-install-db on PATH)",
    files: &["users.sql"],
    peering: Peering::Direct,
    missing: &|| {
        let wanted = ["mariadbd", "mariadb-install-db"];
        wanted.into_iter().flat_map(missing_program).collect()
    },
    launch: &launch,
    confined: true,
    container: &container,
    probe: &|server| Box::pin(probe(server)),
    guard: LoginGuard::ByCommand(&|servers, login| {
        let address = servers.first().address;
        Box::pin(async move { guard(address, &login).await.map_err(|error| error.to_string()) })
    }),
    first_connection: None,
    membership: None,
    upgrade: Ok(&KeptData {
        folders: &["/var/lib/mysql"],
        missing: |folder| lacks(folder, &["mariadbd"]),
    }),
    speaks_tls: false,
};

/// Statements at each start: clients come from any address, as `root` without a password.
const USERS: &str = "CREATE USER IF NOT EXISTS root@'%';\nGRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;\n";

/// The user for the programs.
const USER: &str = "as=\nuser=mysql\n";

/// Makes the data if there are none and becomes the server. Each server needs its own `tmp`: a start removes the temporary tables of
/// the others.
const START: &str = r#"# in virtual time nobody else ends a wait in the kernel
aio=
[ -z "$HARNESS_VIRTUAL_TIME" ] || aio=--innodb-use-native-aio=0
data=$PWD/data
server=$0
install=$1
shift
if [ ! -e made ]; then
  rm -rf data tmp
  $as mkdir tmp || exit
  $as "$install" --no-defaults ${BASE:+"--basedir=$BASE"} --datadir="$data" --tmpdir="$PWD/tmp" \
    --auth-root-authentication-method=normal --skip-test-db \
    --skip-name-resolve --debug-no-sync --innodb-log-file-size=8M --innodb-autoextend-increment=1 $aio || exit
  $as touch made
fi
exec $as "$server" --no-defaults --datadir="$data" --tmpdir="$PWD/tmp" --init-file="$PWD/users.sql" \
  --pid-file="$PWD/pid" $aio "$@"
"#;

fn launch(setup: &NodeSetup) -> Launch {
    let server = setup.program("mariadbd");
    let mut args = vec![
        "-c".to_owned(),
        [USER, AS_USER, START].concat(),
        server.display().to_string(),
        // the folder of an upgrade may have the server alone: the data exist by then
        setup.program("mariadb-install-db").display().to_string(),
    ];
    args.extend(arguments(setup));
    // its messages and plugins are its own: `usr/share` of `usr/sbin/mariadbd`
    let base = setup.programs.as_ref().and_then(|_| server.parent()?.parent());
    let base = base.map(|base| base.display().to_string());
    args.extend(base.iter().map(|base| format!("--basedir={base}")));
    args.push(format!("--bind-address={}", setup.bind));
    // no socket in a shared folder
    args.push("--socket=".into());
    Launch {
        program: "/bin/sh".into(),
        args,
        env: base.map(|base| ("BASE".to_owned(), base)).into_iter().collect(),
        files: vec![("users.sql".into(), USERS.into())],
        ..Launch::default()
    }
}

fn container(setup: &NodeSetup) -> ContainerSpec {
    let mut command = vec!["mariadbd".to_owned()];
    command.extend(arguments(setup));
    ContainerSpec {
        env: vec![("MARIADB_ALLOW_EMPTY_ROOT_PASSWORD".into(), "1".into())],
        command,
        ..ContainerSpec::default()
    }
}

fn arguments(setup: &NodeSetup) -> Vec<String> {
    let port = format!("--port={}", setup.me().ports[0]);
    let settings = [
        port.as_str(),
        // for the most clients of a run, and the observer
        "--max-connections=600",
        "--skip-name-resolve",
        "--innodb-buffer-pool-size=16M",
        "--innodb-log-file-size=8M",
        "--performance-schema=OFF",
        // clients that are killed or cut off do not fill the log
        "--log-warnings=1",
        // the holders of locks, for the observer
        "--plugin-load-add=metadata_lock_info",
    ];
    let mut arguments: Vec<String> = settings.map(str::to_owned).into();
    if !setup.syncs {
        // written data survive the kill of the process, and no run outlives a crash of the machine
        arguments.push("--debug-no-sync".into());
    }
    arguments
}

/// Logs in as clients do.
async fn probe(server: ProbedServer) -> Result<Serving, String> {
    let asked = async {
        let stream = server.reach.connect(server.address).await?;
        match MysqlConnection::over(stream, server.login.as_deref()).await {
            Ok((connection, _)) => Ok(serving(connection.version())),
            // it requires another password, which it does when it serves
            Err(MysqlError::Refused { code: DENIED, .. }) => Ok(serving("?")),
            Err(error) => Err(error.to_string()),
        }
    };
    server.reach.clock.answer_within(PROBE, asked).await
}

/// Makes the only user who may log in, with all rights. `root` stays, since every start makes it if it is missing, and is locked.
async fn guard(address: SocketAddr, login: &Login) -> Result<(), MysqlError> {
    let mut connection = MysqlConnection::connect(address, None).await?;
    let user = format!("{}@'%'", literal(&login.user));
    let (password, own) = (literal(&login.password), literal(&login.user));
    for statement in [
        format!("CREATE USER {user} IDENTIFIED BY {password}"),
        format!("GRANT ALL PRIVILEGES ON *.* TO {user} WITH GRANT OPTION"),
    ] {
        connection.query(&statement).await?;
    }
    let others = format!(
        "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE User NOT IN ({own}, 'mariadb.sys') AND Host <> ''"
    );
    for row in connection.query(&others).await?.rows {
        let [Some(other)] = &row[..] else { continue };
        match connection.query(&format!("ALTER USER {other} ACCOUNT LOCK")).await {
            // at a host name, which no client has without name lookup
            Err(MysqlError::Refused { code: ABSENT, .. }) => {}
            locked => drop(locked?),
        }
    }
    Ok(())
}

/// The error for a user whom the server does not know.
const ABSENT: u16 = 1396;
/// The error for a user who may not log in.
const DENIED: u16 = 1045;

fn serving(version: &str) -> Serving {
    Serving::new("primary", true, plain_version(version))
}

/// Returns `10.11.6` of `5.5.5-10.11.6-MariaDB-0+deb12u1`: MariaDB adds a version before its own, for old clients.
fn plain_version(version: &str) -> &str {
    let own = version.strip_prefix("5.5.5-").unwrap_or(version);
    own.split('-').next().unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_servers_own() {
        assert_eq!(plain_version("5.5.5-10.11.6-MariaDB-0+deb12u1"), "10.11.6");
        assert_eq!(plain_version("11.8.3-MariaDB-ubu2404"), "11.8.3");
        assert_eq!(plain_version("8.4.6"), "8.4.6");
    }
}
