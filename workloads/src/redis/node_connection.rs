//! A connection to one Redis server: one multiplexed connection of the `redis` crate, which never sends a command twice.
//!
//! A connection that was closed or reset is dead for good. One that is silent is not: its answers still come in order, so the answer to the
//! next question on it settles the outcome of the last. Only [`SILENCES`] in a row end it.

use std::cell::Cell;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError};

use crate::login::Login;
use crate::session::SessionError;

/// A connection is closed after this number of unanswered calls in a row.
const SILENCES: u32 = 2;
/// The error of a server that was a master and became a replica.
const READ_ONLY: &str = "READONLY";

/// A connection to one server.
pub struct NodeConnection {
    pub server: Client,
    pub connection: MultiplexedConnection,
    /// Unanswered calls in a row.
    silences: Cell<u32>,
}

impl NodeConnection {
    pub async fn open(server: Client, config: &AsyncConnectionConfig) -> Result<Self, SessionError> {
        Ok(Self {
            connection: connect(&server, config.clone()).await?,
            server,
            silences: Cell::new(0),
        })
    }

    /// Connects to a server that another one named: those that do let everyone in.
    pub async fn open_at(address: &str, config: &AsyncConnectionConfig) -> Result<Self, SessionError> {
        let server = client(address, None).map_err(|error| SessionError::Definite(format!("{address}: {error}")))?;
        Self::open(server, config).await
    }

    pub fn is_broken(&self) -> bool {
        self.silences.get() >= SILENCES
    }

    pub fn judge<T>(&self, answer: Result<T, RedisError>) -> Result<T, SessionError> {
        let error = match answer {
            Ok(answer) => {
                self.silences.set(0);
                return Ok(answer);
            }
            Err(error) => error,
        };
        if error.code() == Some(READ_ONLY) {
            self.silences.set(SILENCES);
        }
        match error.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::Client | ErrorKind::UnexpectedReturnType => {
                return Err(SessionError::Definite(error.to_string()));
            }
            _ if error.is_timeout() => self.silences.set(self.silences.get() + 1),
            _ => self.silences.set(SILENCES),
        }
        Err(SessionError::Indefinite(error.to_string()))
    }
}

pub fn client(endpoint: &str, login: Option<&Login>) -> Result<Client, RedisError> {
    let info = format!("redis://{endpoint}").into_connection_info()?;
    let mut settings = info
        .redis_settings()
        .clone()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(login) = login {
        settings = settings.set_username(&login.user).set_password(&login.password);
    }
    Client::open(
        info.set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true)),
    )
}

pub async fn connect(server: &Client, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, SessionError> {
    let connected = server.get_multiplexed_async_connection_with_config(&config).await;
    connected.map_err(|error| SessionError::Definite(format!("no connection: {error}")))
}
