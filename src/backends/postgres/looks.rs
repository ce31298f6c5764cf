//! Looks at the locks of a PostgreSQL server: advisory locks and locked rows in `pg_locks`, and the leases in their table.
//!
//! <https://www.postgresql.org/docs/current/view-pg-locks.html>

use std::collections::BTreeMap;

use harness_workloads::postgres::{self, ADVISORY_KEY, SESSION_NAME, said};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::backends::lock_keys::LockKeys;
use crate::backends::polled::{LockLook, LockTable, OpenedTable};
use crate::clock::RunningTask;
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};

/// The most locks of a run: the names give the keys of advisory locks, and not the reverse.
const LOCKS: i64 = 10_000;

/// The time, and whether the tables of rows and of leases exist. The clock is read once: a lease that ended by it is over by the time
/// of the look, too.
const NOW: &str = "WITH clock AS (SELECT clock_timestamp() AS now) \
    SELECT 'now' AS kind, NULL AS pid, (to_regclass('harness_rows') IS NOT NULL)::text AS name, \
    (to_regclass('harness_leases') IS NOT NULL)::text AS owner, NULL AS token, \
    (EXTRACT(EPOCH FROM now) * 1000)::bigint AS ms FROM clock";
/// A key of one number is in two columns of 32 bits.
const ADVISORY: &str = " UNION ALL SELECT 'advisory', pid::text, (classid::bigint << 32 | objid::bigint)::text, NULL, NULL, NULL \
    FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ExclusiveLock' AND granted";
/// A locked row has the transaction that locked it, also after its end.
const ROWS: &str = " UNION ALL SELECT 'row', pid::text, name, NULL, transactionid::text, NULL FROM harness_rows r JOIN pg_locks l \
    ON locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted AND transactionid = r.xmax";
const LEASES: &str = " UNION ALL SELECT 'lease', NULL, name, owner, token::text, (EXTRACT(EPOCH FROM ends) * 1000)::bigint \
    FROM harness_leases WHERE owner IS NOT NULL AND ends > (SELECT now FROM clock)";
const SESSIONS: &str = "SELECT pid::text AS pid, {SESSION_NAME} AS owner, state, \
    (EXTRACT(EPOCH FROM state_change) * 1000)::bigint AS ms FROM pg_stat_activity WHERE backend_type = 'client backend'";

/// A connection to a server, which ends when it is dropped.
pub struct PostgresConnection {
    pub client: Client,
    _task: RunningTask,
}

impl PostgresConnection {
    /// Returns the first column of a statement's rows. The error is a sentence.
    pub async fn column(&self, statement: &str) -> Result<Vec<String>, String> {
        let answered = self.client.simple_query(statement).await;
        answered.map(first_column).map_err(|error| said(&error))
    }
}

/// Returns the first column of the rows of an answer.
pub fn first_column(answered: Vec<SimpleQueryMessage>) -> Vec<String> {
    let first = rows(&answered).map(|row| row.get(0).unwrap_or_default().to_owned());
    first.collect()
}

/// Returns the rows of an answer.
fn rows(answered: &[SimpleQueryMessage]) -> impl Iterator<Item = &SimpleQueryRow> {
    answered.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// Connects to a server. The error is a sentence.
pub async fn connect(server: &ServerAccess) -> Result<PostgresConnection, String> {
    let stream = server.connect().await?;
    let connected = postgres::config(server.login()).connect_raw(stream, NoTls).await;
    let (client, connection) = connected.map_err(|error| said(&error))?;
    let _task = server.clock().spawn(async move { drop(connection.await) });
    Ok(PostgresConnection { client, _task })
}

/// Opens the connection for looks at the locks under these keys.
pub fn open(endpoints: EndpointsReceiver, keys: LockKeys) -> OpenedTable {
    let server = endpoints.borrow().first();
    Box::pin(async move {
        let connection = connect(&server).await?;
        let names = names(&connection.client, &keys).await;
        let looks = PostgresLooks {
            connection,
            names: names.map_err(|error| said(&error))?,
            keys,
            tables: [false; 2],
            looked_ms: 0,
        };
        Ok(Box::new(looks) as Box<dyn LockTable>)
    })
}

/// Returns the names of locks by the keys of their advisory locks, which the server computes.
async fn names(client: &Client, keys: &LockKeys) -> Result<BTreeMap<i64, String>, Error> {
    let key = ADVISORY_KEY.replace("$1", "$1 || 'l' || n || $2");
    let statement = format!("SELECT {key}, 'l' || n FROM generate_series(0, $3 - 1) n");
    let (before, after) = (keys.pattern.before(), keys.pattern.after());
    let rows = client
        .query_typed(
            &statement,
            &[(&before, Type::TEXT), (&after, Type::TEXT), (&LOCKS, Type::INT8)],
        )
        .await?;
    Ok(rows.into_iter().map(|row| (row.get(0), row.get(1))).collect())
}

struct PostgresLooks {
    connection: PostgresConnection,
    keys: LockKeys,
    /// The names by the keys of advisory locks.
    names: BTreeMap<i64, String>,
    /// Whether the tables of rows and of leases exist, by the last look.
    tables: [bool; 2],
    /// The server's clock at the last look.
    looked_ms: i64,
}

impl PostgresLooks {
    /// Queries the locks, and the sessions after them: one that ends is in the list for a moment longer than its locks are.
    async fn ask(&mut self) -> Result<LockLook, Error> {
        let client = &self.connection.client;
        // again if a client made or dropped a table: its locks are of this look, too
        let locks = loop {
            let answered = client.simple_query(&statement(self.tables)).await;
            let there = match &answered {
                Ok(locks) => tables(locks),
                Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => [false; 2],
                Err(_) => self.tables,
            };
            if there == self.tables {
                break answered?;
            }
            self.tables = there;
        };
        let sessions = SESSIONS.replace("{SESSION_NAME}", SESSION_NAME);
        let sessions = client.simple_query(&sessions).await?;
        let look = self.read(&locks, &sessions);
        self.looked_ms = look.now_ms;
        Ok(look)
    }

    fn read(&self, locks: &[SimpleQueryMessage], sessions: &[SimpleQueryMessage]) -> LockLook {
        let mut look = LockLook::default();
        let acted = |row: &&SimpleQueryRow| may_have_acted(&text(row, "state"), number(row, "ms"), self.looked_ms);
        look.sessions = rows(sessions).filter(acted).map(|row| text(row, "owner")).collect();
        let owners = rows(sessions).map(|row| (text(row, "pid"), text(row, "owner")));
        let owners: BTreeMap<String, String> = owners.collect();
        for row in rows(locks) {
            let text = |column: &str| text(row, column);
            let number = |column: &str| number(row, column);
            let lock = self.keys.lock_at(&text("name"));
            match text("kind").as_str() {
                "now" => look.now_ms = number("ms").unwrap_or_default(),
                "lease" => look.add(lock, text("owner"), number("token"), number("ms")),
                kind => {
                    // a lock whose session ends in this moment has no holder
                    let Some(owner) = owners.get(&text("pid")).cloned() else {
                        continue;
                    };
                    let (lock, owner) = match kind {
                        "row" => (lock, format!("{owner}/{}", text("token"))),
                        _ => (number("name").and_then(|key| self.names.get(&key).cloned()), owner),
                    };
                    look.add(lock, owner, None, None);
                }
            }
        }
        look
    }
}

/// Returns the statement for locks: it must not name a table that does not exist.
fn statement(tables: [bool; 2]) -> String {
    let of_tables = [ROWS, LEASES].into_iter().zip(tables);
    let of_tables = of_tables.filter_map(|(part, there)| there.then_some(part));
    [NOW, ADVISORY].into_iter().chain(of_tables).collect()
}

/// Returns whether the tables existed at a look.
fn tables(locks: &[SimpleQueryMessage]) -> [bool; 2] {
    let now = rows(locks).find(|row| row.get("kind") == Some("now"));
    ["name", "owner"].map(|column| now.is_some_and(|row| row.get(column) == Some("true")))
}

/// Whether a session may have given up a lock after a look at this time of the server's clock. One that waits for a statement since
/// before then did not: if its lock is gone, it is ending, and a session stays in the list for a moment longer than its locks do.
fn may_have_acted(state: &str, changed_ms: Option<i64>, looked_ms: i64) -> bool {
    !state.starts_with("idle") || changed_ms.is_none_or(|changed_ms| changed_ms >= looked_ms)
}

/// Returns the text in a column of a row, empty if there is none.
fn text(row: &SimpleQueryRow, column: &str) -> String {
    row.get(column).unwrap_or_default().to_owned()
}

fn number(row: &SimpleQueryRow, column: &str) -> Option<i64> {
    row.get(column)?.parse().ok()
}

impl LockTable for PostgresLooks {
    fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>> {
        Box::pin(async move { self.ask().await.map_err(|error| said(&error)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_a_look_leaves_out_had_ended_at_the_time_of_the_look() {
        let statement = statement([true; 2]);
        assert_eq!(statement.matches("clock_timestamp()").count(), 1, "{statement}");
        assert!(statement.ends_with("ends > (SELECT now FROM clock)"), "{statement}");
    }

    #[test]
    fn a_session_that_ran_no_statement_since_the_last_look_released_nothing() {
        for (state, changed_ms, acted) in [
            ("idle", Some(99), false),
            ("idle in transaction", Some(99), false),
            ("idle", Some(100), true),
            // its statement may have begun before that look, and given the lock up after it
            ("active", Some(99), true),
            // a server that does not track activities
            ("disabled", None, true),
        ] {
            assert_eq!(may_have_acted(state, changed_ms, 100), acted, "{state} {changed_ms:?}");
        }
    }

    #[test]
    fn a_look_reads_the_tables_that_exist_and_says_whether_others_do() {
        for there in [[false, false], [true, false], [false, true], [true, true]] {
            let statement = statement(there);
            let reads = ["rows", "leases"].map(|table| statement.contains(&format!("FROM harness_{table}")));
            assert_eq!(reads, there, "{statement}");
            let asks = ["rows", "leases"].map(|table| statement.contains(&format!("to_regclass('harness_{table}')")));
            assert_eq!(asks, [true; 2], "{statement}");
        }
    }
}
