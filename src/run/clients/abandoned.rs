//! Grants that no application can use: the client has to free them, and no process of the history acts on them any more.

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::{ClientOp, Message};

use super::driver::{ClientDriver, GrantedLock};
use super::process::ClientReply;
use crate::client_role::ClientRole;

/// How often a client holds a lock at most.
const INNER_HOLDS: usize = 2;

impl ClientDriver {
    /// Gives back what `holder` took when the outcome of an inner call is unknown: that process never acts again, so that its hold
    /// ends here, and what is asked of the client to free the lock is not in the history.
    pub(super) async fn give_up(&mut self, lock: &str, holder: u32, grant: &GrantedLock) {
        let fields = Fields {
            cause: Some("the outcome of an inner call is unknown"),
            ..Fields::of(lock)
        };
        let (process, recorder) = (Process::Client(holder), &self.run.recorder);
        recorder.signal(process, Some(self.client.number), "lost", fields, None);
        self.free(lock, grant).await;
    }

    /// Has the client free what a process took that never acts again.
    pub(super) async fn free(&mut self, lock: &str, grant: &GrantedLock) {
        self.note_release(lock, grant);
        for _ in 0..INNER_HOLDS {
            let answer = self.ask_to_release(lock).await;
            if !matches!(answer, Some(Message::Ok { .. } | Message::Info { .. })) {
                break;
            }
        }
        self.is(ClientRole::Idle);
    }

    /// A release of what was released. Some libraries say ok to it and some refuse it, and either is right: the history has none of
    /// it, but what it does to the holds of others.
    pub(super) async fn release_again(&mut self, lock: &str) {
        if let Some(Message::Info { .. }) = self.ask_to_release(lock).await {
            self.pool.retire(&self.client);
        }
    }

    /// A release that the history does not have; nothing where the process ended over it.
    async fn ask_to_release(&mut self, lock: &str) -> Option<Message> {
        let op = ClientOp::Release { lock: lock.to_owned() };
        let patience = self.workload.patience;
        let answer = self.process.ask(&self.client, op, patience, &self.run).await;
        if let ClientReply::Message(message) = answer {
            return Some(message);
        }
        if matches!(answer, ClientReply::Silent) {
            self.process.kill();
        }
        self.bury(None).await;
        None
    }

    /// The client said that the lock is lost before it said that it had it, after a lease at the least: the reply comes from a time that
    /// is over, such as one in which this process stood still. No application has the lock, and when it had been granted is not known.
    pub(super) async fn over_before_it_was_told(&mut self, lock: &str, grant: &GrantedLock) {
        self.outcome_unknown("acquire", lock, "lost before it was told");
        self.pool.retire(&self.client);
        self.free(lock, grant).await;
    }
}
