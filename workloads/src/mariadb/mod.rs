//! Locks on MariaDB and MySQL.
//!
//! [`recipes`](self) has one file a recipe. They are written against the session of [`sql`](crate::sql), which
//! `client_session` implements for real servers, on a [`MysqlConnection`].

mod client_session;
mod connection;
pub(crate) mod recipes;

pub use client_session::MariadbServer;
pub use connection::{MysqlAnswer, MysqlConnection, MysqlError};

use crate::login::variable;

/// The database of the recipes' table, unless `MYSQL_DATABASE` names another.
const DATABASE: &str = "harness";

/// The name of the table in which recipes keep leases.
pub const LEASES: &str = "harness_leases";

/// Returns the database that the recipes use: `MYSQL_DATABASE`, or one of their own.
pub fn database() -> String {
    variable("MYSQL_DATABASE").unwrap_or_else(|| DATABASE.to_owned())
}

/// Returns the statements that make the recipes' database and table, unless they are there.
pub fn tables() -> [String; 2] {
    [
        format!("CREATE DATABASE IF NOT EXISTS {}", identifier(&database())),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(64), token BIGINT NOT NULL, \
             ends DATETIME(6) NOT NULL) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
            leases()
        ),
    ]
}

/// Returns the table of leases with its database, for a statement.
pub fn leases() -> String {
    format!("{}.{LEASES}", identifier(&database()))
}

/// Quotes a name of a database or table, for a statement.
pub fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Quotes a text, for a statement: in quotes where it has no character that a mode of the server reads in another way, else in hexadecimal
/// digits.
pub fn literal(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '\'' | '"' | '\\');
    if text.chars().all(plain) {
        return format!("'{text}'");
    }
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("_utf8mb4 x'{digits}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_could_end_its_quotes_is_written_in_digits() {
        assert_eq!(literal("harness-1a2b-l0"), "'harness-1a2b-l0'");
        assert_eq!(literal("a'b"), "_utf8mb4 x'612762'");
        assert_eq!(literal("\\"), "_utf8mb4 x'5c'");
        assert_eq!(identifier("a`b"), "`a``b`");
    }
}
