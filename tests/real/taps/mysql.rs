//! A tap of MySQL's protocol compared with MariaDB's own counters: statements in text and prepared ones, with and without EOF.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use harness::cluster::find_program;
use harness_proxy::tap::Protocol;
use harness_workloads::BackendId;
use harness_workloads::mariadb::MysqlConnection;

use super::TappedLink;
use crate::machine::{LIMIT, OneServer, succeeds};

/// A connection that sends raw packets: the protocol since 4.1, with EOF after columns.
struct PacketConnection(TcpStream);

impl PacketConnection {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it takes connections");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket option");
        let mut connection = Self(stream);
        connection.packet();
        let capabilities: u32 = 1 | 1 << 9 | 1 << 15 | 1 << 19;
        let head = [&capabilities.to_le_bytes()[..], &[0, 0, 0, 64, 45], &[0; 23]].concat();
        connection.send(1, &[&head[..], b"root\0\0mysql_native_password\0"].concat());
        assert_eq!(connection.packet()[0], 0, "it is let in");
        connection
    }

    fn send(&mut self, number: u8, body: &[u8]) {
        let length = (body.len() as u32).to_le_bytes();
        let packet = [&length[..3], &[number], body].concat();
        self.0.write_all(&packet).expect("sent");
    }

    fn packet(&mut self) -> Vec<u8> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).expect("an answer");
        let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        self.0.read_exact(&mut body).expect("an answer");
        body
    }

    /// Sends a command, and reads an answer of this number of packets. Returns the first of them.
    fn ask(&mut self, body: &[u8], packets: usize) -> Vec<u8> {
        self.send(0, body);
        let all: Vec<Vec<u8>> = (0..packets).map(|_| self.packet()).collect();
        all.into_iter().next().unwrap_or_default()
    }
}

/// Prepares `SELECT GET_LOCK(?, 0)` and executes it, with pings, a file of statements' data, and the end of the statement.
fn speak_in_packets(connection: &mut PacketConnection) {
    let prepared = connection.ask(b"\x16SELECT GET_LOCK(?, 0)", 5);
    let statement = prepared[1..5].to_vec();
    let of = |code: u8| [&[code], &statement[..]].concat();
    for lock in [b"a", b"b"] {
        let head = [&of(0x17)[..], &[0, 1, 0, 0, 0, 0, 1, 0xfd, 0, 1]].concat();
        connection.ask(&[&head[..], lock].concat(), 5);
    }
    connection.ask(b"\x0e", 1);
    connection.ask(&of(0x1a), 1);
    connection.ask(&of(0x19), 0);
    connection.ask(b"\x03SELECT RELEASE_LOCK('a')", 5);
    connection.ask(b"\x1f", 1);
    connection.ask(b"\x01", 0);
}

/// Returns the server's counters by name, and the number of questions for them. Waits until this connection is the only one, and
/// for half a second without other questions: a busy server counts the commands of an earlier connection after its end.
fn counters(server: &OneServer) -> (BTreeMap<String, u64>, u64) {
    let statement =
        "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name IN ('Questions', 'Threads_connected')";
    server.runtime.block_on(async {
        let mut asking = MysqlConnection::connect(server.address, None).await.expect("it serves");
        let (mut asked, mut before, mut quiet) = (0, 0, 0);
        loop {
            let rows = asking.query(statement).await.expect("counters").rows;
            asked += 1;
            let counters = rows.into_iter().filter_map(|row| match &row[..] {
                [Some(name), Some(count)] => Some((name.clone(), count.parse().ok()?)),
                _ => None,
            });
            let counters: BTreeMap<String, u64> = counters.collect();
            let is_quiet = counters["Threads_connected"] == 1 && counters["Questions"] == before + 1;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == 5 {
                return (counters, asked);
            }
            before = counters["Questions"];
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

#[test]
fn a_tap_counts_the_statements_that_mariadb_counts() {
    let server = OneServer::start(BackendId::Mariadb);
    let tapped = TappedLink::to(server.address, Protocol::Mysql);
    let Some(program) = find_program("mariadb") else {
        eprintln!("left out: `mariadb` is in Debian's package mariadb-client");
        return;
    };
    let (before, _) = counters(&server);
    speak_in_packets(&mut PacketConnection::to(tapped.link.listen()));
    // its library requests no EOF after the columns
    let mut client = Command::new(program);
    client.args([
        "--no-defaults",
        "--host=127.0.0.1",
        "--user=root",
        "--batch",
        "--execute",
    ]);
    client.arg(
        "CREATE DATABASE d; USE d; CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2); UPDATE t SET a = 1 WHERE a = 1; \
         SELECT a FROM t; SELECT GET_LOCK('l0', 0); DELETE FROM t; SELECT RELEASE_LOCK('l0'); DROP DATABASE d",
    );
    client.arg(format!("--port={}", tapped.link.listen().port()));
    succeeds(&mut client);
    let own = server.runtime.block_on(async {
        let mut own = MysqlConnection::connect(tapped.link.listen(), None)
            .await
            .expect("it serves");
        let mut answers = Vec::new();
        for statement in [
            "BEGIN",
            "SELECT 1 WHERE 0",
            "SELECT REPEAT('x', 100000)",
            "COMMIT",
            "nonsense",
        ] {
            answers.push(own.query(statement).await.is_ok());
        }
        answers
    });
    assert_eq!(own, [true, true, true, true, false]);
    let counts = tapped.counts();
    let (after, asked) = counters(&server);
    let counted = |name: &str| after[name] - before.get(name).copied().unwrap_or_default();
    let named = |names: &[&str]| -> u64 {
        let requests = tapped.hub.requests();
        let named = requests.iter().filter(|(name, ..)| names.contains(&name.as_str()));
        named.map(|(_, _, count)| count).sum()
    };
    let selects = named(&["SELECT", "GET_LOCK", "RELEASE_LOCK"]);
    assert_eq!(selects, counted("Com_select"));
    assert_eq!(
        named(&["GET_LOCK"]),
        counted("Com_stmt_execute") + 1,
        "two were prepared, one was text"
    );
    for (name, counter) in [
        ("INSERT", "Com_insert"),
        ("UPDATE", "Com_update"),
        ("DELETE", "Com_delete"),
        ("PREPARE", "Com_stmt_prepare"),
        ("BEGIN", "Com_begin"),
        ("COMMIT", "Com_commit"),
        ("USE", "Com_change_db"),
    ] {
        assert_eq!(named(&[name]), counted(counter), "{name}");
    }
    // the server counts an end and each question for its counters, and no preparation and no statement that is reset
    let unnamed = counted("Com_stmt_prepare") + counted("Com_stmt_reset");
    let ends = 4;
    assert_eq!(counts.requests + ends + asked, counted("Questions") + unnamed);
    assert_eq!(counts.replies, counts.requests);
}
