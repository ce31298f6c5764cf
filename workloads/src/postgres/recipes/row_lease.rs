//! `pg-row-lease`: a lease in a row, compared and set in one statement, with a fencing token.
//!
//! 1. `INSERT … ON CONFLICT DO UPDATE … WHERE ends < clock_timestamp() RETURNING token`; poll while it returns nothing;
//! 2. `UPDATE … WHERE owner = …` to release.
//!
//! The times are the server's. The token grows with each grant.
//!
//! Source: the PostgreSQL documentation, "INSERT", section "ON CONFLICT Clause":
//! <https://www.postgresql.org/docs/current/sql-insert.html#SQL-ON-CONFLICT>; tokens as in M. Kleppmann, "How to do distributed
//! locking": <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "pg-row-lease",
    "a row with owner, token and end; taken and released by one statement that compares",
    Constructor::Postgres(|context| Box::new(RowLease::new(context, LeaseForm::Compared, LeaseForm::Compared))),
);
