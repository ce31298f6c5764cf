//! The routes to the servers of a Redis Cluster ([`ClusterRoutes`]), by the servers' own answers: a server that is asked for another's key
//! answers `MOVED`, and names that one. The server of each key is remembered.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#moved-redirection>

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use redis::{AsyncConnectionConfig, ErrorKind, RedisError, ServerErrorKind};

use super::node_connection::NodeConnection;
use crate::session::SessionError;

/// The most redirections of a request: servers that do not agree yet send a client to and fro.
pub(super) const REDIRECTIONS: u32 = 5;

/// The servers of the keys, as far as they are known.
pub(super) struct ClusterRoutes {
    /// The address at which this client reaches each server, by the servers' own address.
    addresses: BTreeMap<String, String>,
    config: AsyncConnectionConfig,
    /// By the servers' own address.
    connections: RefCell<BTreeMap<String, Rc<NodeConnection>>>,
    /// By key.
    masters: RefCell<BTreeMap<String, Rc<NodeConnection>>>,
    /// Whether a server that was named could not be reached.
    lost: Cell<bool>,
}

impl ClusterRoutes {
    pub(super) fn new(addresses: BTreeMap<String, String>, config: AsyncConnectionConfig) -> Self {
        Self {
            addresses,
            config,
            connections: RefCell::default(),
            masters: RefCell::default(),
            lost: Cell::new(false),
        }
    }

    /// Returns the connection to the server that had this key last; for a key that was not asked for yet it is `first`, until that one
    /// sends the client on.
    pub(super) fn master_of(&self, key: &str, first: &Rc<NodeConnection>) -> Rc<NodeConnection> {
        let mut masters = self.masters.borrow_mut();
        let master = masters.entry(key.to_owned()).or_insert_with(|| Rc::clone(first));
        Rc::clone(master)
    }

    /// Whether a key may be on a server that cannot be reached; the servers are asked anew over another connection then.
    pub(super) fn are_broken(&self) -> bool {
        self.lost.get() || self.masters.borrow().values().any(|master| master.is_broken())
    }

    pub(super) fn know_a_key(&self) -> bool {
        !self.masters.borrow().is_empty()
    }

    /// Remembers that the server at `to`, as servers name it, has this key, and returns a connection to it.
    pub(super) async fn moved(&self, key: &str, to: String) -> Result<Rc<NodeConnection>, SessionError> {
        let open = self.connections.borrow().get(&to).cloned();
        // one that is not translated is the server's own
        let reached_at = self.addresses.get(&to).unwrap_or(&to);
        let master = match open {
            Some(connection) => connection,
            None => match NodeConnection::open_at(reached_at, &self.config).await {
                Ok(connection) => Rc::new(connection),
                Err(error) => {
                    self.lost.set(true);
                    return Err(error);
                }
            },
        };
        self.connections.borrow_mut().insert(to, Rc::clone(&master));
        self.masters.borrow_mut().insert(key.to_owned(), Rc::clone(&master));
        Ok(master)
    }
}

/// Returns the address of the server that has the key, if the error is a redirection.
pub(super) fn moved_to(error: &RedisError) -> Option<String> {
    let moved = error.kind() == ErrorKind::Server(ServerErrorKind::Moved);
    let (address, _) = error.redirect_node().filter(|_| moved)?;
    Some(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_knows_another_one_sends_the_client_on() {
        let error = |line: &str| {
            redis::parse_redis_value(line.as_bytes())
                .and_then(redis::Value::extract_error)
                .unwrap_err()
        };
        assert_eq!(
            moved_to(&error("-MOVED 3999 127.0.0.1:6381\r\n")).as_deref(),
            Some("127.0.0.1:6381")
        );
        // a slot on its way: the next request of the key comes here again
        assert_eq!(moved_to(&error("-ASK 3999 127.0.0.1:6381\r\n")), None);
        assert_eq!(moved_to(&error("-CLUSTERDOWN The cluster is down\r\n")), None);
    }
}
