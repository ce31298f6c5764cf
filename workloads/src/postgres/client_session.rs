//! The session for real PostgreSQL servers, on the `tokio-postgres` crate: one connection, which never sends a statement twice.
//!
//! Statements with parameters go as one unnamed statement in one round trip, so that they pass a transaction pooler.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row};

use super::{ADVISORY_KEY, SESSION_NAME, TABLES};
use crate::login::{Login, variable};
use crate::protocol::OpenRequest;
use crate::session::SessionError;
use crate::sql::{LeaseForm, LockScope, SqlConnect, SqlServer, SqlSession};

/// Returns the user and the database: `postgres` without a password, unless there is a login, and `PGDATABASE`, as libpq reads it.
pub fn config(login: Option<&Login>) -> Config {
    let mut config = Config::new();
    config
        .user(login.map_or("postgres", |login| &login.user))
        .dbname(variable("PGDATABASE").unwrap_or_else(|| "postgres".into()));
    if let Some(login) = login.filter(|login| !login.password.is_empty()) {
        config.password(&login.password);
    }
    config
}

/// A real server.
pub struct PostgresServer(SqlServer);

impl PostgresServer {
    pub fn new(open: &OpenRequest, login: Option<&Login>) -> Result<Self, String> {
        SqlServer::of(open, login, "PostgreSQL").map(Self)
    }

    async fn dial(&self) -> Result<PostgresClientSession, String> {
        let stream = TcpStream::connect(&self.0.endpoint)
            .await
            .map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let connected = config(self.0.login.as_ref()).connect_raw(stream, NoTls).await;
        let (client, connection) = connected.map_err(|error| said(&error))?;
        let (over, is_over) = watch::channel(false);
        let task = tokio::task::spawn_local(async move {
            // the end of its sender, when this is aborted, tells the same
            let _ = connection.await;
            let _ = over.send(true);
        });
        Ok(PostgresClientSession {
            client,
            limit: self.0.limit,
            task: task.abort_handle(),
            is_over,
            given_up: Cell::new(false),
            rows: RefCell::default(),
        })
    }
}

#[async_trait(?Send)]
impl SqlConnect for PostgresServer {
    async fn connect(&self) -> Result<Rc<dyn SqlSession>, SessionError> {
        self.0.connected(self.dial()).await
    }
}

struct PostgresClientSession {
    client: Client,
    limit: Duration,
    task: AbortHandle,
    is_over: watch::Receiver<bool>,
    /// Whether it was ended here, because an answer did not come.
    given_up: Cell<bool>,
    /// Locks whose rows are surely there.
    rows: RefCell<BTreeSet<String>>,
}

/// The answer of the server, or an error that ended the statement and nothing else.
type CallAnswer<T> = Result<Result<T, DbError>, SessionError>;

/// A parameter, and its type.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl PostgresClientSession {
    /// Waits for the answer to a statement for the time of a call, and `wait`.
    async fn call<T>(&self, wait: Duration, answer: impl Future<Output = Result<T, Error>>) -> CallAnswer<T> {
        if self.is_broken() {
            return Err(SessionError::Lost("the connection ended".into()));
        }
        let error = match timeout(self.limit + wait, answer).await {
            Ok(Ok(answer)) => return Ok(Ok(answer)),
            Ok(Err(error)) => error,
            Err(_) => {
                self.give_up();
                return Err(SessionError::Indefinite("no answer".into()));
            }
        };
        match error.as_db_error() {
            Some(refused) if refused.parsed_severity() == Some(Severity::Error) => Ok(Err(refused.clone())),
            _ => {
                self.give_up();
                Err(SessionError::Indefinite(said(&error)))
            }
        }
    }

    /// Ends the connection, and on the server the session with all that it owns.
    fn give_up(&self) {
        self.given_up.set(true);
        self.task.abort();
    }

    async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, SessionError> {
        let asked = self.client.query_typed(statement, parameters);
        let answer = self.call(Duration::ZERO, asked).await?;
        answer.map_err(|refused| SessionError::Definite(refused.to_string()))
    }

    async fn run(&self, statements: &str) -> Result<(), SessionError> {
        let answer = self.call(Duration::ZERO, self.client.batch_execute(statements)).await?;
        answer.map_err(|refused| SessionError::Definite(refused.to_string()))
    }

    /// Takes an advisory lock by the function `pg_…` that waits for it, or by `pg_try_…`, which does not.
    async fn advisory(&self, function: &str, lock: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        let name = format!("(SELECT {SESSION_NAME} FROM pg_stat_activity WHERE pid = pg_backend_pid())");
        if wait.is_zero() {
            let statement = format!("SELECT pg_try_{function}({ADVISORY_KEY}), {name}");
            let rows = self.query(&statement, &[(&lock, Type::TEXT)]).await?;
            return Ok(rows.first().filter(|row| row.get(0)).map(|row| row.get(1)));
        }
        // 0 would be no limit
        let limit = wait.as_millis().max(1).to_string();
        let statement =
            format!("SELECT set_config('lock_timeout', $2, false), pg_{function}({ADVISORY_KEY})::text, {name}");
        let parameters: [Parameter<'_>; 2] = [(&lock, Type::TEXT), (&limit, Type::TEXT)];
        let asked = self.client.query_typed(&statement, &parameters);
        match self.call(wait, asked).await? {
            Ok(rows) => Ok(rows.first().map(|row| row.get(2))),
            Err(refused) if *refused.code() == SqlState::LOCK_NOT_AVAILABLE => Ok(None),
            Err(refused) => Err(SessionError::Definite(refused.to_string())),
        }
    }

    /// Locks the row of a lock in a transaction that has begun, by whose number the owner is known.
    async fn row(&self, lock: &str) -> Result<Option<String>, SessionError> {
        let statement = format!(
            "SELECT (SELECT {SESSION_NAME} FROM pg_stat_activity WHERE pid = pg_backend_pid()) || '/' || \
             pg_current_xact_id()::xid FROM harness_rows WHERE name = $1 FOR UPDATE SKIP LOCKED"
        );
        let rows = self.query(&statement, &[(&lock, Type::TEXT)]).await?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Makes the row of a lock, unless it is there.
    async fn make_row(&self, lock: &str) -> Result<(), SessionError> {
        if self.rows.borrow().contains(lock) {
            return Ok(());
        }
        let insert = "INSERT INTO harness_rows VALUES ($1) ON CONFLICT DO NOTHING";
        let made = self.query(insert, &[(&lock, Type::TEXT)]).await;
        made.map_err(|error| SessionError::Lost(error.to_string()))?;
        self.rows.borrow_mut().insert(lock.to_owned());
        Ok(())
    }

    /// Takes a lock of a transaction, which is rolled back if it did not get the lock.
    async fn in_transaction(
        &self,
        locked: impl Future<Output = Result<Option<String>, SessionError>>,
    ) -> Result<Option<String>, SessionError> {
        // nothing is asked for yet, so that without an answer nothing is unknown
        let begun = self.run("BEGIN").await;
        begun.map_err(|error| SessionError::Lost(error.to_string()))?;
        let locked = locked.await;
        // after any other error the connection is over, and the transaction with it
        if matches!(locked, Ok(None) | Err(SessionError::Definite(_))) {
            self.run("ROLLBACK").await?;
        }
        locked
    }
}

/// Returns the text of an error, in the server's words where it has some.
pub fn said(error: &Error) -> String {
    match error.as_db_error() {
        Some(refused) => refused.to_string(),
        None => error.to_string(),
    }
}

#[async_trait(?Send)]
impl SqlSession for PostgresClientSession {
    fn is_broken(&self) -> bool {
        self.given_up.get() || *self.is_over.borrow() || self.client.is_closed()
    }

    async fn broken(&self) {
        let mut is_over = self.is_over.clone();
        // an error: its task was aborted
        let _ = is_over.wait_for(|over| *over).await;
    }

    async fn make_tables(&self) -> Result<(), SessionError> {
        self.run(TABLES).await
    }

    async fn lock(&self, scope: LockScope, lock: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        match scope {
            LockScope::Session => self.advisory("advisory_lock", lock, wait).await,
            LockScope::Transaction => {
                let locked = self.advisory("advisory_xact_lock", lock, wait);
                self.in_transaction(locked).await
            }
            LockScope::Row => {
                self.make_row(lock).await?;
                self.in_transaction(self.row(lock)).await
            }
        }
    }

    async fn unlock(&self, scope: LockScope, lock: &str) -> Result<bool, SessionError> {
        if scope != LockScope::Session {
            return self.run("COMMIT").await.map(|()| true);
        }
        let statement = format!("SELECT pg_advisory_unlock({ADVISORY_KEY})");
        let rows = self.query(&statement, &[(&lock, Type::TEXT)]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn is_free(&self, lock: &str) -> Result<bool, SessionError> {
        let statement = "SELECT 1 FROM harness_leases WHERE name = $1 AND ends >= clock_timestamp()";
        Ok(self.query(statement, &[(&lock, Type::TEXT)]).await?.is_empty())
    }

    async fn take_lease(
        &self,
        form: LeaseForm,
        lock: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<u64>, SessionError> {
        let compared = match form {
            LeaseForm::Compared => "WHERE l.ends < clock_timestamp()",
            LeaseForm::Blind => "",
        };
        let statement = format!(
            "INSERT INTO harness_leases AS l VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 ms') \
             ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = l.token + 1, ends = excluded.ends {compared} \
             RETURNING token"
        );
        let ms = i64::try_from(lease.as_millis()).expect("a lease is below 292 million years");
        let parameters: [Parameter<'_>; 3] = [(&lock, Type::TEXT), (&owner, Type::TEXT), (&ms, Type::INT8)];
        let rows = self.query(&statement, &parameters).await?;
        Ok(rows.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()))
    }

    async fn end_lease(&self, form: LeaseForm, lock: &str, owner: &str) -> Result<bool, SessionError> {
        let parameters: [Parameter<'_>; 2] = [(&lock, Type::TEXT), (&owner, Type::TEXT)];
        let (compared, used) = match form {
            LeaseForm::Compared => ("AND owner = $2 AND ends > clock_timestamp() ", 2),
            LeaseForm::Blind => ("", 1),
        };
        let statement = format!(
            "UPDATE harness_leases SET owner = NULL, ends = '-infinity' WHERE name = $1 {compared}RETURNING token"
        );
        let rows = self.query(&statement, &parameters[..used]).await?;
        Ok(!rows.is_empty())
    }
}
