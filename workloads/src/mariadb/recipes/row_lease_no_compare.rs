//! `mysql-row-lease-no-compare`: as `mysql-row-lease`, but a release does not compare the owner. Broken.
//!
//! 1. `INSERT … ON DUPLICATE KEY UPDATE column = IF(ends < UTC_TIMESTAMP(6), …, column)`;
//! 2. `UPDATE … WHERE name = …` to release: a late one frees the next holder's lock.
//!
//! Source: `mysql-row-lease` without the comparison, as `DEL` without one on Redis.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "mysql-row-lease-no-compare",
    "broken: the row is released without a look at its owner",
    Constructor::Mariadb(|context| Box::new(RowLease::new(context, LeaseForm::Compared, LeaseForm::Blind))),
);
