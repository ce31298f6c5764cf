//! The Redis session for real servers, on the `redis` crate.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, PushInfo, PushKind, RedisError, Script, ScriptInvocation,
};
use tokio::sync::mpsc;

use super::cluster_routes::{ClusterRoutes, REDIRECTIONS, moved_to};
use super::node_connection::{NodeConnection, client, connect};
use super::sentinels::{Sentinels, check_role};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::redis::{CompareBy, RedisConnect, RedisSession, Subscription};
use crate::session::{CALLS_A_LEASE, SessionError};

static DEL_IF: LazyLock<Script> = LazyLock::new(|| {
    Script::new("if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end")
});
static DEL_IF_AND_PUBLISH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end \
         redis.call('del',KEYS[1]) redis.call('publish',ARGV[2],ARGV[1]) return 1",
    )
});
static EXPIRE_IF: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end",
    )
});

/// Real servers.
pub struct RedisServers {
    servers: Vec<Client>,
    /// The sentinels, where there are any: they know the one server that takes writes.
    sentinels: Option<Sentinels>,
    /// The address at which this client reaches each server of a cluster, by the servers' own; `None` where one server has all keys.
    cluster: Option<BTreeMap<String, String>>,
    compare: CompareBy,
    limit: Duration,
}

impl RedisServers {
    pub fn new(open: &OpenRequest, login: Option<&Login>, compare: CompareBy) -> Result<Self, String> {
        let client = |endpoint: &String| client(endpoint, login);
        let servers: Result<_, RedisError> = open.endpoints.iter().map(client).collect();
        let mut servers = servers.map_err(|error| format!("redis endpoints {:?}: {error}", open.endpoints))?;
        let sentinels = open.sentinel.as_ref();
        Ok(RedisServers {
            sentinels: sentinels.map(|given| Sentinels::new(std::mem::take(&mut servers), given)),
            servers,
            cluster: open.cluster.as_ref().map(|cluster| cluster.addresses.clone()),
            compare,
            limit: Duration::from_millis(open.lease_ms) / CALLS_A_LEASE,
        })
    }
}

#[async_trait(?Send)]
impl RedisConnect for RedisServers {
    fn servers(&self) -> usize {
        // the one that sentinels name
        self.servers.len().max(1)
    }

    async fn connect(&self, server: usize) -> Result<Rc<dyn RedisSession>, SessionError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(Some(self.limit));
        let first = match &self.sentinels {
            None => NodeConnection::open(self.servers[server].clone(), &config).await?,
            Some(sentinels) => {
                let mut master = NodeConnection::open_at(&sentinels.master().await?, &config).await?;
                check_role(&mut master.connection).await?;
                master
            }
        };
        let routes = |addresses: &BTreeMap<_, _>| ClusterRoutes::new(addresses.clone(), config.clone());
        Ok(Rc::new(RedisClientSession {
            first: Rc::new(first),
            cluster: self.cluster.as_ref().map(routes),
            compare: self.compare,
            config,
        }))
    }
}

struct RedisClientSession {
    /// The connection to the server that has all keys, or, of a cluster, to the one that is asked for a key first.
    first: Rc<NodeConnection>,
    cluster: Option<ClusterRoutes>,
    compare: CompareBy,
    config: AsyncConnectionConfig,
}

impl RedisClientSession {
    async fn call<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, SessionError> {
        self.ask(key, async |mut connection| command.query_async(&mut connection).await)
            .await
    }

    async fn script(&self, key: &str, script: &ScriptInvocation<'_>) -> Result<bool, SessionError> {
        self.ask(key, async |mut connection| script.invoke_async(&mut connection).await)
            .await
    }

    /// Asks the server that has the key. Only a request that was refused is sent to another one.
    async fn ask<T>(
        &self,
        key: &str,
        request: impl AsyncFn(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, SessionError> {
        let Some(cluster) = &self.cluster else {
            return self.first.judge(request(self.first.connection.clone()).await);
        };
        let mut master = cluster.master_of(key, &self.first);
        for _ in 0..REDIRECTIONS {
            let answer = request(master.connection.clone()).await;
            match answer.as_ref().err().and_then(moved_to) {
                None => return master.judge(answer),
                Some(to) => master = cluster.moved(key, to).await?,
            }
        }
        let why = format!("the cluster redirected a request {REDIRECTIONS} times");
        Err(SessionError::Definite(why))
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a time to live is below 584 million years")
}

#[async_trait(?Send)]
impl RedisSession for RedisClientSession {
    fn is_broken(&self) -> bool {
        match &self.cluster {
            // which may have none of the keys that were asked for
            Some(cluster) if cluster.know_a_key() => cluster.are_broken(),
            _ => self.first.is_broken(),
        }
    }

    async fn set_nx(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, SessionError> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("NX");
        if let Some(ttl) = ttl {
            set.arg("PX").arg(ms(ttl));
        }
        let answer: Option<String> = self.call(key, &set).await?;
        Ok(answer.is_some())
    }

    async fn get(&self, key: &str) -> Result<Option<String>, SessionError> {
        self.call(key, redis::cmd("GET").arg(key)).await
    }

    async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>, SessionError> {
        self.call(key, redis::cmd("GETSET").arg(key).arg(value)).await
    }

    async fn expire(&self, key: &str, ttl: Duration) -> Result<bool, SessionError> {
        self.call(key, redis::cmd("PEXPIRE").arg(key).arg(ms(ttl))).await
    }

    async fn del(&self, key: &str) -> Result<bool, SessionError> {
        self.call(key, redis::cmd("DEL").arg(key)).await
    }

    async fn del_if(&self, key: &str, value: &str) -> Result<bool, SessionError> {
        match self.compare {
            CompareBy::Script => self.script(key, DEL_IF.key(key).arg(value)).await,
            CompareBy::Command => self.call(key, redis::cmd("DELIFEQ").arg(key).arg(value)).await,
        }
    }

    async fn del_if_and_publish(&self, key: &str, value: &str, channel: &str) -> Result<bool, SessionError> {
        self.script(key, DEL_IF_AND_PUBLISH.key(key).arg(value).arg(channel))
            .await
    }

    async fn expire_if(&self, key: &str, value: &str, ttl: Duration) -> Result<bool, SessionError> {
        let CompareBy::Command = self.compare else {
            return self.script(key, EXPIRE_IF.key(key).arg(value).arg(ms(ttl))).await;
        };
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("IFEQ").arg(value).arg("PX").arg(ms(ttl));
        let answer: Option<String> = self.call(key, &set).await?;
        Ok(answer.is_some())
    }

    async fn subscribe(&self, channel: &str) -> Result<Box<dyn Subscription>, SessionError> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let mut connection = connect(&self.first.server, self.config.clone().set_push_sender(sender)).await?;
        match connection.subscribe(channel).await {
            Ok(()) => Ok(Box::new(RedisClientSubscription {
                pushes,
                _connection: connection,
            })),
            Err(error) => Err(SessionError::Indefinite(format!("subscribe: {error}"))),
        }
    }
}

struct RedisClientSubscription {
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    _connection: MultiplexedConnection,
}

#[async_trait(?Send)]
impl Subscription for RedisClientSubscription {
    async fn next(&mut self) -> Option<String> {
        loop {
            let push = self.pushes.recv().await?;
            match push.kind {
                PushKind::Message => {
                    let text = push.data.into_iter().nth(1)?;
                    return redis::from_redis_value(text).ok();
                }
                PushKind::Disconnection => return None,
                _ => {}
            }
        }
    }
}
