//! Membership of etcd: `member remove` through another member, `member add` with the same peer address, and a check whether the
//! new member has the data of the others.
//!
//! etcd refuses to remove a member if too few of the others were connected for the last five seconds (`--strict-reconfig-check`,
//! the default): <https://etcd.io/docs/v3.5/op-guide/runtime-configuration/>

use std::net::IpAddr;
use std::time::Duration;

use harness_workloads::Login;
use harness_workloads::etcd::EtcdChannel;
use harness_workloads::etcd::wire::etcdserverpb::cluster_client::ClusterClient;
use harness_workloads::etcd::wire::etcdserverpb::maintenance_client::MaintenanceClient;
use harness_workloads::etcd::wire::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberRemoveRequest, StatusRequest, StatusResponse,
};
use tonic::{Code, Status};

use super::channel::{logged_in, plain_channel, said};
use super::guard::ROOT;
use crate::cluster::{BoxFuture, ClusterMember, Endpoints, Membership, NodeAddress, NotRemoved, answer_of_others};

/// Time for the others to agree on a change; a member waits as long for its leader.
const CHANGE: Duration = Duration::from_secs(7);
/// The messages of members that refuse to propose a change.
const REFUSALS: [&str; 2] = ["unhealthy cluster", "not enough started members"];

pub struct EtcdMembership;

impl Membership for EtcdMembership {
    fn with_tls(&self) -> bool {
        true
    }

    fn remove(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), NotRemoved>> {
        Box::pin(async move {
            let listed = async { ListedMembers::of(&member).await.map_err(said) };
            let listed = answer_of_others(CHANGE, listed).await.map_err(NotRemoved::Refused)?;
            let removed = async { listed.remove(&url_of(&member)).await.map_err(said) };
            let removed = answer_of_others(CHANGE, removed).await;
            removed.map_err(|why| match REFUSALS.iter().any(|refusal| why.contains(refusal)) {
                true => NotRemoved::Refused(why),
                false => NotRemoved::Unknown(why),
            })
        })
    }

    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        let admitted = async move { admit(&member).await.map_err(said) };
        Box::pin(answer_of_others(CHANGE, admitted))
    }

    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(answer_of_others(CHANGE, async move { settle(&member).await }))
    }
}

/// The members as the others list them, and a connection to the others.
struct ListedMembers {
    cluster: ClusterClient<EtcdChannel>,
    members: Vec<Member>,
}

/// Returns the URL at which its peers dial a node, by proxies or without. Go's HTTP client never uses a proxy for loopback
/// addresses; it does for names, which need not resolve.
pub(super) fn peer_url(node: &NodeAddress, by_proxy: bool) -> String {
    let host = match by_proxy && node.host.parse::<IpAddr>().is_ok() {
        true => &node.name,
        false => &node.host,
    };
    format!("http://{host}:{}", node.ports[1])
}

/// Returns the URL at which its peers dial a member.
fn url_of(member: &ClusterMember) -> String {
    peer_url(member.address(), member.server.peers_by_proxy)
}

impl ListedMembers {
    async fn of(member: &ClusterMember) -> Result<Self, Status> {
        let mut cluster = ClusterClient::new(enter(&member.others).await?);
        let listed = cluster.member_list(MemberListRequest {}).await?.into_inner();
        Ok(Self {
            cluster,
            members: listed.members,
        })
    }

    /// Removes the member with this peer address, if there is one.
    async fn remove(mut self, url: &str) -> Result<(), Status> {
        let Some(id) = self.at(url).map(|listed| listed.id) else {
            return Ok(());
        };
        match self.cluster.member_remove(MemberRemoveRequest { id }).await {
            // an earlier try removed it
            Err(status) if status.code() == Code::NotFound => Ok(()),
            removed => removed.map(drop),
        }
    }

    /// Returns the member with this peer address.
    fn at(&self, url: &str) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.peer_ur_ls.iter().any(|known| known == url))
    }
}

/// Returns a channel to these servers for the user who may change members.
async fn enter(servers: &Endpoints) -> Result<EtcdChannel, Status> {
    let root = servers.login().map(|login| Login {
        user: ROOT.to_owned(),
        password: login.password.clone(),
    });
    logged_in(plain_channel(servers), root.as_ref()).await
}

async fn admit(member: &ClusterMember) -> Result<(), Status> {
    let url = url_of(member);
    let listed = ListedMembers::of(member).await?;
    // a listed one without a name has not started yet
    if listed.at(&url).is_some_and(|listed| !listed.name.is_empty()) {
        listed.remove(&url).await?;
    }
    let mut listed = ListedMembers::of(member).await?;
    match listed.at(&url) {
        Some(waits) if waits.name.is_empty() => Ok(()),
        Some(_) => Err(Status::aborted("the old server is still a member")),
        None => {
            let add = MemberAddRequest { peer_ur_ls: vec![url] };
            listed.cluster.member_add(add).await.map(drop)
        }
    }
}

async fn settle(member: &ClusterMember) -> Result<(), String> {
    let status = async |servers: &Endpoints| {
        let asked = MaintenanceClient::new(plain_channel(servers))
            .status(StatusRequest {})
            .await;
        asked.map(tonic::Response::into_inner).map_err(said)
    };
    let others = status(&member.others).await?;
    let listed = ListedMembers::of(member).await.map_err(said)?;
    let listed = listed.at(&url_of(member)).ok_or("it is not a member")?;
    if listed.name.is_empty() || listed.is_learner {
        return Err("it has no vote yet".to_owned());
    }
    let own = status(&Endpoints::new(vec![member.server.address], None)).await?;
    let revision = |status: &StatusResponse| status.header.as_ref().map_or(0, |header| header.revision);
    match (own.leader, revision(&own), revision(&others)) {
        (0, ..) => Err("it knows no leader".to_owned()),
        (_, own, others) if own < others => Err(format!("it is at revision {own} and the others at {others}")),
        _ => Ok(()),
    }
}
