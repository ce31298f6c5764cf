//! The member's end of a client's connection ([`MemberConnection`]): its open calls, and whether the client pings too often.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::request::{EtcdMessage, EtcdRequest};
use crate::network::ServerSide;
use crate::world::SimulatedTask;

/// The member's end of a client's connection.
pub(super) struct MemberConnection {
    side: ServerSide<EtcdRequest, EtcdMessage>,
    pub calls: BTreeMap<u64, ServedCall>,
    /// Whether something was sent since the last ping.
    has_sent: bool,
    /// The time of the last ping, in nanoseconds.
    last_ping: Option<u64>,
    /// Pings that came too early, in a row.
    strikes: u32,
}

/// A connection with a call on it must not be pinged more often: `--grpc-keepalive-min-time`, `embed/config.go:60` of 3.4.23.
const PING_NS: u64 = 5_000_000_000;
/// One without a call: `defaultPingTimeout` of grpc-go 1.26, `internal/transport/http2_server.go:811`, `handlePing`.
const IDLE_PING_NS: u64 = 2 * 3600 * 1_000_000_000;
/// After more of those than this the connection is closed: `maxPingStrikes`, there.
const MOST_STRIKES: u32 = 2;

impl MemberConnection {
    pub fn new(side: ServerSide<EtcdRequest, EtcdMessage>) -> Self {
        MemberConnection {
            side,
            calls: BTreeMap::new(),
            has_sent: false,
            last_ping: None,
            strikes: 0,
        }
    }

    pub fn send(&mut self, message: EtcdMessage) {
        self.has_sent = true;
        self.side.send(message);
    }

    /// Answers a ping. Returns whether the client sends too many: the connection is to be closed.
    pub fn answer_ping(&mut self, now: u64) -> bool {
        self.side.send(EtcdMessage::Pong);
        let before = self.last_ping.replace(now);
        if std::mem::take(&mut self.has_sent) {
            self.strikes = 0;
            return false;
        }
        let pause = if self.calls.is_empty() { IDLE_PING_NS } else { PING_NS };
        self.strikes += u32::from(before.is_some_and(|before| before + pause > now));
        self.strikes > MOST_STRIKES
    }
}

/// A call that is not answered, or a watch.
pub(super) struct ServedCall {
    pub task: SimulatedTask,
    /// Tells the task that its client has gone, so that it cleans up.
    pub gone: Option<oneshot::Sender<()>>,
    pub name: &'static str,
    /// Whether it ends when the member knows no leader for long.
    pub needs_leader: bool,
    /// Whether it is a watch that was answered.
    pub answered: bool,
}

impl ServedCall {
    /// Tells the task that its client does not wait any more.
    pub fn cancel(self) {
        match self.gone {
            Some(gone) => {
                let _ = gone.send(());
                self.task.detach();
            }
            None => drop(self.task),
        }
    }
}
