//! Removes every key that clients left on etcd, so that the next run finds servers as new. Its revisions go on from where
//! they were.

use harness_workloads::etcd::wire::etcdserverpb::DeleteRangeRequest;
use harness_workloads::etcd::wire::etcdserverpb::kv_client::KvClient;
use tokio::time::timeout;

use super::key_changes::channel;
use crate::cluster::EndpointsReceiver;
use crate::limits::SERVER_BACK;

pub async fn wipe(endpoints: EndpointsReceiver) -> Result<(), String> {
    let mut keys = KvClient::new(channel(&endpoints));
    // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
    let all = DeleteRangeRequest {
        key: vec![0],
        range_end: vec![0],
        ..DeleteRangeRequest::default()
    };
    // a member that lost its leader a moment ago waits for the next one
    let wiped = timeout(SERVER_BACK, keys.delete_range(all)).await;
    let wiped = wiped.map_err(|_| "it does not answer".to_owned())?;
    wiped.map(drop).map_err(|status| status.message().to_owned())
}
