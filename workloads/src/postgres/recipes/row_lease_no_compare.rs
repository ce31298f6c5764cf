//! `pg-row-lease-no-compare`: as `pg-row-lease`, but a release does not compare the owner. Broken.
//!
//! 1. `INSERT … ON CONFLICT DO UPDATE … WHERE ends < clock_timestamp() RETURNING token`;
//! 2. `UPDATE … WHERE name = …` to release: a late one frees the next holder's lock.
//!
//! Source: `pg-row-lease` without the comparison, as `DEL` without one on Redis.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "pg-row-lease-no-compare",
    "broken: the row is released without a look at its owner",
    Constructor::Postgres(|context| Box::new(RowLease::new(context, LeaseForm::Compared, LeaseForm::Blind))),
);
