//! Refusals: replies that say that nothing was done, by an error, a nil, a count of zero, a condition that did not hold. Such a reply can
//! be lost without harm; the one that says that a lock was taken cannot.
//!
//! Each function reads the bytes from a reply's beginning to the end of its chunk. A reply that is cut there is no refusal.

use super::frames::{DATA, FRAME_HEAD};
use super::watch_events::number_in;

/// The field of etcd's `TxnResponse` that says whether its comparisons held; left out where they did not.
/// <https://github.com/etcd-io/etcd/blob/v3.5.0/api/etcdserverpb/rpc.proto>
const SUCCEEDED: u64 = 2;
/// The place of its stream in the head of a frame of HTTP/2.
const STREAM: std::ops::Range<usize> = 5..FRAME_HEAD;

/// Whether a reply of Redis is an error, a nil, a false, or the integer 0.
pub(super) fn in_resp(reply: &[u8]) -> bool {
    let nothing: [&[u8]; 6] = [b"-", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#f\r\n", b":0\r\n"];
    nothing.iter().any(|nothing| reply.starts_with(nothing))
}

/// Whether a message of NATS with headers of this length is a status, which is an error, an error of JetStream, or a purge of nothing.
pub(super) fn in_nats(message: &[u8], headers: usize) -> bool {
    const ERROR: &[u8] = b"\"error\":{";
    const NOTHING: &[u8] = b"\"purged\":0";
    let (headers, payload) = message.split_at(headers.min(message.len()));
    let says = |part: &[u8]| payload.windows(part.len()).take(128).any(|some| some == part);
    // what has headers is a status, or a value of any content
    match headers.is_empty() {
        true => says(ERROR) || says(NOTHING),
        false => headers.starts_with(b"NATS/1.0 "),
    }
}

/// Whether a transaction of etcd, from the frame of its headers on, did nothing: without `succeeded` its comparisons did not hold.
pub(super) fn in_etcd_transaction(frames: &[u8]) -> bool {
    let (own, mut rest) = (stream_of(frames), frames);
    while let Some((head, others)) = rest.split_at_checked(FRAME_HEAD) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, others)) = others.split_at_checked(length) else {
            return false;
        };
        // frames of other calls and of the connection itself may come before the message
        if head[3] == DATA && stream_of(head) == own {
            // the flag of a message that is not compressed, and its length
            let [0, a, b, c, d, body @ ..] = payload else {
                return false;
            };
            let is_whole = body.len() >= u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            return is_whole && number_in(body, SUCCEEDED).is_none_or(|succeeded| succeeded == 0);
        }
        rest = others;
    }
    false
}

/// Returns the number of a frame's stream, as it is written.
fn stream_of(frame: &[u8]) -> Option<&[u8]> {
    frame.get(STREAM)
}

/// Whether PostgreSQL answers with an error, a command that changed no row, or a row whose one value is false or null.
pub(super) fn in_postgres(mut messages: &[u8]) -> bool {
    while let [kind, a, b, c, d, rest @ ..] = messages {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some((body, rest)) = length.checked_sub(4).and_then(|length| rest.split_at_checked(length)) else {
            return false;
        };
        match kind {
            b'E' => return true,
            b'C' => return body.ends_with(b" 0\0"),
            // columns, and of each its length and its bytes: a false is a letter, or a zero where values are binary
            b'D' => return matches!(body, [0, 1, 255, 255, 255, 255] | [0, 1, 0, 0, 0, 1, b'f' | 0]),
            _ => messages = rest,
        }
    }
    false
}

/// The encoding of an answer of MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerForm {
    /// No EOF follows the columns.
    pub(super) without_eof: bool,
    /// Whether a flag that the columns are left out follows their number.
    pub(super) caches: bool,
    /// The rows are those of a prepared statement.
    pub(super) binary: bool,
}

/// Whether MySQL answers with an error, a statement that changed no row, no row, or one with a single value, which is 0 or null.
pub(super) fn in_mysql(messages: &[u8], name: &str, form: AnswerForm) -> bool {
    let mut rest = messages;
    let Some(first) = packet(&mut rest) else { return false };
    // what else is answered with an OK changes no row, and is done
    let writes = ["INSERT", "UPDATE", "DELETE", "REPLACE"].contains(&name);
    match first {
        [0xff, ..] => return !first.starts_with(&[0xff, 0xff, 0xff]),
        [0, rows, ..] => return writes && *rows == 0,
        [0xfb | 0xfe, ..] | [] => return false,
        _ => {}
    }
    let Some((columns, cached)) = lenenc(first).filter(|_| name != "PREPARE") else {
        return false;
    };
    let described = if form.caches && cached == [0] { 0 } else { columns };
    for _ in 0..described.saturating_add(u64::from(!form.without_eof)) {
        if packet(&mut rest).is_none() {
            return false;
        }
    }
    match packet(&mut rest) {
        Some([0xfe, end @ ..]) if end.len() < 8 || form.without_eof => true,
        Some(row) if columns == 1 && form.binary => match row {
            // the bits of those that are null begin with the third
            [0, 4] => true,
            [0, 0, value @ ..] => matches!(value.len(), 4 | 8) && value.iter().all(|byte| *byte == 0),
            _ => false,
        },
        Some(row) if columns == 1 => matches!(row, [0xfb] | [1, b'0']),
        _ => false,
    }
}

/// Parses a number of 1 to 9 bytes; returns the bytes after it, too.
fn lenenc(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let length = match first {
        0..=0xfa => return Some((u64::from(*first), rest)),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(length)?;
    let number = digits
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    Some((number, rest))
}

/// Returns the payload of the first packet, if it is whole; leaves what follows it.
fn packet<'a>(messages: &mut &'a [u8]) -> Option<&'a [u8]> {
    let [a, b, c, _, rest @ ..] = *messages else {
        return None;
    };
    let (payload, rest) = rest.split_at_checked(u32::from_le_bytes([*a, *b, *c, 0]) as usize)?;
    *messages = rest;
    Some(payload)
}

#[cfg(test)]
mod tests {
    use super::super::frames::HEADERS;
    use super::*;

    #[test]
    fn a_reply_of_redis_that_did_nothing_is_told_from_one_that_did() {
        let refuses = |reply: &str| in_resp(format!("{reply}\r\n").as_bytes());
        for nothing in ["-NOSCRIPT no", "$-1", "*-1", "_", "#f", ":0", ":0\r\n:1"] {
            assert!(refuses(nothing), "{nothing:?}");
        }
        for done in ["+OK", "$1\r\n0", ":1", ":01", "*1\r\n$-1", "#t"] {
            assert!(!refuses(done), "{done:?}");
        }
        for cut in ["$-", ":0", ""] {
            assert!(!in_resp(cut.as_bytes()), "{cut:?}");
        }
    }

    #[test]
    fn an_answer_of_nats_that_did_nothing_is_told_from_one_that_did() {
        let purged = |count: u32| {
            let kind = "io.nats.jetstream.api.v1.stream_purge_response";
            format!(r#"{{"type":"{kind}","success":true,"purged":{count}}}"#)
        };
        let (nothing, done) = (purged(0), purged(10));
        let error = r#"{"error":{"code":400},"stream":"KV_harness"}"#;
        assert!(in_nats(nothing.as_bytes(), 0) && in_nats(error.as_bytes(), 0));
        assert!(in_nats(b"NATS/1.0 404 Message Not Found\r\n\r\n", 35));
        assert!(!in_nats(done.as_bytes(), 0) && !in_nats(br#"{"stream":"KV_harness","seq":7}"#, 0));
        // a value that a client has written
        let head = "NATS/1.0\r\nNats-Sequence: 7\r\n\r\n";
        assert!(!in_nats(format!("{head}{error}").as_bytes(), head.len()));
    }

    #[test]
    fn a_transaction_of_etcd_whose_comparison_failed_is_told_from_one_that_succeeded() {
        let frame = |kind: u8, stream: u8, payload: &[u8]| {
            let length = (payload.len() as u32).to_be_bytes();
            [&length[1..], &[kind, 4, 0, 0, 0, stream], payload].concat()
        };
        let headers = || frame(HEADERS, 1, &[0x88]);
        let message = |stream, body: &[u8]| frame(DATA, stream, &[&[0, 0, 0, 0, body.len() as u8], body].concat());
        let answer = |body: &[u8]| [headers(), message(1, body)].concat();
        let (refusal, success): (&[u8], &[u8]) = (&[0x0a, 2, 8, 1, 0x1a, 0], &[0x0a, 2, 8, 1, 0x10, 1, 0x1a, 0]);
        let refused = answer(refusal);
        assert!(in_etcd_transaction(&refused) && in_etcd_transaction(&answer(&[0x0a, 0])));
        assert!(!in_etcd_transaction(&answer(success)));
        for cut in 0..refused.len() {
            assert!(!in_etcd_transaction(&refused[..cut]), "{cut}");
        }
        let compressed = [headers(), frame(DATA, 1, &[1, 0, 0, 0, 1, 7])].concat();
        assert!(!in_etcd_transaction(&compressed));
        // a ping of the connection and the message of another call come in between
        for (own, refuses) in [(refusal, true), (success, false)] {
            let other = if refuses { success } else { refusal };
            let between = [frame(6, 0, &[0; 8]), frame(HEADERS, 3, &[0x88]), message(3, other)].concat();
            let frames = [headers(), between, message(1, own)].concat();
            assert_eq!(in_etcd_transaction(&frames), refuses);
        }
    }

    #[test]
    fn an_answer_of_postgres_that_did_nothing_is_told_from_one_that_did() {
        let message = |kind: u8, body: &[u8]| [&[kind][..], &(4 + body.len() as u32).to_be_bytes(), body].concat();
        let described = |then: Vec<u8>| [message(b'T', &[0, 1]), then].concat();
        let row = |value: &[u8]| message(b'D', &[&[0, 1, 0, 0, 0, value.len() as u8], value].concat());
        let null = message(b'D', &[0, 1, 255, 255, 255, 255]);
        for nothing in [
            message(b'C', b"UPDATE 0\0"),
            message(b'E', b"S"),
            described(row(b"f")),
            row(&[0]),
            described(null),
        ] {
            assert!(in_postgres(&nothing));
            assert!(!in_postgres(&nothing[..nothing.len() - 1]), "it is cut");
        }
        for done in [
            message(b'C', b"INSERT 0 1\0"),
            described(row(b"t")),
            row(&[1]),
            row(b"0"),
            row(b"10"),
            message(b'C', b"SELECT 10\0"),
        ] {
            assert!(!in_postgres(&done));
        }
    }

    #[test]
    fn an_answer_of_mysql_that_did_nothing_is_told_from_one_that_did() {
        let packet = |body: &[u8]| [&[body.len() as u8, 0, 0, 1], body].concat();
        for (without_eof, binary) in [(false, false), (false, true), (true, false), (true, true)] {
            let form = AnswerForm {
                without_eof,
                caches: false,
                binary,
            };
            let end = || packet(&[0xfe, 0, 0, 2, 0]);
            let rows = |rows: &[&[u8]]| {
                let eof = if without_eof { Vec::new() } else { end() };
                let rows: Vec<u8> = rows.iter().flat_map(|row| packet(row)).collect();
                [packet(&[1]), packet(b"a column"), eof, rows, end()].concat()
            };
            let (zero, null, one): (&[u8], &[u8], &[u8]) = if binary {
                (&[0, 0, 0, 0, 0, 0], &[0, 4], &[0, 0, 1, 0, 0, 0])
            } else {
                (b"\x010", &[0xfb], b"\x011")
            };
            for nothing in [rows(&[zero]), rows(&[null]), rows(&[])] {
                assert!(in_mysql(&nothing, "GET_LOCK", form), "{form:?} {nothing:?}");
                let cut = nothing.len() - end().len() - 1;
                assert!(!in_mysql(&nothing[..cut], "GET_LOCK", form), "it is cut");
            }
            assert!(!in_mysql(&rows(&[one]), "GET_LOCK", form));
            assert!(in_mysql(&packet(&[0, 0, 0, 2, 0, 0, 0]), "UPDATE", form));
            assert!(!in_mysql(&packet(&[0, 1, 0, 2, 0, 0, 0]), "UPDATE", form));
            assert!(!in_mysql(&packet(&[0, 0, 0, 2, 0, 0, 0]), "COMMIT", form));
            assert!(in_mysql(&packet(b"\xff\x15\x04#28000no"), "INSERT", form));
        }
    }
}
