//! The way to the master that sentinels chose ([`Sentinels`]), as their makers advise clients: ask one sentinel after the other, connect to
//! the server that one names, and ask that one for its role. A connection stays until it breaks or the server says that it is read-only.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Value};

use crate::protocol::SentinelEndpoints;
use crate::session::SessionError;

/// The time that a sentinel has to answer, before another one is asked.
const SENTINEL: Duration = Duration::from_millis(500);

pub(super) struct Sentinels {
    sentinels: Vec<Client>,
    /// The number of the one that answered last, which is asked first.
    first: Cell<usize>,
    master: String,
    /// The address at which this client reaches each server, by the sentinels' address of it.
    addresses: BTreeMap<String, String>,
}

impl Sentinels {
    pub(super) fn new(sentinels: Vec<Client>, given: &SentinelEndpoints) -> Self {
        Sentinels {
            sentinels,
            first: Cell::new(0),
            master: given.master.clone(),
            addresses: given.addresses.clone(),
        }
    }

    /// Returns the address of the master that the first sentinel names that answers.
    pub(super) async fn master(&self) -> Result<String, SessionError> {
        let mut refused = SessionError::Definite("there are no sentinels".into());
        for offset in 0..self.sentinels.len() {
            let number = (self.first.get() + offset) % self.sentinels.len();
            match self.ask(&self.sentinels[number]).await {
                Ok(Some(at)) => {
                    self.first.set(number);
                    return Ok(at);
                }
                Ok(None) => refused = SessionError::Definite("a sentinel knows no such master".into()),
                Err(error) => refused = SessionError::Definite(format!("no sentinel answers: {error}")),
            }
        }
        Err(refused)
    }

    async fn ask(&self, sentinel: &Client) -> Result<Option<String>, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SENTINEL))
            .set_response_timeout(Some(SENTINEL));
        let mut connection = sentinel.get_multiplexed_async_connection_with_config(&config).await?;
        let named: Option<(String, String)> = redis::cmd("SENTINEL")
            .arg("get-master-addr-by-name")
            .arg(&self.master)
            .query_async(&mut connection)
            .await?;
        Ok(named.map(|(host, port)| self.reached_at(format!("{host}:{port}"))))
    }

    /// Translates a server's address; one that is not translated is the server's own.
    fn reached_at(&self, announced: String) -> String {
        self.addresses.get(&announced).cloned().unwrap_or(announced)
    }
}

/// Refuses a server that is no master: the sentinels chose another one, and the one that was asked did not know it yet.
pub(super) async fn check_role(connection: &mut MultiplexedConnection) -> Result<(), SessionError> {
    let refused = |why: String| SessionError::Definite(format!("no connection: {why}"));
    let answer: Result<Value, RedisError> = redis::cmd("ROLE").query_async(connection).await;
    let answer = answer.map_err(|error| refused(error.to_string()))?;
    match is_master(&answer) {
        true => Ok(()),
        false => Err(refused("the sentinels name a server that is not a master".to_owned())),
    }
}

fn is_master(answer: &Value) -> bool {
    let Value::Array(parts) = answer else { return false };
    match parts.first() {
        Some(Value::BulkString(role)) => role == b"master",
        Some(Value::SimpleString(role)) => role == "master",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_through_the_link_of_the_client_and_one_without_a_link_at_its_own_address() {
        let given = SentinelEndpoints {
            master: "harness".into(),
            addresses: [("10.0.0.1:40001".to_owned(), "127.0.0.1:41001".to_owned())].into(),
        };
        let sentinels = Sentinels::new(Vec::new(), &given);
        assert_eq!(sentinels.reached_at("10.0.0.1:40001".into()), "127.0.0.1:41001");
        assert_eq!(sentinels.reached_at("10.0.0.1:40002".into()), "10.0.0.1:40002");
    }

    #[test]
    fn only_a_server_that_says_that_it_is_the_master_is_taken() {
        let role = |role: &str| Value::Array(vec![Value::BulkString(role.into()), Value::Int(0)]);
        assert!(is_master(&role("master")) && !is_master(&role("slave")) && !is_master(&Value::Nil));
    }
}
