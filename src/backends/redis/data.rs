//! The data of Redis servers: all keys are removed from servers that harness started, those of one run from attached ones. An
//! attached replica, or a server of a Redis Cluster, is refused.

use std::time::Duration;

use super::connection::RespConnection;
use super::keyspace::{EVENTS, sends_events};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, counted, on_server};
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};
use crate::limits::{PROBE, SERVER_WORK};

pub struct RedisData;

impl StoredData for RedisData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        let servers = endpoints.borrow().accesses();
        Box::pin(async move {
            for server in servers {
                on_server(server.address, PROBE, wipe(&server)).await?;
            }
            Ok(())
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, _: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        let servers = endpoints.borrow().accesses();
        Box::pin(async move {
            let mut keys = 0;
            let mut found = StoreSurvey::default();
            for server in servers {
                let (held, blind) = on_server(server.address, SERVER_WORK, survey(&server)).await?;
                keys += held;
                found.blind = found.blind.or(blind);
            }
            found.holds = counted(keys, "key");
            Ok(found)
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        let servers = endpoints.borrow().accesses();
        Box::pin(async move {
            let mut removed = 0;
            for server in servers {
                removed += on_server(server.address, SERVER_WORK, remove(&server, &traces)).await?;
            }
            Ok(removed)
        })
    }
}

async fn wipe(server: &ServerAccess) -> Result<(), String> {
    let mut connection = RespConnection::open(server).await?;
    connection.ask(&["FLUSHALL"]).await?;
    // the next run would find the scripts of a client
    connection.ask(&["SCRIPT", "FLUSH"]).await.map(drop)
}

/// Returns the number of keys of all databases, and the reason for which no observer can watch them.
async fn survey(server: &ServerAccess) -> Result<(u64, Option<String>), String> {
    let mut connection = RespConnection::open(server).await?;
    let address = server.address;
    refuse_role(&mut connection).await?;
    let databases = databases(&mut connection).await?;
    let keys = databases.iter().map(|(_, keys)| keys).sum();
    let asked = connection.ask(&["CONFIG", "GET", "notify-keyspace-events"]).await;
    let setting = asked.map(|answer| answer.texts().into_iter().nth(1).unwrap_or_default());
    let blind = match setting {
        Ok(setting) if sends_events(&setting) => None,
        Ok(setting) => Some(format!(
            "{address} has notify-keyspace-events {setting:?}, and an observer needs {EVENTS:?} (redis-cli -h {} -p {} config set notify-keyspace-events {EVENTS})",
            address.ip(),
            address.port()
        )),
        Err(error) => Some(format!("{address} does not show its notify-keyspace-events: {error}")),
    };
    Ok((keys, blind))
}

/// Refuses a server that accepts no writes, or redirects clients to others.
async fn refuse_role(connection: &mut RespConnection) -> Result<(), String> {
    let text = connection.info(None).await?;
    match text.contains("role:slave") {
        true => Err("it is a replica, which takes no writes\nhint: name its master".into()),
        false if text.contains("cluster_enabled:1") => {
            Err("it belongs to a Redis Cluster, whose servers each have a part of the keys\nhint: attach a server with all keys, or start a cluster with --topology cluster".into())
        }
        false => Ok(()),
    }
}

/// Returns the numbers of the databases with keys, and of their keys: `db0:keys=12,expires=3,…`.
async fn databases(connection: &mut RespConnection) -> Result<Vec<(String, u64)>, String> {
    let text = connection.info(Some("keyspace")).await?;
    let lines = text.lines().filter_map(|line| {
        let (number, rest) = line.trim().strip_prefix("db")?.split_once(":keys=")?;
        Some((number.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    Ok(lines.collect())
}

/// Removes the run's keys of one server. It reads the keys in portions, so that no other client waits long for the server.
async fn remove(server: &ServerAccess, traces: &RunTraces) -> Result<u64, String> {
    let mut connection = RespConnection::open(server).await?;
    let mut removed = 0;
    for (database, _) in databases(&mut connection).await? {
        connection.ask(&["SELECT", &database]).await?;
        let pattern = format!("*{}*", traces.mark);
        for key in connection.scan(&pattern).await? {
            if traces.made(key.as_bytes()) {
                connection.ask(&["DEL", &key]).await?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
