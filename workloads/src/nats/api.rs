//! The requests of JetStream's API that locks are made of, and how their answers are read.
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
use crate::session::nats::KeyMessage;

/// The bucket in which the recipes keep locks.
pub const BUCKET: &str = "harness";

/// What the last message of a key must be for a write to be taken.
const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";
/// In the headers of a message that is a marker, with the word `DEL` or `PURGE`.
const OPERATION: &str = "KV-Operation";

/// The stream of a bucket.
pub fn stream_of(bucket: &str) -> String {
    format!("KV_{bucket}")
}

fn subject_of(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

/// Why a request was refused.
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

    /// The message is not there, or another one is the last.
    pub fn is_other_message(&self) -> bool {
        // wrong last sequence, in two forms; no message found; sequence not found
        [10071, 10164, 10037, 10043].contains(&self.err_code)
            // a message that could not be deleted, which has other reasons, too
            || (self.err_code == 10057 && ["no message found", "stream store EOF"].contains(&&*self.description))
    }

    /// No stream of that name.
    pub fn is_no_stream(&self) -> bool {
        self.err_code == 10059
    }

    /// A stream of that name with other settings.
    pub fn is_other_stream(&self) -> bool {
        self.err_code == 10058
    }

    /// Surely nothing was done.
    pub fn is_definite(&self) -> bool {
        self.is_other_message() || self.is_no_stream() || (self.err_code == 0 && self.code == Self::NO_RESPONDERS)
    }
}

/// Reads an answer.
pub fn answer<T: DeserializeOwned>(reply: &NatsReply) -> Result<T, JetStreamError> {
    let unread = |description: String| JetStreamError {
        description,
        ..JetStreamError::default()
    };
    if let Some(status) = reply.headers.strip_prefix("NATS/1.0 ") {
        let code = status.get(..3).and_then(|code| code.parse().ok()).unwrap_or_default();
        return Err(JetStreamError {
            code,
            ..unread("no server leads it".to_owned())
        });
    }
    let mut value: Value = serde_json::from_slice(&reply.payload).map_err(|error| unread(error.to_string()))?;
    if let Some(error) = value.get_mut("error") {
        return Err(serde_json::from_value(error.take()).unwrap_or_else(|error| unread(error.to_string())));
    }
    serde_json::from_value(value).map_err(|error| unread(error.to_string()))
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

/// The answer to [`last_message`]; `None`: there is none.
pub fn message(reply: &NatsReply) -> Result<Option<KeyMessage>, JetStreamError> {
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
    Ok(Some(KeyMessage {
        revision: message.seq,
        value: text(&message.data),
        deleted: text(&message.hdrs).contains(&format!("{OPERATION}:")),
    }))
}

/// Removes the message of a revision.
pub fn remove(bucket: &str, revision: u64) -> NatsRequest {
    let which = json!({ "seq": revision, "no_erase": true });
    api(format!("STREAM.MSG.DELETE.{}", stream_of(bucket)), &which)
}

/// Removes the messages of a key.
pub fn purge(bucket: &str, key: &str) -> NatsRequest {
    let which = json!({ "filter": subject_of(bucket, key) });
    api(format!("STREAM.PURGE.{}", stream_of(bucket)), &which)
}

/// The answer to [`purge`].
#[derive(Debug, Deserialize)]
pub struct PurgeAnswer {
    pub purged: u64,
}

/// Asks what a stream is, with the names of its subjects.
pub fn stream_state(stream: &str) -> NatsRequest {
    api(format!("STREAM.INFO.{stream}"), &json!({ "subjects_filter": ">" }))
}

/// The answer to [`stream_state`].
#[derive(Debug, Clone, Deserialize)]
pub struct StreamAnswer {
    pub config: StreamSettings,
    #[serde(default)]
    pub state: BucketState,
    /// None on a server that is alone.
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
