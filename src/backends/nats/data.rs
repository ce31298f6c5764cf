//! The streams of NATS servers: all of them removed from servers that harness started, keys of one run from others.

use std::time::Duration;

use harness_workloads::nats::api::{self, BUCKET, NamesAnswer, StreamAnswer};
use serde::de::IgnoredAny;

use super::{ServerConnection, ask, bucket, connect, key_in};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, named};
use crate::cluster::{BoxFuture, EndpointsReceiver, ReachedServers};
use crate::limits::SERVER_BACK;

pub struct NatsData;

impl StoredData for NatsData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        within_limit(async move {
            let mut connection = any(&endpoints).await?;
            for stream in streams(&mut connection).await? {
                ask::<IgnoredAny>(&mut connection, api::delete_stream(&stream)).await?;
            }
            Ok(())
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        within_limit(async move {
            let mut connection = any(&endpoints).await?;
            let streams = streams(&mut connection).await?;
            let own = api::stream_of(BUCKET);
            if streams.contains(&own) {
                let stream: StreamAnswer = ask(&mut connection, api::stream_state(&own)).await?;
                let age = Duration::from_nanos(stream.config.max_age);
                if age != lease {
                    return Err(format!(
                        "the keys of the bucket {BUCKET} end after {age:?}, and not after a lease of {lease:?}\nhint: --lease {age:?}"
                    ));
                }
            }
            Ok(StoreSurvey {
                holds: named(&streams, "stream"),
                top: streams,
                ..StoreSurvey::default()
            })
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        within_limit(async move {
            let mut connection = any(&endpoints).await?;
            let bucket = bucket(traces.pattern.before())?;
            let stream = api::stream_of(bucket);
            if !streams(&mut connection).await?.contains(&stream) {
                return Ok(0);
            }
            let mut removed = 0;
            let found: StreamAnswer = ask(&mut connection, api::stream_state(&stream)).await?;
            let subjects = found.state.subjects.keys();
            for subject in subjects.filter(|subject| traces.made(subject.as_bytes())) {
                if let Some(key) = key_in(bucket, subject) {
                    ask::<IgnoredAny>(&mut connection, api::purge(bucket, key)).await?;
                    removed += 1;
                }
            }
            let left: StreamAnswer = ask(&mut connection, api::stream_state(&stream)).await?;
            if !traces.top.contains(&stream) && left.state.messages == 0 {
                ask::<IgnoredAny>(&mut connection, api::delete_stream(&stream)).await?;
                removed += 1;
            }
            Ok(removed)
        })
    }
}

/// Asks with patience: servers that lost their leader a moment ago wait for the next one.
fn within_limit<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> BoxFuture<'static, Result<T, String>> {
    Box::pin(ReachedServers::REAL.clock.answer_within(SERVER_BACK, work))
}

/// A connection to the first server that takes one.
async fn any(endpoints: &EndpointsReceiver) -> Result<ServerConnection, String> {
    let endpoints = endpoints.borrow().clone();
    let mut why = "there is no server".to_owned();
    for server in endpoints.nodes() {
        match connect(&ReachedServers::REAL, *server, endpoints.login().as_deref()).await {
            Ok(connection) => return Ok(connection),
            Err(error) => why = format!("{server}: {error}"),
        }
    }
    Err(why)
}

async fn streams(connection: &mut ServerConnection) -> Result<Vec<String>, String> {
    let names: NamesAnswer = ask(connection, api::stream_names()).await?;
    Ok(names.streams.unwrap_or_default())
}
