//! `pg-row-lease-read-write`: as `pg-row-lease`, but the row is read, and then written without a comparison. Broken.
//!
//! 1. `SELECT` whether the lease has run out; poll while it has not;
//! 2. `INSERT … ON CONFLICT DO UPDATE … RETURNING token` without a condition: all who have read that it is free take it;
//! 3. `UPDATE … WHERE owner = …` to release.
//!
//! Source: the code of many applications before they know of compare and set, called "read-modify-write" in the PostgreSQL documentation,
//! "Transaction Isolation": <https://www.postgresql.org/docs/current/transaction-iso.html>.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "pg-row-lease-read-write",
    "broken: the row is read, and then written without a comparison",
    Constructor::Postgres(|context| Box::new(RowLease::new(context, LeaseForm::Blind, LeaseForm::Compared))),
);
