//! The data of etcd: all keys are removed from servers that harness started, those of one run from others. Revisions continue.

use std::time::Duration;

use harness_workloads::etcd::wire::{DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest};

use super::dialled::GrpcConnection;
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, connect_to_any, counted, in_time};
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};

/// Keys in one answer.
const PORTION: i64 = 1000;
/// The beginning of the words of a member that refuses a login.
const REFUSED_LOGIN: &str = "etcdserver: authentication";

pub struct EtcdData;

impl StoredData for EtcdData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
            let all = DeleteRangeRequest {
                key: vec![0],
                range_end: vec![0],
            };
            store.ask(&all).await.map(drop)
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            survey(&store, lease).await
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            remove(&store, &traces).await
        })
    }
}

async fn any(endpoints: &EndpointsReceiver) -> Result<GrpcConnection, String> {
    let connect = |server: ServerAccess| async move {
        match GrpcConnection::answering(server).await {
            // another member and another try would refuse it as well
            Err(why) if why.starts_with(REFUSED_LOGIN) => Ok(Err(why)),
            connected => connected.map(Ok),
        }
    };
    connect_to_any(|| endpoints.borrow().accesses(), connect).await?
}

async fn survey(store: &GrpcConnection, lease: Duration) -> Result<StoreSurvey, String> {
    let count = RangeRequest {
        key: vec![0],
        range_end: vec![0],
        count_only: true,
        ..RangeRequest::default()
    };
    let counted_keys = store.ask(&count).await?;
    // the servers have a minimum lease
    let asked = lease.as_secs() as i64;
    let granted = store.ask(&LeaseGrantRequest { ttl: asked }).await?;
    store.ask(&LeaseRevokeRequest { id: granted.id }).await?;
    if granted.ttl != asked {
        let granted = granted.ttl;
        return Err(format!(
            "these servers grant a lease of {granted}s when one of {asked}s is asked for\nhint: --lease {granted}s"
        ));
    }
    Ok(StoreSurvey {
        holds: counted(counted_keys.count as u64, "key"),
        ..StoreSurvey::default()
    })
}

/// Removes the run's keys, one by one, so that no range has a key of others.
async fn remove(store: &GrpcConnection, traces: &RunTraces) -> Result<u64, String> {
    let mut removed = 0;
    let mut from = vec![0];
    loop {
        let portion = RangeRequest {
            key: from,
            range_end: vec![0],
            limit: PORTION,
            keys_only: true,
            ..RangeRequest::default()
        };
        let portion = store.ask(&portion).await?;
        for kv in portion.kvs.iter().filter(|kv| traces.made(&kv.key)) {
            let own = DeleteRangeRequest {
                key: kv.key.clone(),
                ..DeleteRangeRequest::default()
            };
            removed += store.ask(&own).await?.deleted as u64;
        }
        match portion.kvs.last() {
            // the first key after the last one
            Some(last) if portion.more => from = [&last.key[..], &[0]].concat(),
            _ => return Ok(removed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use harness_workloads::Login;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::Endpoints;

    #[tokio::test]
    async fn a_refused_login_is_not_tried_again() {
        const WHY: &str = "etcdserver: authentication failed, invalid user ID or password";
        let member = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let login = Login {
            user: "user".into(),
            password: "wrong".into(),
        };
        let endpoints = Endpoints::new(vec![member.local_addr().unwrap()], None).with_login(Some(Arc::new(login)));
        let endpoints = watch::channel(endpoints).1;
        // answers one request
        let serving = async {
            let (stream, _) = member.accept().await.unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let (_request, mut answer) = connection.accept().await.unwrap().unwrap();
            let refused = http::Response::builder().header("grpc-message", WHY).body(());
            answer.send_response(refused.unwrap(), true).unwrap();
            while connection.accept().await.is_some() {}
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serving => unreachable!("it serves until it is dropped"),
            connected = any(&endpoints) => assert_eq!(connected.err().as_deref(), Some(WHY)),
        }
    }
}
