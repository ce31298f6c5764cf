//! The session of a client with a simulated cluster: other lines for the session that the client of real servers has
//! (`etcd/client_session.rs` of workloads), which gives up calls and turns to the next member in the same way.

use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::SessionError;
use harness_workloads::etcd::{
    CONNECTS_A_LEASE, EtcdAnswer, EtcdCall, EtcdFailure, EtcdFailureKind, EtcdLine, EtcdReply, EtcdServers, EtcdWatch,
    PINGS_A_LEASE,
};

use super::channel::{CallChannel, ChannelSettings, NotSent};
use super::cluster::SimulatedEtcd;
use super::connection::{OpenStream, StreamMessage, timer_of};
use super::request::EtcdStatus;
use crate::network::SimulatedLink;
use crate::world::SimulatedProcess;

impl SimulatedEtcd {
    /// Returns the session of a client in `process`. `links` has a link for each member, in order. Connects when first used.
    pub fn session(self, links: Vec<SimulatedLink>, process: SimulatedProcess, lease: Duration) -> EtcdServers {
        let host = process.host();
        let line = |(member, link)| -> Box<dyn EtcdLine> {
            Box::new(CallChannel::new(ChannelSettings {
                etcd: self,
                member,
                link,
                host: host.clone(),
                connect_limit: lease / CONNECTS_A_LEASE,
                ping: lease / PINGS_A_LEASE,
            }))
        };
        let lines = links.into_iter().enumerate().map(line).collect();
        EtcdServers::over(lines, lease, host, timer_of)
    }
}

#[async_trait(?Send)]
impl EtcdLine for CallChannel {
    async fn call(&self, call: EtcdCall) -> Result<EtcdReply, EtcdFailure> {
        let sent = self.send(call).await;
        let stream = sent.map_err(|NotSent(why)| EtcdFailure::new(EtcdFailureKind::NotSent, why))?;
        let unknown = |why: &str| EtcdFailure::new(EtcdFailureKind::Unknown, why);
        match stream.next().await {
            Ok(StreamMessage::Answer(Ok(EtcdAnswer::Watching))) => {
                let watch: Box<dyn EtcdWatch> = Box::new(RoutedEtcdWatch(stream));
                Ok((EtcdAnswer::Watching, Some(watch)))
            }
            Ok(StreamMessage::Answer(Ok(answer))) => Ok((answer, None)),
            Ok(StreamMessage::Answer(Err(EtcdStatus::LeaseNotFound))) => {
                let words = "requested lease not found";
                Err(EtcdFailure::new(EtcdFailureKind::NotFound, words))
            }
            Ok(StreamMessage::Answer(Err(EtcdStatus::Unavailable(words) | EtcdStatus::Unknown(words)))) => {
                Err(unknown(words))
            }
            Ok(StreamMessage::Events(_) | StreamMessage::Ended) => Err(unknown("the stream ended")),
            Err(why) => Err(unknown(why)),
        }
    }
}

struct RoutedEtcdWatch(OpenStream);

#[async_trait(?Send)]
impl EtcdWatch for RoutedEtcdWatch {
    async fn next(&mut self) -> Result<Vec<bool>, SessionError> {
        match self.0.next().await {
            Ok(StreamMessage::Events(events)) => Ok(events.iter().map(|event| event.deleted).collect()),
            Ok(StreamMessage::Answer(_) | StreamMessage::Ended) => {
                Err(SessionError::Lost("watch: the stream ended".into()))
            }
            Err(why) => Err(SessionError::Lost(format!("watch: {why}"))),
        }
    }
}
