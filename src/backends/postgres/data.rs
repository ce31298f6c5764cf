//! The data on PostgreSQL servers: tables of the schema `public`.

use std::time::Duration;

use super::looks::{PostgresConnection, connect};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, named, on_first};
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// The tables of the recipes.
const OWN: [&str; 2] = ["harness_leases", "harness_rows"];

pub struct PostgresData;

impl StoredData for PostgresData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        // sessions of ended clients may not have ended
        let wiping = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid(); \
                      DROP SCHEMA public CASCADE; CREATE SCHEMA public";
        on_first(&endpoints, move |server| async move {
            let connection = connect(&server).await?;
            connection.column(wiping).await.map(drop)
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, _: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        on_first(&endpoints, move |server| async move {
            let connection = connect(&server).await?;
            if connection.column("SELECT pg_is_in_recovery()").await? == ["t"] {
                return Err("it is a standby, which takes no writes\nhint: name its primary".into());
            }
            let top = tables(&connection).await?;
            Ok(StoreSurvey {
                holds: named(&top, "table"),
                top,
                blind: None,
            })
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        on_first(&endpoints, move |server| async move {
            let connection = connect(&server).await?;
            let mut removed = 0;
            for table in tables(&connection).await? {
                if !OWN.contains(&&*table) {
                    continue;
                }
                for name in connection.column(&format!("SELECT name FROM {table}")).await? {
                    if traces.made(name.as_bytes()) {
                        let name = name.replace('\'', "''");
                        let delete = format!("DELETE FROM {table} WHERE name = '{name}'");
                        connection.column(&delete).await?;
                        removed += 1;
                    }
                }
                let left = connection.column(&format!("SELECT count(*) FROM {table}")).await?;
                if !traces.top.contains(&table) && left == ["0"] {
                    connection.column(&format!("DROP TABLE {table}")).await?;
                    removed += 1;
                }
            }
            Ok(removed)
        })
    }
}

async fn tables(connection: &PostgresConnection) -> Result<Vec<String>, String> {
    let statement = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
    connection.column(statement).await
}
