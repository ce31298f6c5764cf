//! The server of an SQL lock ([`SqlServer`]).

use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;

use super::SqlSession;
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::{CALLS_A_LEASE, SessionError};

/// A real server, and the time limit of a call to it.
pub(crate) struct SqlServer {
    pub endpoint: String,
    /// The login, where the server does not let everyone in.
    pub login: Option<Login>,
    pub limit: Duration,
}

impl SqlServer {
    /// Returns the only endpoint of a client; the error says that `store` has one server.
    pub fn of(open: &OpenRequest, login: Option<&Login>, store: &str) -> Result<Self, String> {
        let [endpoint] = &open.endpoints[..] else {
            return Err(format!(
                "a lock on {store} is on one server, not on {:?}",
                open.endpoints
            ));
        };
        Ok(Self {
            endpoint: endpoint.clone(),
            login: login.cloned(),
            limit: Duration::from_millis(open.lease_ms) / CALLS_A_LEASE,
        })
    }

    /// Waits for a session for the time of a call.
    pub async fn connected<S: SqlSession + 'static, E: fmt::Display>(
        &self,
        dial: impl Future<Output = Result<S, E>>,
    ) -> Result<Rc<dyn SqlSession>, SessionError> {
        let why = match timeout(self.limit, dial).await {
            Ok(Ok(session)) => return Ok(Rc::new(session)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        Err(SessionError::Definite(format!("no connection: {why}")))
    }
}
