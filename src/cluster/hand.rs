//! A hand on the servers of a running cluster: kills them and starts them again, pauses and resumes them.
//!
//! Orders are carried out one after the other by a task that lives as long as the cluster, so that an order that was
//! given is carried out even if whoever gave it is gone: what heals a server may be ordered from a `Drop`.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{Census, ClusterError, Running, ready};
use crate::limits::READY_POLL;

/// What a server can be made to do. Kills and pauses add up: a server is back when each was answered by its opposite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGKILL; its data folder stays.
    Kill,
    /// With the same data, on the same ports.
    Start,
    Pause,
    Resume,
    /// Kill and start in one, so that no end of a run falls between them.
    Restart,
}

/// An order's outcome; an error of the channel means that the cluster is gone.
pub type Done = oneshot::Receiver<Result<(), ClusterError>>;

struct Order {
    node: usize,
    act: Act,
    done: oneshot::Sender<Result<(), ClusterError>>,
}

#[derive(Clone)]
pub struct Hand {
    // without a bound, since a `Drop` cannot wait; there are as many orders as windows and servers
    orders: mpsc::UnboundedSender<Order>,
    census: Census,
}

impl Hand {
    /// Gives an order for a server, from 0, and returns at once.
    pub fn order(&self, node: u32, act: Act) -> Done {
        let (done, outcome) = oneshot::channel();
        let node = node as usize;
        let _ = self.orders.send(Order { node, act, done });
        outcome
    }

    pub fn address(&self, node: u32) -> SocketAddr {
        self.census.addresses()[node as usize]
    }

    /// The server that leads now, from 0.
    pub async fn leader(&self) -> Option<u32> {
        let roles = self.census.roles().await;
        let leads = |role: &str| ["leader", "master", "standalone"].contains(&role);
        let at = roles
            .iter()
            .position(|(_, serving)| serving.as_ref().is_some_and(|serving| leads(&serving.role)))?;
        Some(at as u32)
    }

    /// Waits until a server serves again; returns whether it does.
    pub async fn serves(&self, node: u32, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while ready::ask(self.census.server, self.address(node)).await.is_err() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(READY_POLL).await;
        }
        true
    }
}

/// What a server still has to come back from.
#[derive(Debug, Clone, Copy, Default)]
struct Post {
    killed: u32,
    paused: u32,
}

impl Post {
    /// What an order comes to; `None` when another window still wants the server as it is.
    fn weigh(&mut self, act: Act) -> Option<Act> {
        match act {
            Act::Kill => {
                self.killed += 1;
                (self.killed == 1).then_some(act)
            }
            Act::Start => {
                self.killed = self.killed.saturating_sub(1);
                (self.killed == 0).then_some(act)
            }
            Act::Pause => {
                self.paused += 1;
                (self.paused == 1 && self.killed == 0).then_some(act)
            }
            Act::Resume => {
                self.paused = self.paused.saturating_sub(1);
                (self.paused == 0 && self.killed == 0).then_some(act)
            }
            Act::Restart => (self.killed == 0).then_some(act),
        }
    }
}

/// Starts the task that carries out orders. It ends with the last strong reference to what runs.
pub(super) fn keep(
    running: &Arc<AsyncMutex<Running>>,
    addresses: watch::Sender<Vec<SocketAddr>>,
    census: Census,
) -> (Hand, JoinHandle<()>) {
    let (orders, given) = mpsc::unbounded_channel();
    let keeping = tokio::spawn(carry_out(Arc::downgrade(running), given, addresses));
    (Hand { orders, census }, keeping)
}

async fn carry_out(
    running: Weak<AsyncMutex<Running>>,
    mut given: mpsc::UnboundedReceiver<Order>,
    addresses: watch::Sender<Vec<SocketAddr>>,
) {
    let mut posts = vec![Post::default(); addresses.borrow().len()];
    while let Some(Order { node, act, done }) = given.recv().await {
        let Some(running) = running.upgrade() else { return };
        let outcome = match posts[node].weigh(act) {
            None => Ok(()),
            Some(act) => running.lock().await.obey(node, act, &addresses).await,
        };
        // whoever gave the order may have left
        let _ = done.send(outcome);
    }
}

impl Running {
    async fn obey(
        &mut self,
        node: usize,
        act: Act,
        addresses: &watch::Sender<Vec<SocketAddr>>,
    ) -> Result<(), ClusterError> {
        match act {
            Act::Kill => self.kill(node).await,
            Act::Pause => self.pause(node).await,
            Act::Resume => self.resume(node).await,
            Act::Start | Act::Restart => {
                if act == Act::Restart {
                    self.kill(node).await?;
                }
                if let Some(address) = self.start(node).await? {
                    addresses.send_modify(|all| all[node] = address);
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(acts: &[Act]) -> Vec<bool> {
        let mut post = Post::default();
        acts.iter().map(|act| post.weigh(*act).is_some()).collect()
    }

    #[test]
    fn a_server_that_two_windows_killed_starts_with_the_second_heal() {
        use Act::{Kill, Start};
        assert_eq!(weighed(&[Kill, Kill, Start, Start]), [true, false, false, true]);
    }

    #[test]
    fn a_dead_server_is_neither_paused_nor_resumed_nor_restarted() {
        use Act::{Kill, Pause, Restart, Resume, Start};
        let acts = [Kill, Pause, Restart, Resume, Start, Restart];
        assert_eq!(weighed(&acts), [true, false, false, false, true, true]);
    }
}
