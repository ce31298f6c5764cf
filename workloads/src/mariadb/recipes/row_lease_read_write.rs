//! `mysql-row-lease-read-write`: as `mysql-row-lease`, but the row is read, and then written without a comparison. Broken.
//!
//! 1. `SELECT` whether the lease has run out; poll while it has not;
//! 2. `INSERT … ON DUPLICATE KEY UPDATE …` without a condition: all who have read that it is free take it;
//! 3. `UPDATE … WHERE owner = …` to release.
//!
//! Source: the code of many applications before they know of compare and set; a plain `SELECT` locks nothing, as the MySQL Reference Manual
//! has it in "Consistent Nonlocking Reads": <https://dev.mysql.com/doc/refman/8.4/en/innodb-consistent-read.html>.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "mysql-row-lease-read-write",
    "broken: the row is read, and then written without a comparison",
    Constructor::Mariadb(|context| Box::new(RowLease::new(context, LeaseForm::Blind, LeaseForm::Compared))),
);
