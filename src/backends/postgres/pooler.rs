//! The pooler PgBouncer in front of a PostgreSQL server, for transactions: each uses any free session of the server.
//!
//! <https://www.pgbouncer.org/features.html>: a session's state, such as an advisory lock, is not its client's there.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::Login;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::cluster::{ServerAccess, find_on_machine, free_address};
use crate::limits::PROBE;
use crate::process;

/// The time between two checks whether it listens.
const LOOK: Duration = Duration::from_millis(10);

/// The start of PgBouncer, which refuses to run as root, as PostgreSQL does.
const START: &str = r#"as=
if [ "$(id -u)" = 0 ]; then
  user=postgres
  id -u "$user" >/dev/null 2>&1 || user=nobody
  chown "$user" "$1" ${2:+"$2"} || exit
  as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups --pdeathsig=KILL"
fi
exec $as "$0" "$1"
"#;

/// Returns a sentence, with a hint, if it cannot be started on this machine.
pub fn missing() -> Option<&'static str> {
    let hint = "there is no pgbouncer on this machine\nhint: apt-get install pgbouncer";
    find_on_machine("pgbouncer").is_none().then_some(hint)
}

/// A file with its configuration or its users, which it reads once and other users may not read.
struct ConfigFile(PathBuf);

impl ConfigFile {
    fn write(path: PathBuf, text: &str) -> Result<Self, String> {
        let file = ConfigFile(path);
        let opened = File::options().write(true).create_new(true).mode(0o600).open(&file.0);
        let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
        written.map(|()| file).map_err(|error| error.to_string())
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
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
    let file = std::env::temp_dir().join(format!("harness-pooler-{}-{}", std::process::id(), address.port()));
    let users_file = file.with_extension("users");
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
    let file = ConfigFile::write(file, &text)?;
    let users = match users.is_empty() {
        true => None,
        false => Some(ConfigFile::write(users_file, &users)?),
    };
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", START])
        .arg(find_on_machine("pgbouncer").unwrap_or_default())
        .arg(&file.0)
        .args(users.iter().map(|users| &users.0));
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
