//! The methods of etcd's API ([`EtcdMethod`]), and their calls over a channel of the client library ([`ask`], [`open_stream`]).

use prost::Message;
use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::*;

/// A request of a method.
pub trait EtcdMethod: Message + 'static {
    /// The path of the method.
    const PATH: &'static str;
    type Answer: Message + Default + 'static;
}

/// Declares methods: the path, the request and the answer of each.
macro_rules! methods {
    ($($path:literal: $request:ty => $answer:ty;)+) => {
        $(impl EtcdMethod for $request {
            const PATH: &'static str = $path;
            type Answer = $answer;
        })+
    };
}

methods! {
    "/etcdserverpb.KV/Range": RangeRequest => RangeResponse;
    "/etcdserverpb.KV/DeleteRange": DeleteRangeRequest => DeleteRangeResponse;
    "/etcdserverpb.KV/Txn": TxnRequest => TxnResponse;
    "/etcdserverpb.Lease/LeaseGrant": LeaseGrantRequest => LeaseGrantResponse;
    "/etcdserverpb.Lease/LeaseRevoke": LeaseRevokeRequest => ();
    "/etcdserverpb.Lease/LeaseKeepAlive": LeaseKeepAliveRequest => LeaseKeepAliveResponse;
    "/etcdserverpb.Lease/LeaseTimeToLive": LeaseTimeToLiveRequest => LeaseTimeToLiveResponse;
    "/etcdserverpb.Watch/Watch": WatchRequest => WatchResponse;
    "/etcdserverpb.Cluster/MemberList": MemberListRequest => MemberListResponse;
    "/etcdserverpb.Cluster/MemberAdd": MemberAddRequest => ();
    "/etcdserverpb.Cluster/MemberRemove": MemberRemoveRequest => ();
    "/etcdserverpb.Maintenance/Status": StatusRequest => StatusResponse;
    "/etcdserverpb.Auth/AuthEnable": AuthEnableRequest => ();
    "/etcdserverpb.Auth/Authenticate": AuthenticateRequest => AuthenticateResponse;
    "/etcdserverpb.Auth/UserAdd": AuthUserAddRequest => ();
    "/etcdserverpb.Auth/UserGrantRole": AuthUserGrantRoleRequest => ();
    "/etcdserverpb.Auth/RoleAdd": AuthRoleAddRequest => ();
    "/etcdserverpb.Auth/RoleGrantPermission": AuthRoleGrantPermissionRequest => ();
    "/v3lockpb.Lock/Lock": LockRequest => LockResponse;
    "/v3lockpb.Lock/Unlock": UnlockRequest => ();
    "/v3electionpb.Election/Campaign": CampaignRequest => CampaignResponse;
    "/v3electionpb.Election/Resign": ResignRequest => ();
}

/// A channel whose requests carry a token, where there is one.
pub(super) type EtcdChannel = InterceptedService<Channel, LoginToken>;

/// The token that a member gave for a login; none where nobody logs in.
#[derive(Clone, Default)]
pub(super) struct LoginToken(pub(super) Option<MetadataValue<Ascii>>);

impl Interceptor for LoginToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

impl LoginToken {
    /// Returns a channel whose requests carry the token.
    pub(super) fn on(self, channel: Channel) -> EtcdChannel {
        InterceptedService::new(channel, self)
    }
}

/// Returns a client of the channel when that takes a request.
async fn ready(channel: EtcdChannel) -> Result<Grpc<EtcdChannel>, Status> {
    let mut client = Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    Ok(client)
}

/// Makes a call with one answer.
pub(super) async fn ask<M: EtcdMethod>(channel: EtcdChannel, request: M) -> Result<M::Answer, Status> {
    let mut client = ready(channel).await?;
    let (path, codec) = (PathAndQuery::from_static(M::PATH), ProstCodec::<M, M::Answer>::new());
    let answer = client.unary(Request::new(request), path, codec).await?;
    Ok(answer.into_inner())
}

/// Makes a call with any number of requests and answers. It shall end when its server has lost the majority: without `hasleader` it would
/// stay silent.
pub(super) async fn open_stream<M: EtcdMethod>(
    channel: EtcdChannel,
    requests: impl Stream<Item = M> + Send + 'static,
) -> Result<Streaming<M::Answer>, Status> {
    let mut client = ready(channel).await?;
    let mut request = Request::new(requests);
    let has_leader = MetadataValue::from_static("true");
    request.metadata_mut().insert("hasleader", has_leader);
    let (path, codec) = (PathAndQuery::from_static(M::PATH), ProstCodec::<M, M::Answer>::new());
    let answers = client.streaming(request, path, codec).await?;
    Ok(answers.into_inner())
}
