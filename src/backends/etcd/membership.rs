//! Membership of etcd: `member remove` through another member, `member add` with the same peer address, and a check whether the
//! new member has the data of the others.
//!
//! etcd refuses to remove a member if too few of the others were connected for the last five seconds (`--strict-reconfig-check`,
//! the default): <https://etcd.io/docs/v3.5/op-guide/runtime-configuration/>

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::Login;
use harness_workloads::etcd::wire::{
    Member, MemberAddRequest, MemberListRequest, MemberRemoveRequest, StatusRequest, StatusResponse,
};

use super::dialled::GrpcConnection;
use super::guard::ROOT;
use crate::cluster::{BoxFuture, ClusterMember, Endpoints, Membership, NodeAddress, NotRemoved, first_answer};
use crate::limits::PROBE;

/// Time for the others to agree on a change; a member waits as long for its leader.
const CHANGE: Duration = Duration::from_secs(7);
/// The messages of members that refuse to propose a change.
const REFUSALS: [&str; 2] = ["unhealthy cluster", "not enough started members"];
/// The message about a member that was removed before.
const NO_MEMBER: &str = "member not found";

pub struct EtcdMembership;

impl Membership for EtcdMembership {
    fn with_tls(&self) -> bool {
        true
    }

    fn remove(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), NotRemoved>> {
        Box::pin(async move {
            let listed = member.answer_of_others(CHANGE, ListedMembers::of(&member)).await;
            let listed = listed.map_err(NotRemoved::Refused)?;
            let Err(why) = member.answer_of_others(CHANGE, listed.remove(&url_of(&member))).await else {
                return Ok(());
            };
            match REFUSALS.iter().any(|refusal| why.contains(refusal)) {
                true => Err(NotRemoved::Refused(why)),
                false => Err(NotRemoved::Unknown(why)),
            }
        })
    }

    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { member.answer_of_others(CHANGE, admit(&member)).await })
    }

    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { member.answer_of_others(CHANGE, settle(&member)).await })
    }
}

/// The members as the others list them, and a connection to one of the others.
struct ListedMembers {
    connection: GrpcConnection,
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
    async fn of(member: &ClusterMember) -> Result<Self, String> {
        let connection = enter(&member.others).await?;
        let members = connection.ask(&MemberListRequest {}).await?.members;
        Ok(Self { connection, members })
    }

    /// Removes the member with this peer address, if there is one.
    async fn remove(&self, url: &str) -> Result<(), String> {
        let Some(id) = self.at(url).map(|listed| listed.id) else {
            return Ok(());
        };
        match self.connection.ask(&MemberRemoveRequest { id }).await {
            // an earlier try removed it
            Err(why) if why.contains(NO_MEMBER) => Ok(()),
            removed => removed,
        }
    }

    /// Returns the member with this peer address.
    fn at(&self, url: &str) -> Option<&Member> {
        self.members
            .iter()
            .find(|member| member.peer_urls.iter().any(|known| known == url))
    }
}

/// Connects to the first of these servers that answers, as the user who may change members.
async fn enter(servers: &Endpoints) -> Result<GrpcConnection, String> {
    let root = |login: Arc<Login>| Login {
        user: ROOT.to_owned(),
        password: login.password.clone(),
    };
    let root = servers.login().map(root).map(Arc::new);
    first_answer(
        servers.clone().with_login(root).accesses(),
        PROBE,
        GrpcConnection::answering,
    )
    .await
}

async fn admit(member: &ClusterMember) -> Result<(), String> {
    let url = url_of(member);
    let listed = ListedMembers::of(member).await?;
    // a listed one without a name has not started yet
    if listed.at(&url).is_some_and(|listed| !listed.name.is_empty()) {
        listed.remove(&url).await?;
    }
    let listed = ListedMembers::of(member).await?;
    match listed.at(&url) {
        Some(waits) if waits.name.is_empty() => Ok(()),
        Some(_) => Err("the old server is still a member".to_owned()),
        None => {
            let request = MemberAddRequest { peer_urls: vec![url] };
            listed.connection.ask(&request).await
        }
    }
}

async fn settle(member: &ClusterMember) -> Result<(), String> {
    let others = enter(&member.others).await?.ask(&StatusRequest {}).await?;
    let listed = ListedMembers::of(member).await?;
    let listed = listed.at(&url_of(member)).ok_or("it is not a member")?;
    if listed.name.is_empty() || listed.is_learner {
        return Err("it has no vote yet".to_owned());
    }
    let own = enter(&member.others.at(member.server.address)).await?;
    let own = own.ask(&StatusRequest {}).await?;
    let revision = |status: &StatusResponse| status.header.as_ref().map_or(0, |header| header.revision);
    match (own.leader, revision(&own), revision(&others)) {
        (0, ..) => Err("it knows no leader".to_owned()),
        (_, own, others) if own < others => Err(format!("it is at revision {own} and the others at {others}")),
        _ => Ok(()),
    }
}
