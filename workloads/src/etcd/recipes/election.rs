//! `etcd-election`: leader election by the server's own service, as a lock.
//!
//! 1. take a lease, and keep it alive;
//! 2. `Campaign(name, lease, value)`: the server creates `name/<lease>`, waits until every older key under the name is
//!    gone, and answers with the leader's key and its create revision;
//! 3. `Resign(leader)` to release.
//!
//! The event that wakes the server does not reach the client, so `woken` is never raised.
//!
//! Source: etcd's `v3election` service, <https://etcd.io/docs/v3.5/dev-guide/api_concurrency_reference_v3/>, which runs
//! `Election` of `clientv3/concurrency`:
//! <https://github.com/etcd-io/etcd/blob/main/client/v3/concurrency/election.go>.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::etcd;
use crate::client::{LockClient, LockGrant, LockResult};
use crate::contract::Wakeup;
use crate::etcd::lease_session::{KeyNames, LeaseSession};
use crate::etcd::server_wait::{ask, service_name};
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::etcd::{EtcdKey, EtcdSession, Leader};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Unreported,
    ..etcd(
        "etcd-election",
        "leader election by the server's own service, as a lock",
        |context| {
            Box::new(ElectionLock {
                base: LeaseSession::new(context, KeyNames::PerLease),
                leaders: BTreeMap::new(),
            })
        },
    )
};

struct ElectionLock {
    base: LeaseSession,
    /// The keys of elections that were won, by lock, which a resignation needs.
    leaders: BTreeMap<String, Leader>,
}

#[async_trait(?Send)]
impl LockClient for ElectionLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let name = service_name(&request.lock);
        let campaign = async |session: &dyn EtcdSession, lease: i64, wait: Duration| {
            session.campaign(&name, "leader", lease, wait).await
        };
        let (leader, keeper) = ask(&mut self.base, request, campaign).await?;
        let key = EtcdKey {
            name: leader.key.as_str().into(),
            create_revision: leader.revision,
            ..EtcdKey::default()
        };
        self.leaders.insert(request.lock.clone(), leader);
        Ok(self.base.begin_hold(&request.lock, key, &keeper))
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let leader = self.leaders.remove(lock).unwrap_or_default();
        self.base
            .release_by(lock, async |session, _| session.resign(&leader).await)
            .await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
