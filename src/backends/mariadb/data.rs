//! The data on MariaDB and MySQL servers: databases that are not the server's own, and their tables.

use std::time::Duration;

use harness_workloads::mariadb::{LEASES, MysqlConnection, database, identifier, leases, literal};

use super::looks::LockView;
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, named, on_first};
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};

/// The databases of the server itself, as a list for a statement.
const SYSTEM: &str = "('mysql', 'sys', 'information_schema', 'performance_schema')";
/// The error for a connection that has ended already.
const NO_SUCH_CONNECTION: u16 = 1094;

pub struct MariadbData;

impl StoredData for MariadbData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        on_first(&endpoints, move |server| async move {
            let mut connection = connect(&server).await?;
            // sessions of ended clients may not have ended
            let others = "SELECT ID FROM information_schema.PROCESSLIST \
                          WHERE ID <> CONNECTION_ID() AND USER NOT IN ('system user', 'event_scheduler')";
            for session in ask(&mut connection, others).await? {
                match connection.query(&format!("KILL {session}")).await {
                    Err(error) if error.code() != Some(NO_SUCH_CONNECTION) => return Err(error.to_string()),
                    _ => {}
                }
            }
            for database in databases(&mut connection).await? {
                let drop = format!("DROP DATABASE IF EXISTS {}", identifier(&database));
                ask(&mut connection, &drop).await?;
            }
            Ok(())
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, _: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        on_first(&endpoints, move |server| async move {
            let mut connection = connect(&server).await?;
            if ask(&mut connection, "SELECT @@global.read_only").await? == ["1"] {
                return Err("it is read-only, as a replica is\nhint: name the primary server".into());
            }
            let tables = tables(&mut connection).await?;
            let mut top = databases(&mut connection).await?;
            top.extend(tables.iter().cloned());
            let view = LockView::of(&mut connection).await.map_err(|error| error.to_string())?;
            let blind = "the server does not show the locks of GET_LOCK (INSTALL SONAME 'metadata_lock_info', or on MySQL the \
                         instrument wait/lock/metadata/sql/mdl of the performance schema)";
            Ok(StoreSurvey {
                holds: named(&tables, "table"),
                top,
                blind: view.is_none().then(|| blind.to_owned()),
            })
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        on_first(&endpoints, move |server| async move {
            let mut connection = connect(&server).await?;
            let table = format!("{}.{LEASES}", database());
            if !tables(&mut connection).await?.contains(&table) {
                return Ok(0);
            }
            let mut removed = 0;
            for name in ask(&mut connection, &format!("SELECT name FROM {}", leases())).await? {
                if traces.made(name.as_bytes()) {
                    let delete = format!("DELETE FROM {} WHERE name = {}", leases(), literal(&name));
                    ask(&mut connection, &delete).await?;
                    removed += 1;
                }
            }
            let left = ask(&mut connection, &format!("SELECT COUNT(*) FROM {}", leases())).await?;
            if !traces.top.contains(&table) && left == ["0"] {
                ask(&mut connection, &format!("DROP TABLE {}", leases())).await?;
                removed += 1;
                let others = tables(&mut connection).await?;
                let alone = format!("{}.", database());
                if !traces.top.contains(&database()) && !others.iter().any(|other| other.starts_with(&alone)) {
                    let drop = format!("DROP DATABASE {}", identifier(&database()));
                    ask(&mut connection, &drop).await?;
                }
            }
            Ok(removed)
        })
    }
}

async fn connect(server: &ServerAccess) -> Result<MysqlConnection, String> {
    let connected = MysqlConnection::connect(server.address, server.login()).await;
    connected.map_err(|error| error.to_string())
}

/// Returns the databases that are not the server's own.
async fn databases(connection: &mut MysqlConnection) -> Result<Vec<String>, String> {
    let statement =
        format!("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN {SYSTEM} ORDER BY 1");
    ask(connection, &statement).await
}

/// Returns the tables in them, each with its database: `shop.orders`.
async fn tables(connection: &mut MysqlConnection) -> Result<Vec<String>, String> {
    let statement = format!(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA NOT IN {SYSTEM} ORDER BY 1"
    );
    ask(connection, &statement).await
}

/// Returns the first column of a statement's rows.
async fn ask(connection: &mut MysqlConnection, statement: &str) -> Result<Vec<String>, String> {
    let answer = connection.query(statement).await.map_err(|error| error.to_string())?;
    let rows = answer.rows.into_iter();
    Ok(rows.filter_map(|row| row.into_iter().next().flatten()).collect())
}
