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

use super::{QueueService, Recipe, ServiceLock, Wakeup, etcd};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Unreported,
    ..etcd("etcd-lock-rpc", "the server's own lock service", |context| {
        Box::new(ServiceLock::new(context, QueueService::Lock))
    })
};
