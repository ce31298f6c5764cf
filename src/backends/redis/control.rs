//! Control of Redis servers that replicate: `REPLICAOF` to promote and to follow, `KEYS`, and the replication offsets.
//!
//! <https://redis.io/docs/latest/operate/oss_and_stack/management/replication/>

use std::net::SocketAddr;

use super::connection::RespConnection;
use super::resp::RespValue;
use crate::cluster::{BoxFuture, Replication, ServerAccess};

pub struct RedisReplication;

impl Replication for RedisReplication {
    fn role_of_replica(&self) -> &'static str {
        "replica"
    }

    fn promote(&self, server: ServerAccess) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(replica_of(server, "NO".to_owned(), "ONE".to_owned()))
    }

    fn follow(&self, server: ServerAccess, primary: SocketAddr) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(replica_of(server, primary.ip().to_string(), primary.port().to_string()))
    }

    fn keys(&self, server: ServerAccess) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async move { Ok(RespConnection::open(&server).await?.ask(&["KEYS", "*"]).await?.texts()) })
    }

    fn written(&self, primary: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(offset(primary, "master_repl_offset:"))
    }

    fn applied(&self, replica: ServerAccess) -> BoxFuture<'_, Result<u64, String>> {
        Box::pin(offset(replica, "slave_repl_offset:"))
    }
}

async fn replica_of(server: ServerAccess, host: String, port: String) -> Result<(), String> {
    let mut connection = RespConnection::open(&server).await?;
    match connection.ask(&["REPLICAOF", &host, &port]).await? {
        RespValue::Text(text) if text.starts_with("OK") => Ok(()),
        other => Err(format!("it answered {other:?}")),
    }
}

async fn offset(server: ServerAccess, field: &str) -> Result<u64, String> {
    let mut connection = RespConnection::open(&server).await?;
    let text = connection.info(Some("replication")).await?;
    offset_in(&text, field).ok_or_else(|| format!("INFO has no {field}"))
}

fn offset_in(info: &str, field: &str) -> Option<u64> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_read_from_the_field_of_its_role() {
        let info = "# Replication\r\nrole:slave\r\nslave_repl_offset:42\r\nmaster_repl_offset:43\r\n";
        assert_eq!(offset_in(info, "slave_repl_offset:"), Some(42));
        assert_eq!(offset_in(info, "master_repl_offset:"), Some(43));
        assert_eq!(offset_in("role:master\r\n", "slave_repl_offset:"), None);
    }
}
