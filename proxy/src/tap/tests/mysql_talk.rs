//! A conversation with a MySQL server: logging in by another method, statements in text, prepared ones, and answers in every form.

use super::{Said, client, server};
use crate::tap::{Protocol, TLS};

/// Returns a packet with its number.
fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&length[..3], &[number], body].concat()
}

/// Packets one after the other, from this number on.
fn packets(from: u8, bodies: &[&[u8]]) -> Vec<u8> {
    let numbered = bodies.iter().zip(from..).map(|(body, number)| packet(number, body));
    numbered.collect::<Vec<_>>().concat()
}

fn query(statement: &str) -> Said {
    client(packet(0, &[b"\x03", statement.as_bytes()].concat()))
}

/// Returns a greeting that offers these capabilities.
fn greeting(capabilities: u32) -> Said {
    let [a, b, c, d] = capabilities.to_le_bytes();
    let text = b"\x0a5.5.5-10.11.6-MariaDB\0";
    let rest = [&[7, 0, 0, 0], &b"abcdefgh\0"[..], &[a, b, 8, 2, 0, c, d, 21], &[0; 10]].concat();
    server(packet(
        0,
        &[&text[..], &rest, b"ijklmnopqrst\0mysql_native_password\0"].concat(),
    ))
}

fn log_in(capabilities: u32) -> Said {
    let head = [&capabilities.to_le_bytes()[..], &[0, 0, 0, 64, 45], &[0; 23]].concat();
    client(packet(1, &[&head[..], b"root\0\0mysql_native_password\0"].concat()))
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const CHANGED: &[u8] = &[0, 1, 0, 2, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
/// The EOF after a result that another one follows, and the OK in place of an EOF.
const MORE: &[u8] = &[0xfe, 0, 0, 8, 0];
const LAST_OK: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];
const PROGRESS: &[u8] = b"\xff\xff\xff\x01\x01\x02\0\0\0\x01x";
const PARAMETER: &[u8] = b"\x18\x05\0\0\0\0\0x";
const CLOSE: &[u8] = b"\x19\x05\0\0\0";
const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x15\0\0\0\x08\x81\0\0\0\0";

/// Long passwords, the protocol since 4.1, secure connections, methods by name.
const PLAIN: u32 = 1 | 1 << 9 | 1 << 15 | 1 << 19;

pub(super) fn conversation() -> Vec<Said> {
    let prepared = [0, 5, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0];
    let executed = [
        &[0x17, 5, 0, 0, 0, 0, 1, 0, 0, 0][..],
        &[0, 1, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    vec![
        greeting(PLAIN),
        log_in(PLAIN),
        server(packet(2, b"\xfemysql_native_password\0abcdefghijklmnopqrst\0")),
        client(packet(3, &[1; 20])),
        server(packet(4, OK)),
        query("SELECT GET_LOCK('l0', 0)"),
        server(packets(1, &[b"\x01", COLUMN, EOF, b"\x010", EOF])),
        query("/* app */ insert into x values (1)"),
        server(packet(1, CHANGED)),
        query("UPDATE x SET a = 1"),
        server(packet(1, OK)),
        client(packet(0, b"\x16SELECT IS_FREE_LOCK(?)")),
        server(packets(1, &[&prepared, COLUMN, EOF, COLUMN, EOF])),
        client(packet(0, &executed)),
        server(packets(1, &[b"\x01", COLUMN, EOF, &[0, 0, 1, 0, 0, 0], EOF])),
        // data of a parameter and the end of a statement have no answer
        client([packet(0, PARAMETER), packet(0, CLOSE), packet(0, b"\x0e")].concat()),
        server(packet(1, OK)),
        // two results of one call, and how far it is before them
        query("CALL two()"),
        server(packets(1, &[PROGRESS, b"\x01", COLUMN, EOF, b"\x017", MORE, OK])),
        query("DELETE FROM nothing"),
        server(packet(1, b"\xff\x7a\x04#42S02no such table")),
        client(packet(0, b"\x01")),
    ]
}

/// Returns a conversation that asks for no EOF, and gets an OK at the end of the rows.
pub(super) fn without_eof() -> Vec<Said> {
    let capabilities = PLAIN | 1 << 24;
    vec![
        greeting(capabilities),
        log_in(capabilities),
        server(packet(2, OK)),
        query("SELECT a FROM x"),
        server(packets(1, &[b"\x01", COLUMN, b"\x0210", b"\x0211", LAST_OK])),
        client(packet(0, b"\x16INSERT INTO x VALUES (?)")),
        server(packets(1, &[&[0, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0], COLUMN])),
        client(packet(0, &[0x17, 6, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0])),
        server(packet(1, CHANGED)),
        query("COMMIT"),
        // unasked, the server says why it ends
        server([packet(1, OK), packet(0, b"\xff\x1d\x04#08S01shutdown")].concat()),
    ]
}

#[test]
fn an_answer_is_told_from_the_next_one_by_the_numbers_of_its_packets() {
    // after 256 of them the numbers are those of a new answer
    let body = |number: u32| -> &'static [u8] {
        match number {
            1 => b"\x01",
            2 => COLUMN,
            3 | 256 => EOF,
            _ => b"\x017",
        }
    };
    let rows = (1..=256).flat_map(|number| packet(number as u8, body(number)));
    let prepared = [0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let said = [
        greeting(PLAIN),
        log_in(PLAIN),
        server(packet(2, OK)),
        query("SELECT a FROM x"),
        server(rows.collect::<Vec<u8>>()),
        query("COMMIT"),
        server(packet(1, OK)),
        client([packet(0, b"\x16SELECT 1"), packet(0, b"\x0e")].concat()),
        server([packet(1, &prepared), packet(1, OK)].concat()),
    ];
    assert_eq!(
        super::names(Protocol::Mysql, &said),
        "SELECT <SELECT COMMIT <COMMIT PREPARE PING <PREPARE <PING"
    );
}

#[test]
fn what_a_tap_cannot_read_of_mysql_is_said() {
    let lost = |capabilities: u32, answer: Said| {
        let said = [greeting(capabilities), answer, server(packet(2, OK))];
        super::listen(Protocol::Mysql, &said).1
    };
    let wants_tls = [&(PLAIN | 1 << 11).to_le_bytes()[..], &[0; 28]].concat();
    assert_eq!(lost(PLAIN | 1 << 11, client(packet(1, &wants_tls))), Some(TLS));
    let compresses = PLAIN | 1 << 5;
    assert!(lost(compresses, log_in(compresses)).is_some_and(|why| why.0.contains("compresses")));
    assert_eq!(lost(PLAIN, log_in(compresses)), None, "the server cannot");
}
