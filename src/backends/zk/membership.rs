//! Membership of a ZooKeeper ensemble: dynamic reconfiguration removes a server from the ensemble and adds the new one, with a
//! vote, after it has learned from the leader.
//!
//! <https://zookeeper.apache.org/doc/current/zookeeperReconfig.html>

use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use harness_workloads::Login;
use sha1_smol::Sha1;

use super::dialled::{DialledSession, WrittenRecord, wire};
use crate::cluster::{
    BoxFuture, ClusterMember, Endpoints, Membership, NodeAddress, NotRemoved, ServerAccess, first_answer,
};
use crate::limits::PROBE;

/// The time for a change, with the election of another leader if the leader leaves.
const CHANGE: Duration = Duration::from_secs(10);
/// The node of the ensemble's configuration.
const CONFIG: &str = "/zookeeper/config";

/// Returns the only user who may change the ensembles that this process starts. Nobody else reaches those in virtual time, where a random
/// password would make each run another one.
/// <https://zookeeper.apache.org/doc/current/zookeeperAdmin.html#sc_authOptions>
fn superuser(in_virtual_time: bool) -> Login {
    static PASSWORD: LazyLock<String> = LazyLock::new(|| Login::random().password);
    Login {
        user: "super".to_owned(),
        password: match in_virtual_time {
            true => "of a world".to_owned(),
            false => PASSWORD.clone(),
        },
    }
}

/// Returns that user for the servers: the name and a digest of the password.
pub fn super_digest(in_virtual_time: bool) -> String {
    let user = superuser(in_virtual_time);
    let digest = Sha1::from(user.digest()).digest().bytes();
    format!("{}:{}", user.user, BASE64_STANDARD.encode(digest))
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
            let ensemble = member.answer_of_others(CHANGE, KnownEnsemble::of(&member)).await;
            let ensemble = ensemble.map_err(NotRemoved::Refused)?;
            let removed = async { Ok(ensemble.remove().await) };
            let removed = member.answer_of_others(CHANGE, removed).await;
            removed.unwrap_or_else(|why| Err(NotRemoved::Unknown(why)))
        })
    }

    fn admit(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move {
            let removed = async {
                let removed = KnownEnsemble::of(&member).await?.remove().await;
                removed.map_err(|(NotRemoved::Refused(why) | NotRemoved::Unknown(why))| why)
            };
            member.answer_of_others(CHANGE, removed).await
        })
    }

    fn settle(&self, member: ClusterMember) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(async move { member.answer_of_others(CHANGE, settle(&member)).await })
    }
}

/// An ensemble by its other servers, with a session of the user who may change it.
struct KnownEnsemble {
    session: Arc<DialledSession>,
    number: u32,
    /// Whether its configuration has the server.
    has_it: bool,
}

impl KnownEnsemble {
    async fn of(member: &ClusterMember) -> Result<Self, String> {
        let session = enter(&member.others).await?;
        let number = member.address().number;
        let has_it = has_member(&session, number).await?;
        Ok(Self {
            session,
            number,
            has_it,
        })
    }

    async fn remove(&self) -> Result<(), NotRemoved> {
        if !self.has_it {
            return Ok(());
        }
        self.change(None, Some(&self.number.to_string())).await
    }

    /// Adds the server of a line of the configuration, or removes the one of a number.
    async fn change(&self, joining: Option<&str>, leaving: Option<&str>) -> Result<(), NotRemoved> {
        const NONE: i32 = -1;
        let or_none = |record: WrittenRecord, text: Option<&str>| match text {
            Some(text) => record.text(text),
            None => record.int(NONE),
        };
        // no list of all members, and whatever the configuration is
        let request = or_none(or_none(WrittenRecord::default(), joining), leaving);
        let request = request.int(NONE).long(NONE.into());
        let answer = self.session.ask(wire::RECONFIGURE, request).await;
        match answer.map_err(NotRemoved::Unknown)?.error {
            0 => Ok(()),
            error if MAY_BE_DONE.contains(&error) => Err(NotRemoved::Unknown(said(error))),
            error => Err(NotRemoved::Refused(said(error))),
        }
    }
}

/// Opens a session at the first of these servers that answers, as the user who may change the ensemble. Its view has the last change.
async fn enter(servers: &Endpoints) -> Result<Arc<DialledSession>, String> {
    first_answer(servers.accesses(), PROBE, |server: ServerAccess| async move {
        let (session, _) = DialledSession::begin(server.connect().await?, server.clock()).await?;
        session.log_in(&superuser(server.clock().is_virtual())).await?;
        // a follower may not know the last change yet
        let synced = session.ask(wire::SYNC, WrittenRecord::default().text(CONFIG)).await?;
        synced.accepted().map(|()| session)
    })
    .await
}

async fn has_member(session: &DialledSession, number: u32) -> Result<bool, String> {
    let config = WrittenRecord::default().text(CONFIG).flag(false);
    let mut answer = session.ask(wire::GET_DATA, config).await?;
    match (answer.error, answer.text()) {
        (0, Some(config)) => Ok(lists(&config, number)),
        _ => Err("it does not tell the configuration of its ensemble".to_owned()),
    }
}

/// Whether a configuration has a voting server of this number.
fn lists(config: &str, number: u32) -> bool {
    let of_server = format!("server.{number}=");
    config
        .lines()
        .any(|line| line.starts_with(&of_server) && line.contains(":participant"))
}

/// The errors after which the change may have been made: of a lost connection, a timeout, and the end or the move of a session.
/// <https://zookeeper.apache.org/doc/current/apidocs/zookeeper-server/org/apache/zookeeper/KeeperException.Code.html>
const MAY_BE_DONE: [i32; 4] = [-4, -7, -112, -118];

fn said(error: i32) -> String {
    match error {
        -13 => "no majority of the new ensemble is connected".to_owned(),
        -14 => "another change is in progress".to_owned(),
        error => format!("it answers with error {error}"),
    }
}

async fn settle(member: &ClusterMember) -> Result<(), String> {
    let ensemble = KnownEnsemble::of(member).await?;
    if !ensemble.has_it {
        let line = server_line(member.address());
        if let Err(NotRemoved::Refused(why) | NotRemoved::Unknown(why)) = ensemble.change(Some(&line), None).await {
            return Err(why);
        }
    }
    // the view of a client of the new server: the last change, and all before it
    let own = enter(&member.others.at(member.server.address)).await?;
    match has_member(&own, ensemble.number).await? {
        true => Ok(()),
        false => Err("it does not know yet that it has a vote".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::clock::GroundClock;

    /// Reads what follows a length.
    async fn framed(stream: &mut DuplexStream) -> Vec<u8> {
        let length = stream.read_i32().await.unwrap();
        let mut bytes = vec![0; length as usize];
        stream.read_exact(&mut bytes).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_removal_is_asked_for_as_zookeeper_reads_it_and_its_error_has_words() {
        let (ours, mut theirs) = duplex(1024);
        let server = async {
            framed(&mut theirs).await;
            // the length, the version of the protocol, and the timeout of the session
            let session = [[0_u8, 0, 0, 8], [0; 4], [0, 0, 16, 0]].concat();
            theirs.write_all(&session).await.unwrap();
            let asked = framed(&mut theirs).await;
            // the length, the number of the request, the last change, and the error
            let answer = [[0_u8, 0, 0, 16], [0, 0, 0, 1], [0; 4], [0; 4], (-14_i32).to_be_bytes()].concat();
            theirs.write_all(&answer).await.unwrap();
            asked
        };
        let client = async {
            let begun = DialledSession::begin(Box::new(ours), GroundClock::Real).await;
            let ensemble = KnownEnsemble {
                session: begun.unwrap().0,
                number: 3,
                has_it: true,
            };
            ensemble.remove().await
        };
        let (asked, removed) = tokio::join!(server, client);
        // the first request, a change: nobody joins, 3 leaves, no list of all, no number of the configuration
        let none = [0xff_u8; 4];
        let parts: [&[u8]; 8] = [
            &[0, 0, 0, 1],
            &[0, 0, 0, 16],
            &none,
            &[0, 0, 0, 1],
            b"3",
            &none,
            &none,
            &none,
        ];
        assert_eq!(asked, parts.concat());
        assert!(matches!(removed, Err(NotRemoved::Refused(why)) if why == "another change is in progress"));
    }

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
        assert!(super_digest(false).starts_with("super:"));
        assert_ne!(super_digest(true), super_digest(false));
    }
}
