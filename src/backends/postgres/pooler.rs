//! The pooler PgBouncer in front of a PostgreSQL server, for transactions: each uses any free session of the server.
//!
//! <https://www.pgbouncer.org/features.html>: a session's state, such as an advisory lock, is not its client's there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::Login;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::backends::AS_USER;
use crate::cluster::leftovers::claim::Claim;
use crate::cluster::{ServerAccess, find_on_machine, free_address, write_secret};
use crate::limits::PROBE;
use crate::process;

/// The time between two checks whether it listens.
const LOOK: Duration = Duration::from_millis(10);

/// The user for PgBouncer, which refuses to run as root, as PostgreSQL does.
const USER: &str = "as=\nuser=postgres\n";
/// Gives its files to that user, and becomes it.
const START: &str = r#"[ -z "$as" ] || chown "$user" "$1" "$2" || exit
exec $as "$0" "$1"
"#;

/// Returns a sentence, with a hint, if it cannot be started on this machine.
pub fn missing() -> Option<&'static str> {
    let hint = "there is no pgbouncer on this machine\nhint: apt-get install pgbouncer";
    find_on_machine("pgbouncer").is_none().then_some(hint)
}

/// Returns the settings of a pooler's logins, and its file of users.
fn users(file: &Path, login: Option<&Login>) -> (String, String) {
    match login {
        None => ("auth_type=any".to_owned(), String::new()),
        Some(Login { user, password }) => (
            format!(
                "auth_type=scram-sha-256\nauth_file={}\nstats_users={user}",
                file.display()
            ),
            format!("\"{user}\" \"{password}\"\n"),
        ),
    }
}

/// Starts one in front of a server, with the server's login. The error is a sentence.
pub async fn start(server: &ServerAccess) -> Result<PoolerProcess, String> {
    let address = free_address().map_err(|error| error.to_string())?;
    // its files, which it reads once
    let claim = Claim::make("pooler").map_err(|error| error.to_string())?;
    let folder = claim.folder().join("pgbouncer");
    let [file, users_file] = ["pgbouncer.ini", "users.txt"].map(|name| folder.join(name));
    let (log_in, users) = users(&users_file, server.login());
    let (ip, port) = (server.address.ip(), server.address.port());
    let user = server
        .login()
        .map_or("user=postgres".to_owned(), |Login { user, password }| {
            format!("user={user} password={password}")
        });
    let text = format!(
        "[databases]\n* = host={ip} port={port} {user}\n[pgbouncer]\nlisten_addr={}\nlisten_port={}\nunix_socket_dir=\n\
         {log_in}\npool_mode=transaction\nmax_client_conn=1000\nignore_startup_parameters=extra_float_digits\n",
        address.ip(),
        address.port()
    );
    for (path, text) in [(&file, &text), (&users_file, &users)] {
        write_secret(path, text).map_err(|error| error.to_string())?;
    }
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg([USER, AS_USER, START].concat())
        .arg(find_on_machine("pgbouncer").unwrap_or_default())
        .args([&file, &users_file])
        .current_dir(&folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = process::spawn(command).await.map_err(|error| error.to_string())?;
    let pooler = PoolerProcess {
        address,
        login: server.login.clone(),
        _child: child,
    };
    let clock = server.clock();
    let connect = || TcpStream::connect(address);
    let listens = clock.try_until(clock.after(PROBE), LOOK, connect).await;
    listens.map(|_| pooler).map_err(|_| "it does not listen".to_owned())
}

/// A running PgBouncer. Dropping it ends it.
pub struct PoolerProcess {
    /// The address for clients.
    pub address: SocketAddr,
    /// The login of the server and of its clients.
    login: Option<Arc<Login>>,
    _child: Child,
}

impl PoolerProcess {
    /// Returns the number of transactions that it passed to the server.
    pub async fn transactions(&self) -> u64 {
        let counted = timeout(PROBE, pooled(self.address, self.login.as_deref())).await;
        counted.ok().flatten().unwrap_or(0)
    }
}

/// Returns that number from its console.
async fn pooled(address: SocketAddr, login: Option<&Login>) -> Option<u64> {
    let stream = TcpStream::connect(address).await.ok()?;
    let mut config = tokio_postgres::Config::new();
    config.user("pgbouncer").dbname("pgbouncer");
    if let Some(Login { user, password }) = login {
        config.user(user).password(password);
    }
    let (client, connection) = config.connect_raw(stream, NoTls).await.ok()?;
    let task = tokio::spawn(connection);
    let rows = client.simple_query("SHOW STATS_TOTALS").await;
    task.abort();
    let counts = rows.ok()?.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.get("database") != Some("pgbouncer") => {
            row.get("xact_count")?.parse::<u64>().ok()
        }
        _ => None,
    });
    Some(counts.sum())
}
