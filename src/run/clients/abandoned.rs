//! Abandoned grants, which no application can use: the client has to free them, and no process of the history uses them.

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::{ClientOp, Message};

use super::driver::{ClientDriver, GrantedLock};
use super::process::ClientReply;
use crate::client_role::ClientRole;

/// The most holds of a client on one lock.
const INNER_HOLDS: usize = 2;

impl ClientDriver {
    /// Gives up the lock of `holder` when the outcome of an inner call is unknown: that process never acts again, so its hold
    /// ends here, and the requests that free the lock are not in the history.
    pub(super) async fn give_up(&mut self, lock: &str, holder: u32, grant: &GrantedLock) {
        let fields = Fields {
            cause: Some("the outcome of an inner call is unknown"),
            ..Fields::of(lock)
        };
        let (process, recorder) = (Process::Client(holder), &self.run.recorder);
        recorder.signal(process, Some(self.client.number), "lost", fields, None);
        self.free(lock, grant).await;
    }

    /// Makes the client free the lock of a process that never acts again.
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

    /// Releases a released lock again. Some libraries answer ok and some refuse, and either is right: the history has only its
    /// effect on the holds of others.
    pub(super) async fn release_again(&mut self, lock: &str) {
        if let Some(Message::Info { .. }) = self.ask_to_release(lock).await {
            self.pool.retire(&self.client);
        }
    }

    /// Sends a release that the history does not have. Returns `None` if the process ended.
    async fn ask_to_release(&mut self, lock: &str) -> Option<Message> {
        let op = ClientOp::Release { lock: lock.to_owned() };
        let answer = self.process.ask(&self.client, op, self.patience(), &self.run).await;
        if let ClientReply::Message(message) = answer {
            return Some(message);
        }
        if matches!(answer, ClientReply::Silent) {
            self.process.kill_silent();
        }
        self.restart_after_death(None).await;
        None
    }

    /// Handles the signal of a loss, after a lease or more, before the reply to the acquire: the reply is late, for example since
    /// this process stood still. No application has the lock, and the time of its grant is not known.
    pub(super) async fn lost_before_reply(&mut self, lock: &str, grant: &GrantedLock) {
        self.outcome_unknown("acquire", lock, "lost before it was told");
        self.pool.retire(&self.client);
        self.free(lock, grant).await;
    }
}
