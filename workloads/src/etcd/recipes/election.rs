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

use super::{QueueService, Recipe, ServiceLock, Wakeup, etcd};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Unreported,
    ..etcd(
        "etcd-election",
        "leader election by the server's own service, as a lock",
        |context| Box::new(ServiceLock::new(context, QueueService::Election)),
    )
};
