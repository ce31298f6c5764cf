//! The data of NATS servers: all streams are removed from servers that harness started, keys of one run from others.

use std::time::Duration;

use harness_workloads::nats::api::{self, BUCKET, NamesAnswer, StreamAnswer};
use serde::de::IgnoredAny;

use super::{ServerConnection, ask, bucket, connect};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, connect_to_any, in_time, named};
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};

/// The words of a server that refuses a login.
const REFUSED_LOGIN: &str = "Authorization Violation";

pub struct NatsData;

impl StoredData for NatsData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        in_time(async move {
            let mut connection = any(&endpoints).await?;
            for stream in streams(&mut connection).await? {
                ask::<IgnoredAny>(&mut connection, api::delete_stream(&stream)).await?;
            }
            Ok(())
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        in_time(async move {
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
        in_time(async move {
            let mut connection = any(&endpoints).await?;
            let own = bucket(traces.pattern.before()).map(api::stream_of).unwrap_or_default();
            let mut removed = 0;
            // a client may keep other entries, and in other buckets
            for stream in streams(&mut connection).await? {
                removed += remove_traces(&mut connection, &stream, &traces).await?;
                if stream == own && !traces.top.contains(&own) && is_empty(&mut connection, &own).await? {
                    ask::<IgnoredAny>(&mut connection, api::delete_stream(&own)).await?;
                    removed += 1;
                }
            }
            Ok(removed)
        })
    }
}

/// Removes the messages of subjects with the run's mark; returns the number of these subjects.
async fn remove_traces(connection: &mut ServerConnection, stream: &str, traces: &RunTraces) -> Result<u64, String> {
    let found: StreamAnswer = ask(connection, api::stream_state(stream)).await?;
    let subjects = found.state.subjects.keys();
    let mut removed = 0;
    for subject in subjects.filter(|subject| traces.made(subject.as_bytes())) {
        ask::<IgnoredAny>(connection, api::purge_subject(stream, subject)).await?;
        removed += 1;
    }
    Ok(removed)
}

/// Whether a stream has no messages.
async fn is_empty(connection: &mut ServerConnection, stream: &str) -> Result<bool, String> {
    let left: StreamAnswer = ask(connection, api::stream_state(stream)).await?;
    Ok(left.state.messages == 0)
}

async fn any(endpoints: &EndpointsReceiver) -> Result<ServerConnection, String> {
    let begin = |server: ServerAccess| async move {
        match connect(&server).await {
            // another server and another try would refuse it as well
            Err(why) if why == REFUSED_LOGIN => Ok(Err(why)),
            connected => connected.map(Ok),
        }
    };
    connect_to_any(|| endpoints.borrow().accesses(), begin).await?
}

async fn streams(connection: &mut ServerConnection) -> Result<Vec<String>, String> {
    let names: NamesAnswer = ask(connection, api::stream_names()).await?;
    Ok(names.streams.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::Endpoints;

    /// Answers the next client, and keeps its connection open.
    async fn serve(listener: &TcpListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"INFO {}\r\nPONG\r\n").await.unwrap();
        std::future::pending::<()>().await;
    }

    /// Connects to the first of these servers that answers.
    async fn connect_to(servers: &[&TcpListener], serving: impl Future<Output = ()>) {
        let addresses = servers.iter().map(|listener| listener.local_addr().unwrap());
        let endpoints = watch::channel(Endpoints::new(addresses.collect(), None)).1;
        let connecting = in_time(async move { any(&endpoints).await.map(drop) });
        tokio::select! {
            () = serving => unreachable!("it serves until it is dropped"),
            connected = connecting => connected.unwrap(),
        }
    }

    #[tokio::test]
    async fn a_silent_server_leaves_time_for_the_others() {
        let listen = || TcpListener::bind(("127.0.0.1", 0));
        let (silent, other) = (listen().await.unwrap(), listen().await.unwrap());
        connect_to(&[&silent, &other], serve(&other)).await;
    }

    #[tokio::test]
    async fn a_refused_login_is_not_tried_again() {
        let server = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let endpoints = watch::channel(Endpoints::new(vec![server.local_addr().unwrap()], None)).1;
        // answers one client
        let serving = async {
            let (mut stream, _) = server.accept().await.unwrap();
            let refusal = b"INFO {}\r\n-ERR 'Authorization Violation'\r\n";
            stream.write_all(refusal).await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => unreachable!("it serves until it is dropped"),
            connected = any(&endpoints) => assert_eq!(connected.err().as_deref(), Some(REFUSED_LOGIN)),
        }
    }

    #[tokio::test]
    async fn the_only_server_is_asked_again() {
        let busy = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let serving = async {
            let _unanswered = busy.accept().await.unwrap();
            serve(&busy).await;
        };
        connect_to(&[&busy], serving).await;
    }
}
