//! The message for a fault without an argument: chosen when its window starts, and once more if that message does not come.

use super::points::{MessagePoint, MessagePoints, OFTEN};
use crate::client_role::filter_of;
use harness_proxy::tap::MessageKind;
use harness_proxy::{MessageAction, MessageRuleSpec};

/// The choice of the message that this fault has acted on the least so far, of those that clients of this run send.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextMessage {
    pub fault: &'static str,
    /// The number of a message that comes often.
    pub occurrence: u32,
    pub action: MessageAction,
    /// Whether the fault acts at the reply.
    pub of_replies: bool,
}

impl NextMessage {
    /// Returns a rule for a message with `least` passages so far, or `None` if there is none.
    pub fn choose(&self, points: &MessagePoints, least: u64) -> Option<MessageRuleSpec> {
        let MessagePoint {
            name,
            label,
            passed,
            aimed,
            sometimes_refused,
        } = points.next(self.fault, least)?;
        let often = passed >= OFTEN;
        // of a hundred attempts to take a lock that is held one succeeds, and that one matters: it and any of them in turn
        let accepted = self.of_replies && often && sometimes_refused && aimed.is_multiple_of(2);
        Some(MessageRuleSpec {
            message: MessageKind::exactly(name),
            occurrence: if often && !accepted { self.occurrence } else { 1 },
            whose: filter_of(label),
            accepted,
            action: self.action,
            refuse: None,
        })
    }
}
