//! Values of RESP3: enough to read replies and pushes from one connection in the order in which the server sent them.
//!
//! Client libraries pass pushes and replies to different readers and lose that order.
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>

/// A value from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespValue {
    Text(String),
    Null,
    Array(Vec<RespValue>),
    /// A message of a subscription, which is no reply.
    Push(Vec<RespValue>),
    Error(String),
}

impl RespValue {
    /// Returns the texts of an array; nothing for any other value.
    pub fn texts(self) -> Vec<String> {
        let Self::Array(values) = self else { return Vec::new() };
        let text = |value| match value {
            Self::Text(text) => Some(text),
            _ => None,
        };
        values.into_iter().filter_map(text).collect()
    }
}

/// Takes one whole value from the front of `bytes`; returns it with its length, or `None` if it is not whole yet. The error is a
/// byte that begins no value.
pub fn take(bytes: &[u8]) -> Result<Option<(RespValue, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&bytes[1..end]).into_owned();
    let after = end + 2;
    match bytes[0] {
        b'+' | b':' | b',' | b'#' | b'(' => Ok(Some((RespValue::Text(line), after))),
        b'-' => Ok(Some((RespValue::Error(line), after))),
        b'_' => Ok(Some((RespValue::Null, after))),
        b'$' | b'=' | b'!' => Ok(bulk(bytes, &line, after)),
        b'*' | b'~' => many(bytes, &line, after, 1, RespValue::Array),
        b'>' => many(bytes, &line, after, 1, RespValue::Push),
        b'%' => many(bytes, &line, after, 2, RespValue::Array),
        other => Err(format!("{:?} begins no RESP value", char::from(other))),
    }
}

fn bulk(bytes: &[u8], length: &str, after: usize) -> Option<(RespValue, usize)> {
    let Ok(length) = length.parse::<usize>() else {
        return Some((RespValue::Null, after));
    };
    let text = bytes.get(after..after + length)?;
    let end = after + length + 2;
    let text = || RespValue::Text(String::from_utf8_lossy(text).into_owned());
    (bytes.len() >= end).then(|| (text(), end))
}

fn many(
    bytes: &[u8],
    count: &str,
    after: usize,
    each: usize,
    make: fn(Vec<RespValue>) -> RespValue,
) -> Result<Option<(RespValue, usize)>, String> {
    let Ok(count) = count.parse::<usize>() else {
        return Ok(Some((RespValue::Null, after)));
    };
    let (mut values, mut at) = (Vec::new(), after);
    for _ in 0..count * each {
        match take(&bytes[at..])? {
            Some((value, length)) => {
                values.push(value);
                at += length;
            }
            None => return Ok(None),
        }
    }
    Ok(Some((make(values), at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_and_a_reply_are_told_apart_and_keep_their_order() {
        let bytes = b">2\r\n+pmessage\r\n$3\r\nset\r\n$2\r\nv1\r\n_\r\n";
        let (push, length) = take(bytes).unwrap().unwrap();
        let words = ["pmessage", "set"].map(|word| RespValue::Text(word.into()));
        assert_eq!(push, RespValue::Push(words.into()));
        let (reply, more) = take(&bytes[length..]).unwrap().unwrap();
        assert_eq!(reply, RespValue::Text("v1".into()));
        assert_eq!(take(&bytes[length + more..]).unwrap().unwrap().0, RespValue::Null);
    }

    #[test]
    fn every_prefix_of_a_value_is_not_whole_yet() {
        let bytes = b">3\r\n+pmessage\r\n$3\r\nset\r\n%1\r\n+a\r\n:1\r\n";
        for length in 0..bytes.len() {
            assert_eq!(take(&bytes[..length]), Ok(None), "{length}");
        }
        assert_eq!(take(bytes).unwrap().unwrap().1, bytes.len());
    }

    #[test]
    fn a_byte_that_begins_no_value_is_an_error() {
        assert!(take(b"HTTP/1.1 400\r\n").is_err());
    }
}
