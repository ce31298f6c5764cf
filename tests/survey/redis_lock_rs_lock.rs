//! The crate redis-lock's `lock_across`, which runs a future while it has the lock: <https://docs.rs/redis-lock>
//!
//! The future of a hold waits for the release. The library tells the application nothing while the future runs, which looks at its
//! clock.

mod harness_client;

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use harness_client::{Attempt, Failure, leased, ping_most, redis_url, serve_timed};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis_lock::{AcquireLockError, LockAcrossError, LockAcrossOptions, lock_across};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

type Connections = Vec<Arc<Mutex<ConnectionManager>>>;

struct RedisLockRs {
    runtime: Runtime,
    connections: Connections,
    lease: Duration,
}

/// The end of the future, and what came of `lock_across` after it.
struct Across {
    end: oneshot::Sender<()>,
    ended: mpsc::Receiver<Result<(), Failure>>,
}

/// The library's way with a lock, from the acquire to the release.
async fn across(
    connections: Connections,
    lock: String,
    lease: Duration,
    taken: mpsc::Sender<()>,
    until: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    // it is asked once: the pause before the next attempt is as long as the wait
    let rest = Duration::from_millis(20);
    let options = LockAcrossOptions { ttl: lease, retry: rest, duration: rest };
    let work = async move {
        let _ = taken.send(());
        let _ = until.await;
    };
    match lock_across(&connections, &lock, work, options).await {
        Err(LockAcrossError::Acquire(AcquireLockError::Failed(why))) => Err(Failure::Refused(why)),
        outcome => Ok(outcome?),
    }
}

impl Attempt for RedisLockRs {
    type Held = Across;

    fn contract() -> Value {
        leased(json!({}))
    }

    fn open(endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        ping_most(endpoints, lease)?;
        let runtime = Runtime::new()?;
        let limit = lease / 3;
        let limits = ConnectionManagerConfig::new().set_response_timeout(limit).set_connection_timeout(limit);
        // it would wait for a minute from the second failure to connect
        let limits = limits.set_max_delay(limit.as_millis() as u64);
        let mut connections = Vec::new();
        for endpoint in endpoints {
            let client = redis::Client::open(redis_url(endpoint))?;
            let connecting = ConnectionManager::new_with_config(client, limits.clone());
            let connection = runtime.block_on(async { timeout(2 * lease, connecting).await })??;
            connections.push(Arc::new(Mutex::new(connection)));
        }
        Ok(Self { runtime, connections, lease })
    }

    fn attempt(&mut self, lock: &str) -> Result<Option<Across>, Failure> {
        let (taken, was_taken) = mpsc::channel();
        let (end, until) = oneshot::channel();
        let (over, ended) = mpsc::channel();
        let (runtime, connections) = (self.runtime.handle().clone(), self.connections.clone());
        let (lock, lease) = (lock.to_owned(), self.lease);
        thread::spawn(move || over.send(runtime.block_on(across(connections, lock, lease, taken, until))));
        match was_taken.recv_timeout(2 * self.lease) {
            Ok(()) => Ok(Some(Across { end, ended })),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Unknown("no answer within two leases".into())),
            Err(RecvTimeoutError::Disconnected) => match ended.recv()? {
                Err(Failure::Refused(_)) => Ok(None),
                Err(failure) => Err(failure),
                Ok(()) => Err(Failure::Unknown("it ended at once".into())),
            },
        }
    }

    fn release(&mut self, held: Across) -> Result<(), Failure> {
        let _ = held.end.send(());
        held.ended.recv_timeout(2 * self.lease)?
    }
}

fn main() {
    serve_timed::<RedisLockRs>();
}
