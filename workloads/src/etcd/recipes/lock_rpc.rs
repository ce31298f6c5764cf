//! `etcd-lock-rpc`: the server's own lock service.
//!
//! 1. take a lease, and keep it alive;
//! 2. `Lock(name, lease)`: the server creates `name/<lease>`, waits until every older key under the name is gone, and
//!    answers with the key;
//! 3. `Unlock(key)` to release.
//!
//! The answer of the server is believed: whether the key is still there is not checked, and older servers grant to a waiter whose lease has
//! run out (<https://github.com/etcd-io/etcd/issues/11456>, found by Jepsen). The key's create revision is asked for as the token; a key
//! that is gone has none. The event that wakes the server does not reach the client, so `woken` is never raised.
//!
//! Source: etcd's `v3lock` service, <https://etcd.io/docs/v3.5/dev-guide/api_concurrency_reference_v3/>.

use std::time::Duration;

use async_trait::async_trait;

use super::etcd;
use crate::client::{LockClient, LockGrant, LockResult};
use crate::contract::Wakeup;
use crate::etcd::lease_session::{KeyNames, LeaseSession};
use crate::etcd::server_wait::{ask, service_name};
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::etcd::{EtcdKey, EtcdSession};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Unreported,
    ..etcd("etcd-lock-rpc", "the server's own lock service", |context| {
        Box::new(LockRpc {
            base: LeaseSession::new(context, KeyNames::PerLease),
        })
    })
};

struct LockRpc {
    base: LeaseSession,
}

#[async_trait(?Send)]
impl LockClient for LockRpc {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let name = service_name(&request.lock);
        let lock = async |session: &dyn EtcdSession, lease: i64, wait: Duration| session.lock(&name, lease, wait).await;
        let (name, keeper) = ask(&mut self.base, request, lock).await?;
        let found = self.base.context.store.get(&name).await.ok().flatten();
        let key = found.unwrap_or(EtcdKey {
            name: name.into(),
            ..EtcdKey::default()
        });
        Ok(self.base.begin_hold(&request.lock, key, &keeper))
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.base
            .release_by(lock, async |session, key| session.unlock(key).await)
            .await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
