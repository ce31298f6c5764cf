//! `mysql-row-lease`: a lease in a row, compared and set in one statement, with a fencing token.
//!
//! 1. `INSERT … ON DUPLICATE KEY UPDATE column = IF(ends < UTC_TIMESTAMP(6), …, column)`; poll while it changes nothing;
//! 2. `UPDATE … WHERE owner = … AND ends > UTC_TIMESTAMP(6)` to release.
//!
//! The times are the server's. The token grows with each grant, and comes back as `LAST_INSERT_ID(token + 1)`.
//!
//! Source: the MySQL Reference Manual, "INSERT … ON DUPLICATE KEY UPDATE Statement":
//! <https://dev.mysql.com/doc/refman/8.4/en/insert-on-duplicate.html>; tokens as in M. Kleppmann, "How to do distributed locking":
//! <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>.

use super::{Constructor, LeaseForm, Recipe, RowLease, of_row};

pub(super) const RECIPE: Recipe = of_row(
    "mysql-row-lease",
    "a row with owner, token and end; taken and released by one statement that compares",
    Constructor::Mariadb(|context| Box::new(RowLease::new(context, LeaseForm::Compared, LeaseForm::Compared))),
);
