//! Locks on SQL servers: the shared parts of the recipes for PostgreSQL and MariaDB.
//!
//! They are written against [`SqlSession`]. `session_lock` is a lock that a session of the server owns and that ends with it,
//! `row_lease` a row with the end of a lease.

#[cfg(test)]
mod fake;
pub(crate) mod row_lease;
mod server;
pub(crate) mod session_lock;

#[cfg(test)]
mod tests;

pub(crate) use server::SqlServer;

use std::rc::Rc;
use std::time::Duration;

use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe, SqlContext};
pub use crate::session::sql::{LeaseForm, LockScope, SqlConnect, SqlSession};
use crate::session::{RETRY_PAUSE, SessionError};

/// Makes a recipe whose lock a session or a transaction owns: it has no lease.
pub(crate) const fn of_session(name: &'static str, summary: &'static str, constructor: Constructor) -> Recipe {
    Recipe {
        wakeup: Wakeup::Unreported,
        tokens: false,
        fifo: false,
        lease: false,
        renews: false,
        ..Recipe::new(name, summary, constructor)
    }
}

/// Makes a recipe whose lock is a lease in a row.
pub(crate) const fn of_row(name: &'static str, summary: &'static str, constructor: Constructor) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        fifo: false,
        renews: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, constructor)
    }
}

/// Returns a new connection; tries until the limit.
async fn connected(context: &SqlContext, limit: Duration) -> Result<Rc<dyn SqlSession>, SessionError> {
    loop {
        match context.store.connect().await {
            Err(_) if context.host.now() < limit => context.host.sleep(RETRY_PAUSE).await,
            answer => return answer,
        }
    }
}
