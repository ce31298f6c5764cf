//! Taps on conversations of each protocol: the names that come out, whole, in pieces, and damaged.

use proptest::prelude::*;

use super::*;

mod kept;
mod mysql_talk;
mod nats_talk;
mod skipped;
mod subscriptions;

/// Bytes that one side sends at once.
type Said = (Direction, Vec<u8>);

fn client(bytes: impl Into<Vec<u8>>) -> Said {
    (Direction::ToServer, bytes.into())
}

fn server(bytes: impl Into<Vec<u8>>) -> Said {
    (Direction::ToClient, bytes.into())
}

/// Returns a record of ZooKeeper: numbers, then bytes.
fn record(numbers: &[i32], rest: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .chain(rest.iter().copied())
        .collect();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn zookeeper() -> Vec<Said> {
    let reply = |xid| record(&[xid, 0, 7, 0], b"body");
    let path = b"/harness/l0/lock-0000000003";
    vec![
        client(record(&[0, 0, 0, 2000], b"password")),
        server(record(&[0, 2000, -1, 5], b"password")),
        client([record(&[1, 15], b"/harness/l0/lock-"), record(&[2, 8], b"/harness/l0")].concat()),
        server([reply(1), reply(2)].concat()),
        client(record(&[-2, 11], b"")),
        server(record(&[-1, -1, -1, 0, 2, 3, path.len() as i32], path)),
        server(record(&[-2, 0, 7, 0], b"")),
        client(record(&[3, 8], b"/harness/l0")),
        server(reply(3)),
        client(record(&[4, -11], b"")),
        server(reply(4)),
    ]
}

#[test]
fn a_multi_of_zookeeper_is_refused_if_its_operations_failed_though_its_head_has_no_error() {
    let answered = |results: &[u8]| {
        let said = [
            client(record(&[0, 0, 0, 2000], b"password")),
            server(record(&[0, 2000, -1, 5], b"password")),
            client(record(&[1, 14], b"operations")),
            server(record(&[1, 0, 7, 0], results)),
        ];
        names(Protocol::Zk, &said)
    };
    let result = |kind: i32, end: u8, error: i32| [&kind.to_be_bytes()[..], &[end], &error.to_be_bytes()].concat();
    let end = || result(-1, 1, -1);
    let failed = |error: i32| [result(-1, 0, error), error.to_be_bytes().to_vec()].concat();
    // a node that is there, behind an operation that was not done for it
    let refused = [failed(0), failed(-110), end()].concat();
    assert_eq!(answered(&refused), "connect <connect multi <-multi");
    for done in [[result(2, 0, 0), end()].concat(), end()] {
        assert_eq!(answered(&done), "connect <connect multi <multi");
    }
}

#[test]
fn four_letters_in_place_of_a_session_are_answered_with_text_and_ask_for_nothing() {
    for (word, answer) in [
        ("srvr", "Zookeeper version: 3.8.0-1, built on 2022\nMode: leader\n"),
        ("isro", "rw"),
        ("ruok\n", "isro is not executed because it is not in the whitelist."),
    ] {
        let whole = [client(word), server(answer)];
        let in_bytes = |(side, bytes): &Said| bytes.iter().map(|byte| (*side, vec![*byte])).collect::<Vec<_>>();
        let pieces: Vec<Said> = whole.iter().flat_map(in_bytes).collect();
        for said in [&whole[..], &pieces] {
            assert_eq!(listen(Protocol::Zk, said), (Vec::new(), None), "{word}");
        }
    }
    // a session has no words
    let in_a_session = [&zookeeper()[..], &[client("srvr")]].concat();
    assert!(listen(Protocol::Zk, &in_a_session).1.is_some());
}

fn redis() -> Vec<Said> {
    vec![
        client("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"),
        server("%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*0\r\n"),
        client("*4\r\n$3\r\nset\r\n$10\r\nharness:l0\r\n$4\r\n\r\n*1\r\n$2\r\nNX\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        server("+OK\r\n>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n_\r\n"),
        client("PING\r\n\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$2\r\nch\r\n"),
        server("+PONG\r\n>3\r\n$9\r\nsubscribe\r\n$2\r\nch\r\n:1\r\n"),
        server(">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$4\r\nfree\r\n"),
        client("*3\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n$1\r\n0\r\n*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n"),
        server("-NOSCRIPT no such script\r\n+OK\r\n*2\r\n*1\r\n:1\r\n$-1\r\n"),
    ]
}

fn redis_of_old() -> Vec<Said> {
    vec![
        client("*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n"),
        server("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"),
        server("*3\r\n$7\r\nmessage\r\n$1\r\nb\r\n$1\r\nx\r\n"),
        client("*1\r\n$4\r\nPING\r\n"),
        server("*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        client("*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\na\r\n"),
        server("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n"),
    ]
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the headers of a call: its path as a literal.
fn call(stream: u32, path: &str) -> Vec<u8> {
    let block = [&[0x83, 0x04, path.len() as u8][..], path.as_bytes()].concat();
    frame(1, 0x4, stream, &block)
}

fn message(stream: u32, end: bool, body: &[u8]) -> Vec<u8> {
    let head = (body.len() as u32).to_be_bytes();
    frame(0, u8::from(end), stream, &[&[0][..], &head, body].concat())
}

/// Returns the beginning of a client's connection, with these frames.
fn opened(frames: &[Vec<u8>]) -> Said {
    client([PREFACE.to_vec(), frames.concat()].concat())
}

/// Returns a field of a protobuf message that has a length.
fn field(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8][..], body].concat()
}

/// Returns a watch's message: a header, then an event about a key.
fn event(key: &str) -> Vec<u8> {
    let pair = field(2, &field(1, key.as_bytes()));
    [
        field(1, &[8, 1]),
        vec![16, 7],
        field(11, &[&[8, 1][..], &pair].concat()),
    ]
    .concat()
}

fn etcd() -> Vec<Said> {
    let headers = |stream, flags: u8| frame(1, 0x4 | flags, stream, &[0x88]);
    vec![
        opened(&[frame(4, 0, 0, &[])]),
        server(frame(4, 0, 0, &[0, 3, 0, 0, 0, 250])),
        client([call(1, "/etcdserverpb.KV/Txn"), message(1, true, b"compare")].concat()),
        server([headers(1, 0), message(1, false, b"done"), headers(1, 1)].concat()),
        client([call(3, "/etcdserverpb.Watch/Watch"), message(3, false, b"create")].concat()),
        server([headers(3, 0), message(3, false, &[10, 0, 24, 1])].concat()),
        client(frame(6, 0, 0, &[1; 8])),
        server([frame(6, 1, 0, &[1; 8]), message(3, false, &event("harness/l0/1"))].concat()),
        client([call(5, "/etcdserverpb.Lease/LeaseKeepAlive"), message(5, false, b"id")].concat()),
        server([headers(5, 0), message(5, false, b"ttl")].concat()),
        client(message(5, false, b"id")),
        server(message(5, false, b"ttl")),
        client([call(7, "/v3lockpb.Lock/Unlock"), message(7, true, b"")].concat()),
        server(frame(1, 0x5, 7, &[0x88])),
        client([call(9, "/v3electionpb.Election/Observe"), message(9, true, b"name")].concat()),
        server([headers(9, 0), message(9, false, &leader("harness/l0/2"))].concat()),
    ]
}

#[test]
fn the_progress_of_a_watch_answers_no_request() {
    let progress = || server(message(3, false, &[10, 2, 24, 9, 16, 7]));
    let created = || server(message(3, false, &[10, 0, 24, 1]));
    let said = [
        opened(&[call(3, "/etcdserverpb.Watch/Watch"), message(3, false, b"create")]),
        server(frame(1, 0x4, 3, &[0x88])),
        created(),
        progress(),
        client(message(3, false, b"create")),
        created(),
        progress(),
    ];
    assert_eq!(names(Protocol::Grpc, &said), "Watch <Watch Watch <Watch");
    let (whats, _) = listen(Protocol::Grpc, &said);
    let numbers = whats.iter().filter_map(|what| match what {
        Observation::Reply { number, .. } => Some(*number),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [3 << 32 | 1, 3 << 32 | 2]);
}

#[test]
fn an_error_after_headers_is_the_answer() {
    let asked = opened(&[call(1, "/etcdserverpb.KV/Put"), message(1, true, b"put")]);
    let (headers, trailers) = (frame(1, 0x4, 1, &[0x88]), frame(1, 0x5, 1, &[0x88]));
    let said = [asked, server(headers), server(trailers)];
    assert_eq!(names(Protocol::Grpc, &said), "Put <-Put");
}

/// Returns the message of an observed election: a header, then the leader's key-value pair.
fn leader(key: &str) -> Vec<u8> {
    [field(1, &[8, 1]), field(2, &field(1, key.as_bytes()))].concat()
}

/// Returns a conversation of RESP2 that gives its subscription up, as a pool does before it hands the connection back, and then reads
/// a list that looks like a message.
fn redis_after_a_subscription() -> Vec<Said> {
    vec![
        client("*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n*1\r\n$11\r\nUNSUBSCRIBE\r\n"),
        server("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"),
        client("*4\r\n$6\r\nLRANGE\r\n$1\r\nl\r\n$1\r\n0\r\n$2\r\n-1\r\n*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"),
        server("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nv\r\n"),
        client("*1\r\n$11\r\nUNSUBSCRIBE\r\n"),
        server("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n"),
    ]
}

/// Returns a message of PostgreSQL.
fn pg(kind: char, body: &[u8]) -> Vec<u8> {
    let length = (4 + body.len() as u32).to_be_bytes();
    [&[kind as u8][..], &length, body].concat()
}

/// Returns messages of PostgreSQL, one after the other.
fn pgs(messages: &[(char, &[u8])]) -> Vec<u8> {
    messages.iter().flat_map(|(kind, body)| pg(*kind, body)).collect()
}

/// Returns a request for TLS that is refused, a simple query of two rows, two statements at once, and an error that skips the second.
fn postgres() -> Vec<Said> {
    const DESCRIPTION: (char, &[u8]) = ('T', b"\0\0");
    const ROW: (char, &[u8]) = ('D', b"\0\0");
    const SELECTED: (char, &[u8]) = ('C', b"SELECT 2\0");
    const READY: (char, &[u8]) = ('Z', b"I");
    let unkinded =
        |code: u32, rest: &[u8]| [&(8 + rest.len() as u32).to_be_bytes()[..], &code.to_be_bytes(), rest].concat();
    let asked = |statement: &[u8]| {
        let parse = [b"\0", statement, b"\0\0\0"].concat();
        let (bind, execute) = (pg('B', b"\0\0\0\0\0\0\0\0"), pg('E', b"\0\0\0\0\0"));
        [pg('P', &parse), bind, pg('D', b"P\0"), execute].concat()
    };
    let (unlock, update) = (asked(b"SELECT pg_advisory_unlock(7)"), asked(b" update x set y = 1"));
    let prepared = || pgs(&[('1', b""), ('2', b""), DESCRIPTION]);
    let (unlocked, updated) = (pgs(&[ROW, ROW, SELECTED]), pgs(&[('C', b"UPDATE 1\0"), READY]));
    vec![
        client(unkinded(80_877_103, b"")),
        server("N"),
        client(unkinded(196_608, b"user\0postgres\0\0")),
        server(pgs(&[('R', &[0; 4]), ('S', b"server_version\x0015\0"), READY])),
        client(pg('Q', b"select 1\0")),
        server(pgs(&[DESCRIPTION, ROW, ROW, SELECTED, READY])),
        client([unlock, update, pg('S', b"")].concat()),
        server([prepared(), unlocked, prepared(), updated].concat()),
        client([asked(b"INSERT INTO x"), asked(b"DELETE FROM x"), pg('S', b"")].concat()),
        server(pgs(&[('N', b"M\0"), ('E', b"SERROR\0\0"), READY])),
        client(pg('Q', b"COMMIT\0")),
        server(pgs(&[('A', b"\0\0\0\x07freed\0\0"), ('C', b"COMMIT\0"), READY])),
        client(pg('X', b"")),
    ]
}

type Conversation = fn() -> Vec<Said>;

const CONVERSATIONS: [(Protocol, Conversation); 9] = [
    (Protocol::Zk, zookeeper),
    (Protocol::Resp, redis),
    (Protocol::Resp, redis_of_old),
    (Protocol::Resp, redis_after_a_subscription),
    (Protocol::Grpc, etcd),
    (Protocol::Postgres, postgres),
    (Protocol::Mysql, mysql_talk::conversation),
    (Protocol::Mysql, mysql_talk::without_eof),
    (Protocol::Nats, nats_talk::conversation),
];

fn listen(protocol: Protocol, said: &[Said]) -> (Vec<Observation>, Option<TapError>) {
    let mut tap = TapParser::new(protocol);
    let mut whats = Vec::new();
    for (side, bytes) in said {
        for heard in tap.observe(*side, bytes) {
            assert!(heard.at <= bytes.len(), "it is within the chunk");
            whats.push(heard.what.clone());
        }
    }
    (whats, tap.lost())
}

/// Returns the prints of whole requests.
fn prints(protocol: Protocol, said: &[Said]) -> Vec<u64> {
    let (whats, _) = listen(protocol, said);
    let prints = whats.into_iter().filter_map(|what| match what {
        Observation::Asked { print, .. } => Some(print),
        _ => None,
    });
    prints.collect()
}

/// Returns the names in order: requests bare, replies after `<`, refusals after `<-`, notifications after `!` with their subjects.
fn names(protocol: Protocol, said: &[Said]) -> String {
    let (whats, lost) = listen(protocol, said);
    assert_eq!(lost, None);
    let words = whats.iter().filter_map(|what| match what {
        Observation::Request { name, .. } => Some(name.to_string()),
        Observation::Reply { name, refused, .. } => Some(format!("<{}{name}", if *refused { "-" } else { "" })),
        Observation::Notification { name, subject } => Some(format!("!{name} {subject}")),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn each_protocol_is_read_by_the_names_of_its_messages() {
    let expected: [&str; CONVERSATIONS.len()] = [
        // watches by their paths
        "connect <connect create getChildren <create <getChildren ping !NodeDeleted /harness/l0/lock-0000000003 <ping \
         getChildren <getChildren closeSession <closeSession",
        // pushes come in between
        "HELLO <HELLO SET GET <SET !invalidate k <-GET PING SUBSCRIBE <PING <SUBSCRIBE !message ch EVALSHA MULTI EXEC \
         <-EVALSHA <MULTI <EXEC",
        "SUBSCRIBE <SUBSCRIBE <SUBSCRIBE !message b PING <PING UNSUBSCRIBE <UNSUBSCRIBE",
        // a list is an answer where no channel is subscribed
        "SUBSCRIBE UNSUBSCRIBE <SUBSCRIBE <UNSUBSCRIBE LRANGE GET <LRANGE <GET UNSUBSCRIBE <UNSUBSCRIBE",
        // watches by their keys
        "Txn <Txn Watch <Watch !Watch harness/l0/1 LeaseKeepAlive <LeaseKeepAlive LeaseKeepAlive <LeaseKeepAlive Unlock \
         <-Unlock Observe !Observe harness/l0/2",
        // an error skips what follows
        "SELECT <SELECT advisory_unlock UPDATE <advisory_unlock <UPDATE INSERT DELETE <-INSERT COMMIT !notification freed \
         <COMMIT",
        // statements, and the functions of locks
        "GET_LOCK <-GET_LOCK INSERT <INSERT UPDATE <-UPDATE PREPARE <PREPARE IS_FREE_LOCK <IS_FREE_LOCK PING <PING CALL \
         <CALL DELETE <-DELETE",
        "SELECT <SELECT PREPARE <PREPARE INSERT <INSERT COMMIT <COMMIT",
        // subjects and expected revisions, and answers by inbox
        "ping <ping read <-read create create <-create <create update <update put publish watch <watch \
         !message $KV.harness.l0 !message $KV.harness.l0 delete <-delete remove <remove",
    ];
    for ((protocol, conversation), expected) in CONVERSATIONS.into_iter().zip(expected) {
        assert_eq!(names(protocol, &conversation()), expected);
    }
}

#[test]
fn an_answer_has_the_number_of_its_request() {
    for (protocol, conversation) in CONVERSATIONS {
        let (whats, _) = listen(protocol, &conversation());
        for what in &whats {
            if let Observation::Reply { number, name, .. } = what {
                let asked = |other: &Observation| matches!(other, Observation::Request { number: asked, name: of } if asked == number && of == name);
                assert!(whats.iter().any(asked), "{what:?}");
            }
        }
    }
}

#[test]
fn the_same_request_has_the_same_print_whatever_its_number() {
    let prints = prints(Protocol::Zk, &zookeeper());
    assert_eq!(prints[2], prints[4], "getChildren, twice");
    assert_ne!(prints[1], prints[2]);
}

#[test]
fn what_is_not_the_protocol_is_a_lost_place_and_says_so() {
    for (protocol, said) in [
        (Protocol::Zk, client("GET / HTTP/1.1\r\n")),
        (Protocol::Zk, server(record(&[9, 0, 0, 0], b""))),
        (Protocol::Resp, server("+OK\r\n")),
        (Protocol::Resp, client("*1\r\n$7\r\nMONITOR\r\n")),
        (Protocol::Resp, client(format!("*{}\r\n", "9".repeat(100)))),
        (Protocol::Grpc, client([22, 3, 1, 2, 0])),
        (Protocol::Postgres, client("GET / HTTP/1.1\r\n")),
        (Protocol::Postgres, server(pg('Z', b"I"))),
        (Protocol::Mysql, server("HTTP/1.1 400 Bad Request\r\n")),
        (Protocol::Mysql, client("GET / HTTP/1.1\r\n")),
        (Protocol::Nats, client("GET / HTTP/1.1\r\n")),
        (Protocol::Nats, server("HTTP/1.1 400 Bad Request\r\n")),
        (Protocol::Nats, client("PUB a b c 1\r\n")),
    ] {
        assert!(listen(protocol, std::slice::from_ref(&said)).1.is_some(), "{said:?}");
    }
}

#[test]
fn tls_is_named_whatever_is_spoken_in_it() {
    // a record of version 3.1 with the first bytes of a ClientHello
    let hello = client([TLS_HANDSHAKE, 3, 1, 0, 200, 1, 0, 0, 196]);
    for (protocol, conversation) in CONVERSATIONS {
        let pieces = in_pieces(std::slice::from_ref(&hello), &[1]);
        for said in [&[hello.clone()][..], &pieces] {
            assert_eq!(listen(protocol, said).1, Some(TLS), "{protocol:?}");
        }
        // a length of ZooKeeper, an inline command and a preface begin otherwise
        assert_eq!(listen(protocol, &conversation()).1, None);
    }
}

/// Cuts each thing said into pieces, at places drawn from `cuts`.
fn in_pieces(said: &[Said], cuts: &[u8]) -> Vec<Said> {
    let mut cuts = cuts.iter().cycle();
    let mut pieces = Vec::new();
    for (side, bytes) in said {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = usize::from(*cuts.next().unwrap_or(&1)).clamp(1, rest.len());
            pieces.push((*side, rest[..length].to_vec()));
            rest = &rest[length..];
        }
    }
    pieces
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_messages(cuts in proptest::collection::vec(1_u8..40, 1..40)) {
        for (protocol, conversation) in CONVERSATIONS {
            let said = conversation();
            let (mut in_pieces, lost) = listen(protocol, &in_pieces(&said, &cuts));
            let (mut whole, lost_whole) = listen(protocol, &said);
            // whether a reply refuses is read from what of it came at once
            for what in in_pieces.iter_mut().chain(&mut whole) {
                if let Observation::Reply { refused, .. } | Observation::Answering { refused, .. } = what {
                    *refused = false;
                }
            }
            prop_assert_eq!((in_pieces, lost), (whole, lost_whole));
        }
    }

    #[test]
    fn a_tap_panics_on_nothing(said in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..20)) {
        let said: Vec<Said> = said
            .into_iter()
            .map(|(from_client, bytes)| (if from_client { Direction::ToServer } else { Direction::ToClient }, bytes))
            .collect();
        for (protocol, conversation) in CONVERSATIONS {
            listen(protocol, &said);
            // and once it has begun to understand
            listen(protocol, &[&conversation()[..6], &said].concat());
        }
    }

    #[test]
    fn a_tap_panics_on_no_damaged_conversation(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cuts in proptest::collection::vec(1_u8..40, 1..10),
    ) {
        for (protocol, conversation) in CONVERSATIONS {
            let mut said = conversation();
            for (place, byte, value) in &damage {
                let (_, bytes) = &mut said[place.index(conversation().len())];
                let byte = byte.index(bytes.len());
                bytes[byte] = *value;
            }
            listen(protocol, &in_pieces(&said, &cuts));
        }
    }
}

#[test]
fn a_message_without_an_end_is_not_kept_whole() {
    // a record, a string and a message of many megabytes, of which a tap keeps the beginning only
    let mut zk = zk::ZkReader::default();
    let output = &mut TapOutput::default();
    zk.client(&record(&[0; 4], b""), output).unwrap();
    zk.client(&(50_u32 << 20).to_be_bytes(), output).unwrap();
    zk.client(&[0, 0, 0, 1, 0, 0, 0, 5], output).unwrap();
    for _ in 0..100 {
        zk.client(&[0; 65_536], output).unwrap();
    }
    assert!(zk.kept() <= 1024);
}
