//! `etcd-election`: leader election by the server's own service, as a lock.
//!
//! 1. take a lease, and keep it alive;
//! 2. `Campaign(name, lease, value)`: the server creates `name/<lease>`, waits until every older key under the name is
//!    gone, and answers with the leader's key and its create revision;
//! 3. `Resign(leader)` to release.
//!
//! What wakes the server does not reach the client, so no `woken` is raised.
//!
//! Source: etcd's `v3election` service and `clientv3/concurrency`, `Election`.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

use super::served::{ask, service_name};
use super::session::{EtcdConnect, EtcdSession, Key, Leader};
use super::tenant::{Keys, Tenant};
use crate::client::{Grant, LockClient, Outcome};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn EtcdConnect>) -> Box<dyn LockClient> {
    Box::new(Election {
        tenant: Tenant::new(seat, Keys::Own),
        leaders: BTreeMap::new(),
    })
}

struct Election {
    tenant: Tenant,
    /// What the server wants to be told to resign, by lock.
    leaders: BTreeMap<String, Leader>,
}

#[async_trait(?Send)]
impl LockClient for Election {
    async fn open(&mut self) -> Outcome<Grant> {
        self.tenant.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let name = service_name(&request.lock);
        let campaign = async |session: &dyn EtcdSession, lease: i64, wait: Duration| {
            session.campaign(&name, "leader", lease, wait).await
        };
        let (leader, _, tenancy) = ask(&mut self.tenant, request, campaign).await?;
        let key = Key {
            name: leader.key.clone(),
            create_revision: leader.revision,
            ..Key::default()
        };
        self.leaders.insert(request.lock.clone(), leader);
        Ok(self.tenant.hold(&request.lock, key, &tenancy))
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        let (session, key, lease) = self.tenant.let_go(lock)?;
        let leader = self.leaders.remove(lock).unwrap_or_default();
        let limit = self.tenant.now() + self.tenant.seat.lease / 2;
        match self.tenant.insist(limit, || session.resign(&leader)).await {
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
