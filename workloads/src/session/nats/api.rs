//! The requests of JetStream's API that locks are made of, and the parsers of their answers.
//!
//! A bucket of keys is a stream whose subjects are the keys, as in
//! <https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-8.md>. Requests and answers:
//! <https://docs.nats.io/reference/reference-protocols/nats_api_reference>.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::connection::{NatsReply, NatsRequest};

/// The bucket in which the recipes keep locks.
pub const BUCKET: &str = "harness";

/// The header with the number that the last message of a key must have for a write to be taken.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// The header of a message that is a marker, with the word `DEL` or `PURGE`.
const OPERATION: &str = "KV-Operation";
/// The header of a marker that a server has written, for a key that it removed: since 2.11, where the bucket asks for it.
/// <https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-48.md>
const REASON: &str = "Nats-Marker-Reason";
/// The header of a message that has an age of its own, since 2.11: <https://docs.nats.io/learn/jetstream/message-ttl>.
const OWN_AGE: &str = "Nats-TTL";

/// Returns the stream of a bucket.
pub fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

fn subject_of(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

/// The error of a request that was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{description}")]
#[serde(default)]
pub struct JetStreamError {
    /// As a status of HTTP.
    pub code: u16,
    pub err_code: u32,
    pub description: String,
}

impl JetStreamError {
    /// Nobody listens: no server of the stream leads it.
    const NO_RESPONDERS: u16 = 503;

    /// Makes an error of this status of HTTP, with the number of JetStream's own error, or 0.
    pub fn new(code: u16, err_code: u32, description: impl Into<String>) -> Self {
        JetStreamError {
            code,
            err_code,
            description: description.into(),
        }
    }

    /// Whether the message is not there, or another one is the last.
    pub fn is_other_message(&self) -> bool {
        // wrong last sequence, in two forms; no message found; sequence not found
        [10071, 10164, 10037, 10043].contains(&self.err_code)
            // a message that could not be deleted, which has other reasons, too
            || (self.err_code == 10057 && ["no message found", "stream store EOF"].contains(&&*self.description))
    }

    /// Whether there is no stream of that name.
    pub fn is_no_stream(&self) -> bool {
        self.err_code == 10059
    }

    /// Whether there is a stream of that name with other settings.
    pub fn is_other_stream(&self) -> bool {
        self.err_code == 10058
    }

    /// Whether surely nothing was done.
    pub fn is_definite(&self) -> bool {
        self.is_other_message() || self.is_no_stream() || (self.err_code == 0 && self.code == Self::NO_RESPONDERS)
    }
}

/// A message of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMessage {
    /// Its number in the stream of the bucket.
    pub revision: u64,
    pub value: String,
    /// Whether it is a delete marker.
    pub deleted: bool,
}

/// Reads an answer.
pub fn answer<T: DeserializeOwned>(reply: &NatsReply) -> Result<T, JetStreamError> {
    let unread = |why: serde_json::Error| JetStreamError::new(0, 0, why.to_string());
    if let Some(status) = reply.headers.strip_prefix("NATS/1.0 ") {
        let code = status.get(..3).and_then(|code| code.parse().ok()).unwrap_or_default();
        return Err(JetStreamError::new(code, 0, "no server leads it"));
    }
    let mut value: Value = serde_json::from_slice(&reply.payload).map_err(unread)?;
    if let Some(error) = value.get_mut("error") {
        return Err(serde_json::from_value(error.take()).unwrap_or_else(unread));
    }
    serde_json::from_value(value).map_err(unread)
}

fn api(subject: impl AsRef<str>, body: &Value) -> NatsRequest {
    NatsRequest {
        subject: format!("$JS.API.{}", subject.as_ref()),
        payload: if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        },
        ..NatsRequest::default()
    }
}

/// Makes a bucket whose messages end after `lease`, with copies on so many servers.
pub fn make_bucket(bucket: &str, lease: Duration, copies: usize) -> NatsRequest {
    let stream = stream_of(bucket);
    let age = lease.as_nanos() as u64;
    let settings = json!({
        "name": stream, "subjects": [subject_of(bucket, ">")], "num_replicas": copies, "storage": "file",
        "retention": "limits", "discard": "new", "max_msgs_per_subject": 1, "max_age": age, "duplicate_window": age,
        "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1, "allow_rollup_hdrs": true,
    });
    api(format!("STREAM.CREATE.{stream}"), &settings)
}

/// Writes a key; `marker` in place of a value.
pub fn put(bucket: &str, key: &str, value: Option<&str>, last: Option<u64>) -> NatsRequest {
    let marker = value.is_none().then(|| (OPERATION, "DEL".to_owned()));
    let expected = last.map(|last| (EXPECTED, last.to_string()));
    NatsRequest {
        subject: subject_of(bucket, key),
        headers: marker.into_iter().chain(expected).collect(),
        payload: value.unwrap_or_default().into(),
    }
}

/// The answer to [`put`].
#[derive(Debug, Deserialize)]
pub struct PutAnswer {
    pub seq: u64,
}

/// Asks for the last message of a key.
pub fn last_message(bucket: &str, key: &str) -> NatsRequest {
    let subject = subject_of(bucket, key);
    api(
        format!("STREAM.MSG.GET.{}", stream_of(bucket)),
        &json!({ "last_by_subj": subject }),
    )
}

/// Returns the answer to [`last_message`]; `None`: there is none.
pub fn message(reply: &NatsReply) -> Result<Option<KeyMessage>, JetStreamError> {
    Ok(aging_message(reply)?.map(|aging| aging.message))
}

/// A message of a key, and the age at which it ends where its writer has chosen one; [`Duration::MAX`]: never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgingMessage {
    pub message: KeyMessage,
    pub own_age: Option<Duration>,
}

/// Returns the answer to [`last_message`], with the age of the message; `None`: there is none.
pub fn aging_message(reply: &NatsReply) -> Result<Option<AgingMessage>, JetStreamError> {
    #[derive(Deserialize)]
    struct MessageAnswer {
        message: StoredMessage,
    }
    #[derive(Deserialize)]
    struct StoredMessage {
        seq: u64,
        #[serde(default)]
        hdrs: String,
        #[serde(default)]
        data: String,
    }
    let MessageAnswer { message } = match answer(reply) {
        Err(error) if error.is_other_message() => return Ok(None),
        answered => answered?,
    };
    let text = |encoded: &str| {
        let bytes = BASE64_STANDARD.decode(encoded).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let headers = text(&message.hdrs);
    Ok(Some(AgingMessage {
        message: KeyMessage {
            revision: message.seq,
            value: text(&message.data),
            deleted: is_marker(&headers),
        },
        own_age: header(&headers, OWN_AGE).map(read_age),
    }))
}

/// Returns the value of a header.
fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = headers.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Whether a message is the marker of a key that is gone. Some libraries name each value a `PUT`.
fn is_marker(headers: &str) -> bool {
    let by_client = header(headers, OPERATION).is_some_and(|operation| matches!(operation, "DEL" | "PURGE"));
    by_client || header(headers, REASON).is_some()
}

/// Parses an age in a header: whole seconds, or a duration of Go such as `1m30s`. One that cannot be read may be over at any time.
fn read_age(text: &str) -> Duration {
    if text == "never" {
        return Duration::MAX;
    }
    let seconds = text.parse().ok().or_else(|| seconds_in(text));
    let age = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    age.unwrap_or_default()
}

/// Parses the seconds of a duration of Go: <https://pkg.go.dev/time#ParseDuration>.
fn seconds_in(mut text: &str) -> Option<f64> {
    const UNITS: &[(&str, f64)] = &[
        ("ms", 1e-3),
        ("us", 1e-6),
        ("\u{b5}s", 1e-6),
        ("ns", 1e-9),
        ("h", 3600.0),
        ("m", 60.0),
        ("s", 1.0),
    ];
    let mut seconds = 0.0;
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, factor) = UNITS.iter().find(|(unit, _)| rest.starts_with(*unit))?;
        seconds += number.parse::<f64>().ok()? * factor;
        text = &rest[unit.len()..];
    }
    Some(seconds)
}

/// Removes the message of a revision.
pub fn remove(bucket: &str, revision: u64) -> NatsRequest {
    let which = json!({ "seq": revision, "no_erase": true });
    api(format!("STREAM.MSG.DELETE.{}", stream_of(bucket)), &which)
}

/// Removes the messages of a key.
pub fn purge(bucket: &str, key: &str) -> NatsRequest {
    purge_subject(&stream_of(bucket), &subject_of(bucket, key))
}

/// Removes the messages of a subject from a stream.
pub fn purge_subject(stream: &str, subject: &str) -> NatsRequest {
    api(format!("STREAM.PURGE.{stream}"), &json!({ "filter": subject }))
}

/// The answer to [`purge`].
#[derive(Debug, Deserialize)]
pub struct PurgeAnswer {
    pub purged: u64,
}

/// Asks for the state of a stream, with the names of its subjects.
pub fn stream_state(stream: &str) -> NatsRequest {
    api(format!("STREAM.INFO.{stream}"), &json!({ "subjects_filter": ">" }))
}

/// The answer to [`stream_state`].
#[derive(Debug, Clone, Deserialize)]
pub struct StreamAnswer {
    pub config: StreamSettings,
    #[serde(default)]
    pub state: BucketState,
    /// `None` on a server that is alone.
    pub cluster: Option<StreamCluster>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct StreamSettings {
    /// In nanoseconds; 0: for ever.
    #[serde(default)]
    pub max_age: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BucketState {
    pub messages: u64,
    pub last_seq: u64,
    /// The subjects that have messages.
    pub subjects: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct StreamCluster {
    #[serde(default)]
    pub leader: String,
}

/// Asks for the names of the streams.
pub fn stream_names() -> NatsRequest {
    api("STREAM.NAMES", &Value::Null)
}

/// The answer to [`stream_names`].
#[derive(Debug, Deserialize)]
pub struct NamesAnswer {
    /// `null` where there is none.
    pub streams: Option<Vec<String>>,
}

/// Removes a stream.
pub fn delete_stream(stream: &str) -> NatsRequest {
    api(format!("STREAM.DELETE.{stream}"), &Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(headers: &str, payload: &str) -> NatsReply {
        NatsReply {
            headers: headers.into(),
            payload: payload.into(),
        }
    }

    #[test]
    fn a_message_is_a_value_or_a_marker() {
        let value =
            r#"{"message":{"subject":"$KV.harness.l0","seq":7,"data":"YTEgNA==","time":"2026-11-28T21:39:12Z"}}"#;
        let read = message(&said("", value)).unwrap().unwrap();
        assert_eq!((read.revision, &*read.value, read.deleted), (7, "a1 4", false));
        let hdrs = BASE64_STANDARD.encode("NATS/1.0\r\nKV-Operation: DEL\r\n\r\n");
        let marker = format!(r#"{{"message":{{"seq":8,"hdrs":"{hdrs}"}}}}"#);
        assert!(message(&said("", &marker)).unwrap().unwrap().deleted);
        let none = r#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        assert_eq!(message(&said("", none)), Ok(None));
    }

    /// Returns the message that has these headers.
    fn with_headers(headers: &str) -> AgingMessage {
        let hdrs = BASE64_STANDARD.encode(format!("NATS/1.0\r\n{headers}\r\n\r\n"));
        let answer = format!(r#"{{"message":{{"seq":8,"hdrs":"{hdrs}","data":"YQ=="}}}}"#);
        aging_message(&said("", &answer)).unwrap().unwrap()
    }

    #[test]
    fn markers_of_clients_and_of_servers_are_told_from_values() {
        for marker in [
            "KV-Operation: DEL",
            "KV-Operation: PURGE\r\nNats-Rollup: sub",
            // the marker of a key whose age is over, without a request of a client
            "Nats-Marker-Reason: MaxAge\r\nNats-Rollup: sub",
            "Nats-Marker-Reason: Remove",
        ] {
            assert!(with_headers(marker).message.deleted, "{marker}");
        }
        for value in ["KV-Operation: PUT", "Nats-TTL: 5s", "X-KV-Operation: DEL"] {
            assert!(!with_headers(value).message.deleted, "{value}");
        }
    }

    #[test]
    fn a_message_may_have_an_age_of_its_own() {
        for (text, ms) in [
            ("5", 5_000),
            ("2s", 2_000),
            ("1m30s", 90_000),
            ("1h0m0.5s", 3_600_500),
            ("1500ms", 1_500),
            // read by nobody
            ("soon", 0),
            ("5 s", 0),
            ("-3", 0),
        ] {
            let age = with_headers(&format!("Nats-TTL: {text}")).own_age;
            assert_eq!(age, Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(with_headers("Nats-TTL: never").own_age, Some(Duration::MAX));
        assert_eq!(with_headers("KV-Operation: PUT").own_age, None);
    }

    #[test]
    fn what_surely_was_not_done_is_told_from_the_rest() {
        let error = |reply| answer::<PutAnswer>(&reply).unwrap_err();
        let wrong = r#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"seq":0}"#;
        assert!(error(said("", wrong)).is_other_message());
        let gone = r#"{"error":{"code":400,"err_code":10043,"description":"sequence 7 not found"}}"#;
        assert!(error(said("", gone)).is_other_message());
        assert!(error(said("NATS/1.0 503\r\n\r\n", "")).is_definite());
        let unavailable = r#"{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}"#;
        assert!(!error(said("", unavailable)).is_definite());
        assert!(!error(said("", "{")).is_definite());
    }
}
