//! `InsistentOrder`: a command to one node that may be refused, and is repeated until it succeeds or the time is over.

use std::time::Duration;

use super::env::FaultEnv;
use crate::cluster::{ClusterError, CommandOutcome, NodeCommand};

/// The time between two tries.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A command to one node.
pub struct InsistentOrder {
    node: u32,
    command: NodeCommand,
    /// The answer that is still to come.
    answer: Option<CommandOutcome>,
    /// Whether it was sent at all.
    pub given: bool,
    pub done: bool,
    /// The latest reason for which it failed.
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

    /// Repeats the command until it succeeds, until this reading of the clock, or until its error is not worth another try.
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

    /// Waits for the answer, if one is still to come.
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
