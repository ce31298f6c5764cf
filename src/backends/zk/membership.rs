//! Membership of a ZooKeeper ensemble: dynamic reconfiguration removes a server from the ensemble and adds the new one, with a
//! vote, after it has learned from the leader.
//!
//! <https://zookeeper.apache.org/doc/current/zookeeperReconfig.html>

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use harness_workloads::Login;
use harness_workloads::zk::connector;
use sha1_smol::Sha1;
use zookeeper_client::{Client, EnsembleUpdate, Error};

use crate::cluster::{BoxFuture, ClusterMember, Membership, NodeAddress, NotRemoved, answer_of_others};
use crate::limits::PROBE;

/// The time for a change, with the election of another leader if the leader leaves.
const CHANGE: Duration = Duration::from_secs(10);
/// The session for the change.
const SESSION: Duration = Duration::from_secs(5);
/// The node of the ensemble's configuration.
const CONFIG: &str = "/zookeeper/config";

/// The only user who may change the ensembles that this process starts.
/// <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_authOptions>
static SUPER: LazyLock<Login> = LazyLock::new(|| Login {
    user: "super".to_owned(),
    ..Login::random()
});

/// Returns that user for the servers: the name and a digest of the password.
pub fn super_digest() -> String {
    let digest = Sha1::from(SUPER.digest()).digest().bytes();
    format!("{}:{}", SUPER.user, BASE64_STANDARD.encode(digest))
}

/// Returns a server's line in the configuration of a replaceable ensemble: `server.2=host:2888:3888:participant;2181`.
pub fn server_line(node: &NodeAddress) -> String {
    let NodeAddress {
        number, host, ports, ..
    } = node;
    // on loopback at that address alone
    let clients = match host.parse::<IpAddr>() {
        Ok(address) => format!("{address}:{}", ports[0]),
        Err(_) => ports[0].to_string(),
    };
    format!("server.{number}={host}:{}:{}:participant;{clients}", ports[1], ports[2])
}

pub struct ZkMembership;

impl Membership for ZkMembership {
    /// Returns `false`: the configuration of an ensemble has the plain ports of all its servers.
    fn with_tls(&self) -> bool {
        false
    }

    fn remove(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), NotRemoved>> {
        Box::pin(async move {
            let ensemble = answer_of_others(CHANGE, KnownEnsemble::of(&member)).await;
            let ensemble = ensemble.map_err(NotRemoved::Refused)?;
            let removed = answer_of_others(CHANGE, async { Ok(ensemble.remove().await) }).await;
            removed.unwrap_or_else(|why| Err(NotRemoved::Unknown(why)))
        })
    }

    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(answer_of_others(CHANGE, async move {
            match KnownEnsemble::of(&member).await?.remove().await {
                Ok(()) => Ok(()),
                Err(NotRemoved::Refused(why) | NotRemoved::Unknown(why)) => Err(why),
            }
        }))
    }

    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(answer_of_others(CHANGE, async move { settle(&member).await }))
    }
}

/// An ensemble by its other servers, with a session of the user who may change it.
struct KnownEnsemble {
    client: Client,
    number: u32,
    /// Whether its configuration has the server.
    has_it: bool,
}

impl KnownEnsemble {
    async fn of(member: &ClusterMember) -> Result<Self, String> {
        let servers: Vec<String> = member.others.servers().iter().map(ToString::to_string).collect();
        let client = connect(&servers.join(",")).await.map_err(said)?;
        // a follower may not know the last change yet
        client.sync(CONFIG).await.map_err(said)?;
        let number = member.address().number;
        let has_it = has_member(&client, number).await?;
        Ok(Self { client, number, has_it })
    }

    async fn remove(&self) -> Result<(), NotRemoved> {
        if !self.has_it {
            return Ok(());
        }
        let number = self.number.to_string();
        self.change(&[], &[&number]).await
    }

    async fn change(&self, joining: &[&str], leaving: &[&str]) -> Result<(), NotRemoved> {
        let update = EnsembleUpdate::Incremental {
            joinings: joining.iter().copied(),
            leavings: leaving.iter().copied(),
        };
        match self.client.update_ensemble(update, None).await {
            Ok(_) => Ok(()),
            Err(error) if may_be_done(&error) => Err(NotRemoved::Unknown(said(error))),
            Err(error) => Err(NotRemoved::Refused(said(error))),
        }
    }
}

async fn connect(servers: &str) -> Result<Client, Error> {
    let connecting = connector(Some(&SUPER))
        .with_session_timeout(SESSION)
        .with_connection_timeout(PROBE);
    connecting.connect(servers).await
}

async fn has_member(client: &Client, number: u32) -> Result<bool, String> {
    let (config, _) = client.get_config().await.map_err(said)?;
    let config = String::from_utf8_lossy(&config).into_owned();
    Ok(lists(&config, number))
}

/// Whether a configuration has a voting server of this number.
fn lists(config: &str, number: u32) -> bool {
    let of_server = format!("server.{number}=");
    config
        .lines()
        .any(|line| line.starts_with(&of_server) && line.contains(":participant"))
}

/// Whether the change may have been made in spite of this error.
fn may_be_done(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionLoss | Error::SessionExpired | Error::SessionMoved | Error::Timeout | Error::Custom(_)
    )
}

fn said(error: Error) -> String {
    // <https://zookeeper.apache.org/doc/current/apidocs/zookeeper-server/org/apache/zookeeper/KeeperException.Code.html>
    match error {
        Error::UnexpectedErrorCode(-13) => "no majority of the new ensemble is connected".to_owned(),
        Error::UnexpectedErrorCode(-14) => "another change is in progress".to_owned(),
        error => error.to_string(),
    }
}

async fn settle(member: &ClusterMember) -> Result<(), String> {
    let ensemble = KnownEnsemble::of(member).await?;
    if !ensemble.has_it {
        let line = server_line(member.address());
        if let Err(NotRemoved::Refused(why) | NotRemoved::Unknown(why)) = ensemble.change(&[&line], &[]).await {
            return Err(why);
        }
    }
    // the view of a client of the new server: the last change, and all before it
    let own = connect(&member.server.address.to_string()).await.map_err(said)?;
    match has_member(&own, ensemble.number).await? {
        true => Ok(()),
        false => Err("it does not know yet that it has a vote".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_listens_at_its_own_address_where_its_host_is_one() {
        for (host, line) in [
            ("127.0.0.1", "server.2=127.0.0.1:2888:3888:participant;127.0.0.1:2181"),
            ("run-n2", "server.2=run-n2:2888:3888:participant;2181"),
        ] {
            let node = NodeAddress::new(2, host, vec![2181, 2888, 3888]);
            assert_eq!(server_line(&node), line);
        }
    }

    #[test]
    fn an_observer_and_a_server_with_a_longer_number_have_no_vote_of_this_one() {
        let config =
            "server.1=a:1:2:participant;0.0.0.0:3\nserver.12=b:1:2:participant;0.0.0.0:3\nserver.3=c:1:2:observer;3";
        assert_eq!([1, 2, 3].map(|number| lists(config, number)), [true, false, false]);
    }

    #[test]
    fn the_digest_of_a_user_is_the_one_that_zookeeper_makes() {
        // its own example: <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_authOptions>
        let digest = Sha1::from("super:test").digest().bytes();
        assert_eq!(BASE64_STANDARD.encode(digest), "D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert!(super_digest().starts_with("super:"));
    }
}
