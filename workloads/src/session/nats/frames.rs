//! Frames of the NATS client protocol that servers send ([`ServerFrame`]), taken out of a stream of bytes.
//!
//! <https://docs.nats.io/reference/reference-protocols/nats-protocol>

/// The longest line: the greeting of a server names all others.
const LINE: usize = 64 << 10;
/// The longest message: more than servers allow.
const MESSAGE: usize = 64 << 20;

/// A frame of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerFrame {
    /// Its greeting, JSON.
    Info(Vec<u8>),
    Message {
        subject: String,
        /// Empty where it has none.
        headers: String,
        payload: Vec<u8>,
    },
    Ping,
    Pong,
    Ok,
    Error(String),
}

/// Parses the first frame of these bytes; returns its length, too. `None` while it is not complete. The error: no NATS.
pub(super) fn first_frame(bytes: &[u8]) -> Result<Option<(ServerFrame, usize)>, String> {
    let Some(end) = bytes.windows(2).take(LINE).position(|pair| pair == b"\r\n") else {
        return match bytes.len() > LINE {
            true => Err("a line without an end".to_owned()),
            false => Ok(None),
        };
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let frame = match verb {
        "MSG" | "HMSG" => return message(verb == "HMSG", rest, &bytes[end + 2..], end + 2),
        "INFO" => ServerFrame::Info(rest.as_bytes().to_vec()),
        "PING" => ServerFrame::Ping,
        "PONG" => ServerFrame::Pong,
        "+OK" => ServerFrame::Ok,
        "-ERR" => ServerFrame::Error(rest.trim_matches('\'').to_owned()),
        _ => return Err(format!("{verb:?} in place of a message of NATS")),
    };
    Ok(Some((frame, end + 2)))
}

/// Parses a message, whose line is `SUBJECT SID [REPLY] [HEADERS] TOTAL`; `body` follows after `line` bytes.
fn message(has_headers: bool, words: &str, body: &[u8], line: usize) -> Result<Option<(ServerFrame, usize)>, String> {
    let malformed = || format!("a message with the line {words:?}");
    let mut words_back = words.split_ascii_whitespace().rev();
    let mut length = || words_back.next()?.parse().ok().filter(|length| *length <= MESSAGE);
    let total: usize = length().ok_or_else(malformed)?;
    let headers: usize = if has_headers {
        length().ok_or_else(malformed)?
    } else {
        0
    };
    if headers > total {
        return Err(malformed());
    }
    if body.len() < total + 2 {
        return Ok(None);
    }
    let subject = words.split_ascii_whitespace().next().ok_or_else(malformed)?;
    let frame = ServerFrame::Message {
        subject: subject.to_owned(),
        headers: String::from_utf8_lossy(&body[..headers]).into_owned(),
        payload: body[headers..total].to_vec(),
    };
    Ok(Some((frame, line + total + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TALK: &[u8] = b"INFO {\"server_name\":\"n1\"}\r\nPONG\r\nMSG _INBOX.a.1 1 5\r\n{\"a\"}\r\n\
        HMSG _INBOX.a.2 1 reply.to 16 16\r\nNATS/1.0 503\r\n\r\n\r\nPING\r\n-ERR 'Authorization Violation'\r\n";

    fn frames(pieces: impl Iterator<Item = Vec<u8>>) -> Vec<ServerFrame> {
        let (mut frames, mut bytes) = (Vec::new(), Vec::new());
        for piece in pieces {
            bytes.extend(piece);
            while let Some((frame, length)) = first_frame(&bytes).unwrap() {
                frames.push(frame);
                bytes.drain(..length);
            }
        }
        assert!(bytes.is_empty(), "{bytes:?}");
        frames
    }

    #[test]
    fn frames_are_the_same_however_the_bytes_come() {
        let whole = frames([TALK.to_vec()].into_iter());
        let message = |subject: &str, headers: &str, payload: &str| ServerFrame::Message {
            subject: subject.into(),
            headers: headers.into(),
            payload: payload.into(),
        };
        let expected = [
            ServerFrame::Info(b"{\"server_name\":\"n1\"}".to_vec()),
            ServerFrame::Pong,
            message("_INBOX.a.1", "", "{\"a\"}"),
            message("_INBOX.a.2", "NATS/1.0 503\r\n\r\n", ""),
            ServerFrame::Ping,
            ServerFrame::Error("Authorization Violation".into()),
        ];
        assert_eq!(whole, expected);
        assert_eq!(frames(TALK.iter().map(|byte| vec![*byte])), expected);
    }

    #[test]
    fn what_is_no_nats_is_an_error() {
        for bytes in [
            &b"HTTP/1.1 400 Bad Request\r\n"[..],
            b"MSG a 1 x\r\n",
            b"HMSG a 1 9 3\r\n",
        ] {
            assert!(first_frame(bytes).is_err(), "{bytes:?}");
        }
        assert!(first_frame(&[b'x'; LINE + 2]).is_err());
    }
}
