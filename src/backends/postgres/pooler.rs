//! PgBouncer in front of a PostgreSQL server, pooling transactions: each goes to whichever session of the server is free.
//!
//! <https://www.pgbouncer.org/features.html>: what belongs to a session, as an advisory lock does, is not its client's there.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::backends::{RunningPooler, TransactionPooler};
use crate::cluster::{BoxFuture, find_program};
use crate::limits::PROBE;
use crate::process;

/// Between two looks whether it listens.
const LOOK: Duration = Duration::from_millis(10);

/// It refuses to run as root, as PostgreSQL does.
const START: &str = r#"as=
if [ "$(id -u)" = 0 ]; then
  user=postgres
  id -u "$user" >/dev/null 2>&1 || user=nobody
  as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups --pdeathsig=KILL"
fi
exec $as "$0" "$1"
"#;

pub struct PgBouncer;

impl TransactionPooler for PgBouncer {
    fn missing(&self) -> Option<&'static str> {
        let hint = "there is no pgbouncer on this machine\nhint: apt-get install pgbouncer";
        program().is_none().then_some(hint)
    }

    fn start(&self, server: SocketAddr) -> BoxFuture<'static, Result<Box<dyn RunningPooler>, String>> {
        Box::pin(async move {
            let started = start(server).await;
            started.map(|pooler| Box::new(pooler) as Box<dyn RunningPooler>)
        })
    }
}

/// Debian keeps it with the programs of the system.
fn program() -> Option<PathBuf> {
    find_program("pgbouncer").or_else(|| Some(PathBuf::from("/usr/sbin/pgbouncer")).filter(|path| path.is_file()))
}

/// Its configuration, which it reads once.
struct ConfigFile(PathBuf);

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

async fn start(server: SocketAddr) -> Result<PoolerProcess, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| error.to_string())?;
    let file = std::env::temp_dir().join(format!("harness-pooler-{}-{}", std::process::id(), address.port()));
    let text = format!(
        "[databases]\n* = host={} port={} user=postgres\n[pgbouncer]\nlisten_addr={}\nlisten_port={}\nunix_socket_dir=\n\
         auth_type=any\npool_mode=transaction\nmax_client_conn=1000\nignore_startup_parameters=extra_float_digits\n",
        server.ip(),
        server.port(),
        address.ip(),
        address.port()
    );
    let file = ConfigFile(file);
    std::fs::write(&file.0, text).map_err(|error| error.to_string())?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", START])
        .arg(program().unwrap_or_default())
        .arg(&file.0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = process::spawn(command).await.map_err(|error| error.to_string())?;
    let pooler = PoolerProcess { address, _child: child };
    let listens = async {
        while TcpStream::connect(address).await.is_err() {
            sleep(LOOK).await;
        }
    };
    let listens = timeout(PROBE, listens).await;
    listens.map(|()| pooler).map_err(|_| "it does not listen".to_owned())
}

/// A PgBouncer that runs until this is dropped.
struct PoolerProcess {
    address: SocketAddr,
    _child: Child,
}

impl RunningPooler for PoolerProcess {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn transactions(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move { timeout(PROBE, pooled(self.address)).await.ok().flatten().unwrap_or(0) })
    }
}

/// How many transactions it led to the server, as its console says.
async fn pooled(address: SocketAddr) -> Option<u64> {
    let stream = TcpStream::connect(address).await.ok()?;
    let mut config = tokio_postgres::Config::new();
    config.user("pgbouncer").dbname("pgbouncer");
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
