//! The session for real MariaDB and MySQL servers, on a [`MysqlConnection`].

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, timeout};

use super::connection::{MysqlAnswer, MysqlConnection, MysqlError};
use super::{leases, literal, tables};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::SessionError;
use crate::sql::{LeaseForm, LockScope, SqlConnect, SqlServer, SqlSession};

/// The pause between two questions for a lock where the server waits for whole seconds only.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Errors after which a statement has changed nothing since another was at the same row: a lock that could not be had in time, a
/// deadlock, a record that changed since it was read.
const CONTENDED: [u16; 3] = [1020, 1205, 1213];

/// A time before every end of a lease.
const LONG_AGO: &str = "'1000-01-01'";

/// A real server.
pub struct MariadbServer(SqlServer);

impl MariadbServer {
    pub fn new(open: &OpenRequest, login: Option<&Login>) -> Result<Self, String> {
        SqlServer::of(open, login, "MariaDB").map(Self)
    }

    async fn dial(&self) -> Result<MysqlClientSession, MysqlError> {
        let mut connection = MysqlConnection::connect(&self.0.endpoint, self.0.login.as_ref()).await?;
        let name = connection.session_name().await?;
        Ok(MysqlClientSession {
            is_over: connection.is_over(),
            is_mariadb: connection.is_mariadb(),
            connection: Mutex::new(Some(connection)),
            name,
            limit: self.0.limit,
            given_up: Cell::new(false),
        })
    }
}

#[async_trait(?Send)]
impl SqlConnect for MariadbServer {
    async fn connect(&self) -> Result<Rc<dyn SqlSession>, SessionError> {
        self.0.connected(self.dial()).await
    }
}

struct MysqlClientSession {
    /// `None` after it was ended here, because an answer did not come.
    connection: Mutex<Option<MysqlConnection>>,
    is_over: watch::Receiver<bool>,
    is_mariadb: bool,
    name: String,
    limit: Duration,
    given_up: Cell<bool>,
}

/// The server's answer, or the number and text of an error that ended the statement and nothing else.
type StatementAnswer = Result<Result<MysqlAnswer, (u16, String)>, SessionError>;

impl MysqlClientSession {
    /// Waits for the answer to a statement for the time of a call, and `wait`.
    async fn call(&self, wait: Duration, statement: &str) -> StatementAnswer {
        let mut connection = self.connection.lock().await;
        let Some(open) = connection.as_mut().filter(|_| !self.is_broken()) else {
            return Err(SessionError::Lost("the connection ended".into()));
        };
        let why = match timeout(self.limit + wait, open.query(statement)).await {
            Ok(Ok(answer)) => return Ok(Ok(answer)),
            Ok(Err(MysqlError::Refused { code, message })) => return Ok(Err((code, format!("{message} ({code})")))),
            Ok(Err(MysqlError::Ended(why))) => why,
            Err(_) => "no answer".to_owned(),
        };
        // on the server its session ends, with all that it owns
        self.given_up.set(true);
        *connection = None;
        Err(SessionError::Indefinite(why))
    }

    async fn run(&self, statement: &str) -> Result<MysqlAnswer, SessionError> {
        let answer = self.call(Duration::ZERO, statement).await?;
        answer.map_err(|(_, refused)| SessionError::Definite(refused))
    }

    /// Calls `GET_LOCK`, which answers 1, 0 when the time was over, and null for an error.
    async fn get_lock(&self, lock: &str, wait: Duration) -> Result<bool, SessionError> {
        let end = Instant::now() + wait;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let seconds = if self.is_mariadb {
                format!("{:.3}", left.as_secs_f64())
            } else {
                left.as_secs().to_string()
            };
            let statement = format!("SELECT GET_LOCK({}, {seconds})", literal(lock));
            let answer = self.call(left, &statement).await?;
            let answer = answer.map_err(|(_, refused)| SessionError::Definite(refused))?;
            match answer.value() {
                Some("1") => return Ok(true),
                Some(_) if self.is_mariadb || Instant::now() + ASK_AGAIN >= end => return Ok(false),
                Some(_) => sleep(ASK_AGAIN).await,
                None => return Err(SessionError::Definite("GET_LOCK answered NULL".into())),
            }
        }
    }
}

/// Returns the error of a lock that these servers do not have.
fn no_such_lock() -> SessionError {
    SessionError::Definite("MariaDB has named locks of sessions, and none of transactions".into())
}

#[async_trait(?Send)]
impl SqlSession for MysqlClientSession {
    fn is_broken(&self) -> bool {
        self.given_up.get() || *self.is_over.borrow()
    }

    async fn broken(&self) {
        let mut is_over = self.is_over.clone();
        // an error: its connection was dropped
        let _ = is_over.wait_for(|over| *over).await;
    }

    async fn make_tables(&self) -> Result<(), SessionError> {
        for statement in tables() {
            self.run(&statement).await?;
        }
        Ok(())
    }

    async fn lock(&self, scope: LockScope, lock: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        if scope != LockScope::Session {
            return Err(no_such_lock());
        }
        let locked = self.get_lock(lock, wait).await?;
        Ok(locked.then(|| self.name.clone()))
    }

    async fn unlock(&self, scope: LockScope, lock: &str) -> Result<bool, SessionError> {
        if scope != LockScope::Session {
            return Err(no_such_lock());
        }
        let answer = self.run(&format!("SELECT RELEASE_LOCK({})", literal(lock))).await?;
        // 0: it is another's; null: it is nobody's
        Ok(answer.value() == Some("1"))
    }

    async fn is_free(&self, lock: &str) -> Result<bool, SessionError> {
        let statement = format!(
            "SELECT 1 FROM {} WHERE name = {} AND ends >= UTC_TIMESTAMP(6)",
            leases(),
            literal(lock)
        );
        Ok(self.run(&statement).await?.rows.is_empty())
    }

    /// The time of `UTC_TIMESTAMP` is that at which the statement began, the same wherever it occurs in it. The token is in the
    /// answer as the last inserted number, which MySQL has as well; columns are set from the left to the right.
    async fn take_lease(
        &self,
        form: LeaseForm,
        lock: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<u64>, SessionError> {
        let owner = literal(owner);
        let end = format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", lease.as_micros());
        let set = |column: &str, value: &str| match form {
            LeaseForm::Compared => format!("{column} = IF(ends < UTC_TIMESTAMP(6), {value}, {column})"),
            LeaseForm::Blind => format!("{column} = {value}"),
        };
        let statement = format!(
            "INSERT INTO {} VALUES ({}, {owner}, 1, {end}) ON DUPLICATE KEY UPDATE {}, {}, {}",
            leases(),
            literal(lock),
            set("token", "LAST_INSERT_ID(token + 1)"),
            set("owner", &owner),
            set("ends", &end)
        );
        let answer = match self.call(Duration::ZERO, &statement).await? {
            Err((code, _)) if CONTENDED.contains(&code) => return Ok(None),
            answer => answer.map_err(|(_, refused)| SessionError::Definite(refused))?,
        };
        // 1: a new row, 2: the row was changed, 0: it was not
        Ok(match answer.affected {
            0 => None,
            1 => Some(1),
            _ => Some(answer.last_id),
        })
    }

    async fn end_lease(&self, form: LeaseForm, lock: &str, owner: &str) -> Result<bool, SessionError> {
        let set = format!(
            "UPDATE {} SET owner = NULL, ends = {LONG_AGO} WHERE name = {}",
            leases(),
            literal(lock)
        );
        Ok(match form {
            LeaseForm::Compared => {
                let statement = format!("{set} AND owner = {} AND ends > UTC_TIMESTAMP(6)", literal(owner));
                self.run(&statement).await?.affected > 0
            }
            // a row that was ended before is not counted as changed
            LeaseForm::Blind => self.run(&set).await.map(|_| true)?,
        })
    }
}
