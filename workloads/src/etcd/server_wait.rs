//! The client of the recipes on the server's own services ([`ServiceLock`]): the server queues on behalf of its client, and the client
//! waits for one answer. Its key is `name/<lease>`, so it can be found again when the answer is lost.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::lease_keeper::LeaseKeeper;
use super::lease_session::{KeyNames, LeaseSession};
use super::{EtcdContext, lock_prefix};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::protocol::AcquireRequest;
use crate::session::etcd::{EtcdKey, EtcdSession, Leader};
use crate::session::{RETRY_PAUSE, SessionError};

/// A try-lock gives the server the lease divided by this to answer: its services have no try-lock.
const TRIES_A_LEASE: u32 = 4;

/// A service of the server that queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueService {
    Lock,
    Election,
}

/// A client of a service.
pub(super) struct ServiceLock {
    base: LeaseSession,
    service: QueueService,
    /// The answers to the client that has a lock, by lock: a resignation needs them.
    leaders: BTreeMap<String, Leader>,
}

impl ServiceLock {
    pub(super) fn new(context: EtcdContext, service: QueueService) -> Self {
        ServiceLock {
            base: LeaseSession::new(context, KeyNames::PerLease),
            service,
            leaders: BTreeMap::new(),
        }
    }

    /// Calls the service for a lock of this name, to which it adds a `/` and the lease. The lock service answers with the key only.
    async fn call(&self, name: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError> {
        let store = &self.base.context.store;
        match self.service {
            QueueService::Lock => Ok(Leader {
                key: store.lock(name, lease, wait).await?,
                ..Leader::default()
            }),
            QueueService::Election => store.campaign(name, "leader", lease, wait).await,
        }
    }

    /// Asks the server for the lock until it answers or the wait is over.
    ///
    /// A call that ended without an answer may have left a key, which is deleted before the next call. So may an answer that a
    /// careful client cannot believe, since it was on its way for longer than the lease is sure to last.
    async fn ask(&mut self, request: &AcquireRequest) -> LockResult<(Leader, Rc<LeaseKeeper>)> {
        let name = lock_prefix(&request.lock).trim_end_matches('/').to_owned();
        let deadline = self.base.now() + Duration::from_millis(request.wait_ms);
        let limit = deadline + self.base.context.lease / 2;
        self.base.begin(request).await?;
        loop {
            let keeper = self.base.ready().await?;
            let wait = deadline
                .saturating_sub(self.base.now())
                .max(self.base.context.lease / TRIES_A_LEASE);
            let answer = self.call(&name, keeper.lease, wait).await;
            self.base.note(&answer);
            let is_sure = !self.base.context.is_careful() || keeper.is_sure(self.base.now());
            let refused = match answer {
                Ok(leader) if is_sure => return Ok((leader, keeper)),
                // the lease is gone: a new one, if there is time
                Err(SessionError::Definite(reason)) => {
                    self.base.drop_lease();
                    LockError::refused(reason)
                }
                unbelieved => {
                    let own = self.base.own_key(&request.lock, keeper.lease);
                    let refused = match unbelieved {
                        Ok(_) => LockError::refused("the lease is not sure"),
                        Err(_) => LockError::wait_over(request),
                    };
                    match self.base.withdraw(own, refused, limit).await {
                        unknown @ LockError::Unknown(_) => return Err(unknown),
                        refused => refused,
                    }
                }
            };
            if self.base.now() >= deadline {
                return Err(refused);
            }
            self.base.context.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Returns the client's own key, as far as it is known. That of the lock service is looked at for its revision.
    async fn key(&self, leader: &Leader) -> EtcdKey {
        if self.service == QueueService::Lock
            && let Ok(Some(found)) = self.base.context.store.get(&leader.key).await
        {
            return found;
        }
        EtcdKey {
            name: leader.key.as_str().into(),
            create_revision: leader.revision,
            ..EtcdKey::default()
        }
    }
}

#[async_trait(?Send)]
impl LockClient for ServiceLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let (leader, keeper) = self.ask(request).await?;
        let key = self.key(&leader).await;
        self.leaders.insert(request.lock.clone(), leader);
        Ok(self.base.begin_hold(&request.lock, key, &keeper))
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let leader = self.leaders.remove(lock).unwrap_or_default();
        let service = self.service;
        let release = async |session: &dyn EtcdSession, key: &str| match service {
            QueueService::Lock => session.unlock(key).await,
            QueueService::Election => session.resign(&leader).await,
        };
        self.base.release_by(lock, release).await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
