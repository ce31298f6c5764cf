//! Looks at the locks of a MariaDB or MySQL server: sessions' named locks among the metadata locks, and leases in their table.
//!
//! <https://mariadb.com/kb/en/metadata-lock-info-plugin/>, or without the plugin the table `metadata_locks`:
//! <https://dev.mysql.com/doc/refman/8.4/en/performance-schema-metadata-locks-table.html>

use std::collections::BTreeMap;

use harness_workloads::mariadb::{MysqlConnection, MysqlError, leases};

use crate::backends::lock_keys::LockKeys;
use crate::backends::polled::{LockLook, LockTable, OpenedTable};
use crate::clock::{GroundClock, RunningTask};
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// The errors for a database and a table that do not exist, and for those that this user may not read.
const UNREADABLE: [u16; 4] = [1049, 1146, 1044, 1142];

/// The column of `SHOW PROCESSLIST` with the kind of request that a session executes.
const COMMAND: usize = 4;

/// Milliseconds since 1970 of a time in UTC.
const MS: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {}) DIV 1000";

/// The view of the named locks of a server's sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockView {
    /// The plugin `metadata_lock_info` of MariaDB.
    Plugin,
    /// The performance schema.
    PerformanceSchema,
}

impl LockView {
    /// Returns the view of this server, or `None` if its settings have none.
    pub async fn of(connection: &mut MysqlConnection) -> Result<Option<Self>, MysqlError> {
        let plugin = "SELECT 1 FROM information_schema.PLUGINS \
                      WHERE PLUGIN_NAME = 'METADATA_LOCK_INFO' AND PLUGIN_STATUS = 'ACTIVE'";
        if connection.query(plugin).await?.value().is_some() {
            return Ok(Some(LockView::Plugin));
        }
        let instrument = "SELECT ENABLED FROM performance_schema.setup_instruments \
                          WHERE NAME = 'wait/lock/metadata/sql/mdl' AND @@performance_schema = 1";
        let answer = match connection.query(instrument).await {
            // this user has no right to it
            Err(MysqlError::Refused { .. }) => return Ok(None),
            answer => answer?,
        };
        Ok((answer.value() == Some("YES")).then_some(LockView::PerformanceSchema))
    }

    /// Returns the part of a look's statement for the view: the kind of row, the connection and the lock; the rest is for leases.
    fn statement(self) -> &'static str {
        match self {
            LockView::Plugin => {
                " UNION ALL SELECT 'session', THREAD_ID, HEX(CONVERT(TABLE_SCHEMA USING utf8mb4)), NULL, NULL, NULL \
                 FROM information_schema.METADATA_LOCK_INFO WHERE LOCK_TYPE = 'User lock'"
            }
            LockView::PerformanceSchema => {
                " UNION ALL SELECT 'session', PROCESSLIST_ID, HEX(CONVERT(OBJECT_NAME USING utf8mb4)), NULL, NULL, NULL \
                 FROM performance_schema.metadata_locks JOIN performance_schema.threads ON THREAD_ID = OWNER_THREAD_ID \
                 WHERE OBJECT_TYPE = 'USER LEVEL LOCK' AND LOCK_STATUS = 'GRANTED'"
            }
        }
    }
}

/// Opens the connection for looks at the locks under these keys.
pub fn open(endpoints: EndpointsReceiver, keys: LockKeys) -> OpenedTable {
    let server = endpoints.borrow().first();
    Box::pin(async move {
        let said = |error: MysqlError| error.to_string();
        let connected = MysqlConnection::over(server.connect().await?, server.login()).await;
        let (mut connection, reading) = connected.map_err(said)?;
        let clock = server.clock();
        // the connection has answers as long as this task runs
        let _reading = clock.spawn(reading);
        let own = connection.session_name().await.map_err(said)?;
        let looks = MariadbLooks {
            view: LockView::of(&mut connection).await.map_err(said)?,
            connection,
            _reading,
            clock,
            keys,
            start: own.split('.').next().unwrap_or_default().to_owned(),
        };
        Ok(Box::new(looks) as Box<dyn LockTable>)
    })
}

struct MariadbLooks {
    connection: MysqlConnection,
    _reading: RunningTask,
    clock: GroundClock,
    keys: LockKeys,
    view: Option<LockView>,
    /// The prefix of the names of sessions: the server's start.
    start: String,
}

impl MariadbLooks {
    /// Queries the locks, and the sessions after them: one that ends is in the list for a moment longer than its locks are.
    async fn ask(&mut self) -> Result<LockLook, MysqlError> {
        let asked = self.clock.now_ns();
        let locks = match self.connection.query(&statement(self.view, true)).await {
            // no client has made the table yet
            Err(error) if error.code().is_some_and(|code| UNREADABLE.contains(&code)) => {
                self.connection.query(&statement(self.view, false)).await?
            }
            answer => answer?,
        };
        // the time of the look is that of the statement's begin. The one more is for the parts of milliseconds that are left out
        let late_ms = (self.clock.now_ns().saturating_sub(asked) / 1_000_000) as i64 + 1;
        // this query of the sessions makes no temporary table
        let sessions = self.connection.query("SHOW PROCESSLIST").await?.rows.into_iter();
        let sessions = sessions.filter_map(|row| Some((row.first()?.clone()?, is_ending(&row))));
        Ok(LockLook {
            late_ms,
            ..self.read(locks.rows, &sessions.collect())
        })
    }

    /// Reads the rows of locks. `sessions` has the numbers of the sessions, and whether each is ending.
    fn read(&self, rows: Vec<Vec<Option<String>>>, sessions: &BTreeMap<String, bool>) -> LockLook {
        let mut look = LockLook::default();
        for row in rows {
            let text = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
            let number = |column: usize| text(column).parse::<i64>().ok();
            let lock = self.keys.lock_at(&unhex(&text(2)));
            match text(0).as_str() {
                "now" => look.now_ms = number(5).unwrap_or_default(),
                "lease" => look.add(lock, unhex(&text(3)), number(4), number(5)),
                // a lock whose session ends in this moment has no holder
                _ if !sessions.contains_key(&text(1)) => {}
                _ => look.add(lock, self.session(&text(1)), None, None),
            }
        }
        let living = sessions.iter().filter(|(_, is_ending)| !**is_ending);
        look.sessions = living.map(|(number, _)| self.session(number)).collect();
        look
    }

    /// Returns the name of the session with this number, as [`MysqlConnection::session_name`] has it.
    fn session(&self, number: &str) -> String {
        format!("{}.{number}", self.start)
    }
}

/// Whether a session is ending by its row in the list of sessions. It is marked before its locks are released.
fn is_ending(row: &[Option<String>]) -> bool {
    matches!(row.get(COMMAND), Some(Some(command)) if command == "Killed")
}

/// Returns the statement for locks, with those that are leases in their table if that exists.
fn statement(view: Option<LockView>, with_leases: bool) -> String {
    let mut statement = format!(
        "SELECT 'now', NULL, NULL, NULL, NULL, {}",
        MS.replace("{}", "UTC_TIMESTAMP(6)")
    );
    statement += view.map(LockView::statement).unwrap_or_default();
    if with_leases {
        statement += &format!(
            " UNION ALL SELECT 'lease', NULL, HEX(name), HEX(owner), token, {} FROM {} \
             WHERE owner IS NOT NULL AND ends > UTC_TIMESTAMP(6)",
            MS.replace("{}", "ends"),
            leases()
        );
    }
    statement
}

/// Decodes a text of hexadecimal digits: parts of a statement that come from tables of the server and of clients differ in their
/// collations, and digits do not.
fn unhex(digits: &str) -> String {
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

impl LockTable for MariadbLooks {
    fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>> {
        Box::pin(async move { self.ask().await.map_err(|error| error.to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_names_the_table_of_leases_only_where_it_may_exist() {
        for view in [None, Some(LockView::Plugin), Some(LockView::PerformanceSchema)] {
            let names = [true, false].map(|with_leases| statement(view, with_leases).contains(&leases()));
            assert_eq!(names, [true, false], "{view:?}");
        }
    }

    #[test]
    fn a_session_that_ends_is_marked_in_the_list() {
        for (command, ending) in [("Sleep", false), ("Query", false), ("Killed", true)] {
            let row = ["9", "root", "localhost", "harness", command, "0", "", ""];
            assert_eq!(is_ending(&row.map(|text| Some(text.to_owned()))), ending, "{command}");
        }
        assert!(!is_ending(&[]));
    }

    #[test]
    fn names_come_as_digits() {
        assert_eq!(unhex("6C30"), "l0");
        assert_eq!(unhex("C3A9"), "é");
        assert_eq!(unhex(""), "");
    }
}
