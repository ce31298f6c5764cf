//! The parts of conversations that taps keep: names of sessions and leases, words of commands.

use super::*;

/// Returns the server's names of the sessions and leases of a conversation.
fn sessions(protocol: Protocol, said: &[Said]) -> Vec<String> {
    let (whats, lost) = listen(protocol, said);
    assert_eq!(lost, None);
    let names = whats.into_iter().filter_map(|what| match what {
        Observation::Session { name } => Some(name.into()),
        _ => None,
    });
    names.collect()
}

#[test]
fn a_session_or_lease_is_named_as_its_server_shows_an_owner() {
    assert_eq!(sessions(Protocol::Zk, &zookeeper()), ["0xffffffff00000005"]);
    // a session that is over is answered with none
    let over = [
        client(record(&[0, 0, 0, 2000], b"password")),
        server(record(&[0, 0, 0, 0], b"")),
    ];
    assert!(sessions(Protocol::Zk, &over).is_empty());

    let granted = |answer: &[u8]| {
        [
            opened(&[call(1, "/etcdserverpb.Lease/LeaseGrant"), message(1, true, &[8, 2])]),
            server([frame(1, 0x4, 1, &[0x88]), message(1, false, answer)].concat()),
        ]
    };
    // a header with a revision, the lease 0x694d71a (a number of four pieces), its time to live
    let answer = [&[10, 2, 24, 9][..], &[16, 0x9a, 0xae, 0xd3, 0x34], &[24, 2]].concat();
    assert_eq!(sessions(Protocol::Grpc, &granted(&answer)), ["0x694d71a"]);
    assert!(sessions(Protocol::Grpc, &granted(&answer[..6])).is_empty(), "cut short");
    assert!(sessions(Protocol::Resp, &redis()).is_empty());
}

#[test]
fn words_of_a_command_are_kept_where_they_are_asked_for() {
    let set = b"*3\r\n$3\r\nset\r\n$10\r\nharness:l0\r\n$4\r\n\r\n*1\r\n";
    for (keep, wanted) in [(true, &["set", "harness:l0", "\r\n*1"][..]), (false, &[])] {
        for piece in [1, 7, set.len()] {
            let mut tap = TapParser::new(Protocol::Resp);
            tap.keep_words(keep);
            let mut heard = Vec::new();
            for chunk in set.chunks(piece) {
                heard.extend(tap.observe(Direction::ToServer, chunk).to_vec());
            }
            let words = heard.iter().find_map(|heard| match &heard.what {
                Observation::Asked { words, .. } => Some(words.iter().map(|word| &**word).collect::<Vec<_>>()),
                _ => None,
            });
            assert_eq!(words.expect("a whole command"), wanted, "in pieces of {piece}");
        }
    }
    let long = format!("*2\r\n$3\r\nSET\r\n$1000\r\n{}\r\n", "k".repeat(1000));
    let mut tap = TapParser::new(Protocol::Resp);
    tap.keep_words(true);
    let heard = tap.observe(Direction::ToServer, long.as_bytes());
    let Observation::Asked { words, .. } = &heard[1].what else {
        panic!("{heard:?}");
    };
    assert!(words[1].len() < 1000, "the beginning of a long word");
    let heard = tap.observe(Direction::ToServer, b"*2\r\n$4\r\nauth\r\n$6\r\nsecret\r\n");
    assert!(!format!("{heard:?}").contains("secret"), "{heard:?}");
}

#[test]
fn statements_that_are_deallocated_as_sql_are_not_kept() {
    for sql in [
        "DEALLOCATE s{}",
        "deallocate prepare \"s{}\" ;",
        "DEALLOCATE ALL",
        "/* reset */ DISCARD ALL;",
    ] {
        let mut said = postgres()[..4].to_vec();
        for number in 0..5000 {
            let prepared = format!("s{number}\0SELECT 1\0\0\0");
            let forgotten = sql.replace("{}", &number.to_string()) + "\0";
            said.push(client(pgs(&[('P', prepared.as_bytes()), ('Q', forgotten.as_bytes())])));
        }
        assert_eq!(listen(Protocol::Postgres, &said).1, None, "{sql}");
    }
}

#[test]
fn a_long_script_with_another_key_is_another_request() {
    let eval = |key: &str| {
        let script = "x".repeat(2000);
        client(format!(
            "*4\r\n$4\r\nEVAL\r\n$2000\r\n{script}\r\n$1\r\n1\r\n$2\r\n{key}\r\n"
        ))
    };
    let prints = prints(Protocol::Resp, &[eval("k1"), eval("k2"), eval("k1")]);
    assert_ne!(prints[0], prints[1]);
    assert_eq!(prints[0], prints[2]);
}
