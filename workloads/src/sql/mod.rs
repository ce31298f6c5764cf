//! Locks on SQL servers: what the recipes for PostgreSQL and MariaDB share.
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

use std::time::Duration;

use crate::contract::Wakeup;
use crate::recipe::{Constructor, Recipe, RecipeContext};
pub use crate::session::sql::{LeaseForm, LockScope, SqlConnect, SqlSession};

/// What a recipe for an SQL server is given.
pub(crate) type SqlContext = RecipeContext<dyn SqlConnect>;

/// A recipe whose lock a session or a transaction owns: it has no lease.
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

/// A recipe whose lock is a lease in a row.
pub(crate) const fn of_row(name: &'static str, summary: &'static str, constructor: Constructor) -> Recipe {
    Recipe {
        wakeup: Wakeup::Polling,
        fifo: false,
        renews: false,
        interval: Duration::from_millis(20),
        ..Recipe::new(name, summary, constructor)
    }
}

/// A polling waiter pauses for half the interval and up to this much of it more, so that waiters do not fall into step.
const JITTER_PERCENT: u64 = 100;

/// The pause before a polling waiter asks again: 50 to 150 percent of the interval, at random.
fn poll_pause(context: &SqlContext) -> Duration {
    let interval = context.options.interval;
    let jitter = u32::try_from(context.host.random() % (JITTER_PERCENT + 1)).expect("a percentage");
    interval / 2 + interval * jitter / 100
}
