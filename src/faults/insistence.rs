//! `InsistentOrder`: an order to one node that may be refused, and is given again until it is carried out or the time is up.

use std::time::Duration;

use super::env::FaultEnv;
use crate::cluster::{ClusterError, CommandOutcome, NodeCommand};

/// Between two tries.
pub const PAUSE: Duration = Duration::from_millis(200);

/// An order to one node.
pub struct InsistentOrder {
    node: u32,
    command: NodeCommand,
    /// The answer that is not heard yet.
    answer: Option<CommandOutcome>,
    /// Whether it was given at all.
    pub given: bool,
    pub done: bool,
    /// Why it was not carried out, as was said last.
    pub refused: Option<ClusterError>,
}

impl InsistentOrder {
    pub fn new(node: u32, command: NodeCommand) -> Self {
        Self {
            node,
            command,
            answer: None,
            given: false,
            done: false,
            refused: None,
        }
    }

    /// Gives the order until it is carried out, or until this reading of the clock; only once more after an answer that is worth it.
    pub async fn insist(&mut self, env: &FaultEnv, deadline: u64, is_worth_it: impl Fn(&ClusterError) -> bool) {
        loop {
            self.given = true;
            self.answer = Some(env.servers.order(self.node, self.command));
            self.hear().await;
            let in_vain = self.refused.as_ref().is_some_and(|why| !is_worth_it(why));
            if self.done || in_vain || env.clock.now_ns() >= deadline {
                return;
            }
            env.clock.sleep(PAUSE).await;
        }
    }

    /// Waits for the answer, if there is one to come.
    pub async fn hear(&mut self) {
        let Some(answer) = &mut self.answer else { return };
        match answer.await {
            Ok(Ok(())) => self.done = true,
            Ok(Err(why)) => self.refused = Some(why),
            Err(_) => self.refused = Some(ClusterError::Nothing("the cluster is gone".to_owned())),
        }
        self.answer = None;
    }
}
