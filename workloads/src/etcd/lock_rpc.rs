//! `etcd-lock-rpc`: the server's own lock service.
//!
//! 1. take a lease, and keep it alive;
//! 2. `Lock(name, lease)`: the server creates `name/<lease>`, waits until every older key under the name is gone, and
//!    answers with the key;
//! 3. `Unlock(key)` to release.
//!
//! The server's word is taken: whether the key is still there is not checked, and servers before the fix of that grant
//! to a waiter whose lease has run out. The key's create revision is asked for as the token; a key that is not there has
//! none. What wakes the server does not reach the client, so no `woken` is raised.
//!
//! Source: etcd's `v3lock` service, as used by everyone who locks through the gRPC gateway.

use std::time::Duration;

use async_trait::async_trait;

use super::served::{ask, service_name};
use super::session::{EtcdConnect, EtcdSession, Key};
use super::tenant::{Keys, Tenant};
use crate::client::{Grant, LockClient, Outcome};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn EtcdConnect>) -> Box<dyn LockClient> {
    Box::new(LockRpc {
        tenant: Tenant::new(seat, Keys::Own),
    })
}

struct LockRpc {
    tenant: Tenant,
}

#[async_trait(?Send)]
impl LockClient for LockRpc {
    async fn open(&mut self) -> Outcome<Grant> {
        self.tenant.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let name = service_name(&request.lock);
        let lock = async |session: &dyn EtcdSession, lease: i64, wait: Duration| session.lock(&name, lease, wait).await;
        let (name, session, tenancy) = ask(&mut self.tenant, request, lock).await?;
        let found = session.get(&name).await.ok().flatten();
        let key = found.unwrap_or(Key { name, ..Key::default() });
        Ok(self.tenant.hold(&request.lock, key, &tenancy))
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        let (session, key, lease) = self.tenant.let_go(lock)?;
        let limit = self.tenant.now() + self.tenant.seat.lease / 2;
        match self.tenant.insist(limit, || session.unlock(&key)).await {
            Ok(_) => Ok(()),
            Err(error @ SessionError::Indefinite(_)) => {
                self.tenant.remember(key, lease);
                Err(error.on_release())
            }
            Err(error) => Err(error.on_release()),
        }
    }

    async fn close(&mut self) {
        self.tenant.close().await;
    }
}
