//! A hand on the servers of a running cluster: kills them and starts them again, pauses and resumes them.
//!
//! Orders are carried out one after the other by a task that lives as long as the cluster, so that an order that was
//! given is carried out even if whoever gave it is gone: what heals a server may be ordered from a `Drop`.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::redis::{PROMOTE, follow};
use super::{Census, ClusterError, Places, Running, ready};
use crate::limits::{PROBE, READY_POLL};

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
    /// A replica becomes a master.
    Promote,
    /// A server becomes the replica of the one behind its outlet, and forgets what that one does not have.
    Follow,
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
    places: watch::Sender<Places>,
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

    /// Where servers are now, and whom clients are led to.
    pub fn places(&self) -> Places {
        self.places.borrow().clone()
    }

    /// Clients are to be led to this node instead of the one that stood for all.
    pub fn lead_to(&self, node: u32) {
        self.places.send_modify(|places| places.lead_to(node as usize));
    }

    pub fn name(&self, node: u32) -> &str {
        &self.census.names[node as usize]
    }

    /// Each server's role now, `None` for one that does not serve.
    pub async fn role(&self, node: u32) -> Option<String> {
        let serving = ready::ask(self.census.server, self.address(node)).await;
        serving.ok().map(|serving| serving.role)
    }

    /// The server that leads now, from 0; waits for an election that is going on.
    pub async fn leader(&self, within: Duration) -> Option<u32> {
        let deadline = Instant::now() + within;
        loop {
            let leader = self.look_for_leader().await;
            if leader.is_some() || Instant::now() >= deadline {
                return leader;
            }
            sleep(READY_POLL).await;
        }
    }

    async fn look_for_leader(&self) -> Option<u32> {
        if let Some(front) = self.places.borrow().front() {
            return Some(front);
        }
        let roles = self.census.roles().await;
        let leads = |role: &str| ["leader", "master", "standalone"].contains(&role);
        let at = roles
            .iter()
            .position(|(_, serving)| serving.as_ref().is_some_and(|serving| leads(&serving.role)))?;
        Some(at as u32)
    }

    /// Waits until a server has this role; returns whether it does.
    pub async fn becomes(&self, node: u32, role: &str, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        while self.role(node).await.as_deref() != Some(role) {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(READY_POLL).await;
        }
        true
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
            Act::Restart | Act::Promote | Act::Follow => (self.killed == 0).then_some(act),
        }
    }
}

/// Starts the task that carries out orders. It ends with the last strong reference to what runs.
pub(super) fn keep(
    running: &Arc<AsyncMutex<Running>>,
    places: watch::Sender<Places>,
    census: Census,
    outlets: Vec<Option<SocketAddr>>,
) -> (Hand, JoinHandle<()>) {
    let (orders, given) = mpsc::unbounded_channel();
    let hand = Hand { orders, places, census };
    let keeper = Keeper {
        running: Arc::downgrade(running),
        places: hand.places.clone(),
        census: hand.census.clone(),
        outlets,
    };
    (hand, tokio::spawn(keeper.carry_out(given)))
}

struct Keeper {
    running: Weak<AsyncMutex<Running>>,
    places: watch::Sender<Places>,
    census: Census,
    /// By node.
    outlets: Vec<Option<SocketAddr>>,
}

impl Keeper {
    async fn carry_out(self, mut given: mpsc::UnboundedReceiver<Order>) {
        let mut posts = vec![Post::default(); self.outlets.len()];
        while let Some(Order { node, act, done }) = given.recv().await {
            let Some(running) = self.running.upgrade() else { return };
            let outcome = match posts[node].weigh(act) {
                None => Ok(()),
                Some(Act::Promote) => self.tell(node, "be promoted", PROMOTE).await,
                Some(Act::Follow) => match self.outlets[node] {
                    None => Ok(()),
                    Some(outlet) => self.tell(node, "follow another", &follow(outlet)).await,
                },
                Some(act) => running.lock().await.obey(node, act, &self.places).await,
            };
            // whoever gave the order may have left
            let _ = done.send(outcome);
        }
    }

    /// Tells a server a line; it must answer that all is well.
    async fn tell(&self, node: usize, what: &'static str, line: &str) -> Result<(), ClusterError> {
        let address = self.places.borrow().nodes()[node];
        let said = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(line.as_bytes()).await?;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).await.map(|_| answer)
        };
        let why = match timeout(PROBE, said).await {
            Ok(Ok(answer)) if answer.starts_with("+OK") => return Ok(()),
            Ok(Ok(answer)) => answer.trim().to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it does not answer".to_owned(),
        };
        let node = self.census.names[node].clone();
        Err(ClusterError::Disobeyed { node, what, why })
    }
}
impl Running {
    async fn obey(&mut self, node: usize, act: Act, places: &watch::Sender<Places>) -> Result<(), ClusterError> {
        match act {
            Act::Kill => self.kill(node).await,
            Act::Pause => self.pause(node).await,
            Act::Resume => self.resume(node).await,
            Act::Start | Act::Restart => {
                if act == Act::Restart {
                    self.kill(node).await?;
                }
                if let Some(address) = self.start(node).await? {
                    places.send_modify(|places| places.moved(node, address));
                }
                Ok(())
            }
            Act::Promote | Act::Follow => unreachable!("these are told to the server itself"),
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
