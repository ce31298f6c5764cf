//! NATS JetStream: three servers, where each stream elects a leader; a lock is a key of a bucket whose keys end by their age.

use harness_proxy::tap::Protocol;
use harness_workloads::nats::{NatsConnection, NatsRequest, api};
use harness_workloads::{BackendId, KeyValue};
use serde::de::DeserializeOwned;

use super::Backend;
use super::lock_keys::LockKeys;
use super::polled::PolledObserver;
use crate::cluster::{ByteStream, ServerAccess};

mod data;
mod looks;
mod server;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Nats),
    default_recipe: Some("nats-key-revision"),
    keys: "harness/{lock}",
    values: &[KeyValue::String],
    observe: Some(&|endpoints, keys| Box::pin(PolledObserver::connect(looks::open, endpoints, keys))),
    // no sweeper: a key ends by its age
    ..Backend::plain(&server::SOFTWARE, Protocol::Nats, &data::NatsData)
};

/// A connection to a server, over any stream.
type ServerConnection = NatsConnection<Box<dyn ByteStream>>;

async fn connect(server: &ServerAccess) -> Result<ServerConnection, String> {
    let stream = server.connect().await?;
    // no two connections begin at the same time, and a repeated run in virtual time has the same times
    NatsConnection::greet(stream, server.login(), server.clock().now_ns()).await
}

/// Sends a request, and decodes its answer; the error is a sentence.
async fn ask<T: DeserializeOwned>(connection: &mut ServerConnection, request: NatsRequest) -> Result<T, String> {
    let reply = connection.ask(&request).await.map_err(|error| error.to_string())?;
    api::answer(&reply).map_err(|error| error.to_string())
}

/// Returns the bucket with the locks, which is the prefix of their keys.
fn bucket(keys: &str) -> Result<&str, String> {
    let bucket = keys.split_once('/').map(|(bucket, _)| bucket);
    let named = bucket.filter(|bucket| !bucket.is_empty());
    named.ok_or_else(|| format!("{keys:?} does not begin with a bucket of NATS\nhint: keys=BUCKET/{{lock}}"))
}

/// Returns the key of a bucket in a subject.
fn key_in<'a>(bucket: &str, subject: &'a str) -> Option<&'a str> {
    subject.strip_prefix("$KV.")?.strip_prefix(bucket)?.strip_prefix('.')
}

/// Returns the lock of a subject.
fn lock_at(keys: &LockKeys, bucket: &str, subject: &str) -> Option<String> {
    keys.lock_at(&format!("{bucket}/{}", key_in(bucket, subject)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_a_key_of_the_bucket_that_its_pattern_begins_with() {
        let keys = LockKeys::default_of(&BACKEND);
        let bucket = bucket(keys.pattern.before()).unwrap();
        assert_eq!(bucket, api::BUCKET);
        assert_eq!(lock_at(&keys, bucket, "$KV.harness.l3"), Some("l3".into()));
        for other in ["$KV.harness.l3.waiters", "$KV.harness2.l3", "$KV.harness.x", "orders"] {
            assert_eq!(lock_at(&keys, bucket, other), None, "{other}");
        }
        let marked = keys.clone().marked(Some("harness-1a2b-"));
        assert_eq!(
            lock_at(&marked, bucket, "$KV.harness.harness-1a2b-l0"),
            Some("l0".into())
        );
        assert!(super::bucket("l0").unwrap_err().contains("keys=BUCKET/{lock}"));
    }
}
