//! Refusals of acquires ([`RefusalPause`]): those that are errors, and the pause of the application after one.

use std::time::Duration;

use harness_workloads::protocol::{FailReason, Message};

use super::process::ClientReply;

/// The pause after an acquire that failed, so that a refused client does not spin.
pub const AFTER_REFUSAL: Duration = Duration::from_millis(2);
/// The longest pause, after many acquires in a row that failed before their wait was over.
const LONGEST: Duration = Duration::from_millis(100);
/// The number of early refusals before the pause grows: a fault causes some.
const USUAL: u32 = 8;

/// The recent answers to one client's acquires.
#[derive(Debug, Default)]
pub struct RefusalPause {
    /// The number of refusals before the end of the wait, since the last other answer.
    at_once: u32,
}

impl RefusalPause {
    /// Counts an answer after this time, of an acquire with the longest wait `wait`.
    pub fn note(&mut self, answer: &ClientReply, after: Duration, wait: Duration) {
        let is_at_once = match answer {
            ClientReply::Message(Message::Fail { .. } | Message::Info { .. }) if !wait.is_zero() => after < wait,
            answer => is_error(answer, after, wait),
        };
        self.at_once = if is_at_once { self.at_once + 1 } else { 0 };
    }

    /// Returns the current pause.
    pub fn pause(&self) -> Duration {
        let doublings = self.at_once.saturating_sub(USUAL).min(10);
        (AFTER_REFUSAL * 2_u32.pow(doublings)).min(LONGEST)
    }
}

/// Whether an answer is not a lock's: neither a grant nor a refusal of a taken lock. A failure at the end of the wait counts as a
/// lock's in any words. A try has no wait.
pub fn is_error(answer: &ClientReply, after: Duration, wait: Duration) -> bool {
    match answer {
        ClientReply::Message(Message::Ok { .. } | Message::Signal(_)) | ClientReply::Silent => false,
        ClientReply::Message(Message::Fail { error, .. }) => {
            matches!(error, FailReason::Other(_)) && (wait.is_zero() || after < wait)
        }
        ClientReply::Message(Message::Info { .. }) | ClientReply::Gone => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(1);
    const EARLY: Duration = Duration::from_millis(3);

    fn fail(error: &str) -> ClientReply {
        let error = FailReason::from(error.to_owned());
        ClientReply::Message(Message::Fail { id: 1, error })
    }

    fn info() -> ClientReply {
        let error = "ConnectionError: refused".to_owned();
        ClientReply::Message(Message::Info { id: 1, error })
    }

    #[test]
    fn a_lock_that_is_taken_is_no_error_in_whatever_words_it_says_so() {
        for taken in [fail("busy"), fail("timeout"), fail("not held")] {
            assert!(!is_error(&taken, EARLY, WAIT) && !is_error(&taken, EARLY, Duration::ZERO));
        }
        assert!(!is_error(&fail("LockNotAcquired: gave up after 1 s"), WAIT, WAIT));
        assert!(!is_error(&ClientReply::Silent, WAIT * 9, WAIT));
        for error in [fail("FileNotFoundError: etcdctl"), info(), ClientReply::Gone] {
            assert!(is_error(&error, EARLY, WAIT));
        }
    }

    #[test]
    fn a_client_that_always_fails_at_once_is_asked_ten_times_a_second_and_one_that_waits_or_tries_as_usual() {
        let after = |answer: ClientReply, after: Duration, wait: Duration| {
            let mut refusals = RefusalPause::default();
            (0..40).for_each(|_| refusals.note(&answer, after, wait));
            refusals.pause()
        };
        assert_eq!(after(fail("timeout"), EARLY, WAIT), LONGEST, "it was to wait");
        assert_eq!(after(info(), EARLY, WAIT), LONGEST);
        assert_eq!(after(fail("timeout"), WAIT, WAIT), AFTER_REFUSAL);
        assert_eq!(after(fail("busy"), EARLY, Duration::ZERO), AFTER_REFUSAL);
        let mut refusals = RefusalPause::default();
        (0..40).for_each(|_| refusals.note(&info(), EARLY, WAIT));
        refusals.note(&fail("timeout"), WAIT, WAIT);
        assert_eq!(refusals.pause(), AFTER_REFUSAL, "it is as before");
        (0..USUAL).for_each(|_| refusals.note(&info(), EARLY, WAIT));
        assert_eq!(refusals.pause(), AFTER_REFUSAL, "a fault brings some");
    }
}
