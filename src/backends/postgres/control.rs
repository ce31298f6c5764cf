//! Control of PostgreSQL servers that replicate: promotion, a copy of another primary, and the positions of their logs.
//!
//! <https://www.postgresql.org/docs/current/warm-standby.html>

use std::net::SocketAddr;

use harness_workloads::postgres::said;
use tokio_postgres::error::SqlState;

use super::looks::{connect, first_column};
use crate::cluster::{BoxFuture, Replication, ServerAccess};

pub struct PostgresReplication;

/// The leases of a server, which its rows replicate; an advisory lock exists on its own server alone.
const LEASES: &str = "SELECT name FROM harness_leases WHERE owner IS NOT NULL AND ends > clock_timestamp()";

impl Replication for PostgresReplication {
    fn role_of_replica(&self) -> &'static str {
        "standby"
    }

    fn not_in_containers(&self) -> Option<&'static str> {
        Some("a standby of PostgreSQL is a local process\nhint: --runtime local")
    }

    fn promote(&self, server: ServerAccess) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match first(&server, "SELECT pg_promote()").await?.as_deref() {
                Some("t") => Ok(()),
                _ => Err("it did not become the primary".to_owned()),
            }
        })
    }

    /// Makes a server follow another primary. One with writes that the new primary lacks needs a copy of the new primary's data.
    /// The script that started the server makes one after the server's end, from a file with the address of the primary.
    fn follow(&self, server: ServerAccess, primary: SocketAddr) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let leave_word = format!(
                "echo {} {} >../follow.new && mv ../follow.new ../follow",
                primary.ip(),
                primary.port()
            );
            let end = "(sleep 0.05; kill -QUIT $(head -n 1 postmaster.pid)) </dev/null >/dev/null 2>&1 &";
            let statement = format!("COPY (SELECT 1) TO PROGRAM '{leave_word} && {end}'");
            first(&server, &statement).await.map(drop)
        })
    }

    fn keys(&self, server: ServerAccess) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async move {
            let connection = connect(&server).await?;
            match connection.client.simple_query(LEASES).await {
                Ok(answered) => Ok(first_column(answered)),
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Ok(Vec::new()),
                Err(error) => Err(said(&error)),
            }
        })
    }

    fn written(&self, primary: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(position(primary, "pg_current_wal_lsn()"))
    }

    fn applied(&self, replica: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(position(replica, "pg_last_wal_replay_lsn()"))
    }
}

/// Returns the position of a log, in bytes.
async fn position(server: ServerAccess, of: &str) -> Result<u64, String> {
    let answer = first(&server, &format!("SELECT ({of} - '0/0')::bigint")).await?;
    let position = answer.and_then(|bytes| bytes.parse().ok());
    position.ok_or_else(|| format!("it does not know {of}"))
}

/// Returns the first value of a statement's answer.
async fn first(server: &ServerAccess, statement: &str) -> Result<Option<String>, String> {
    let answered = connect(server).await?.column(statement).await?;
    Ok(answered.into_iter().next())
}
