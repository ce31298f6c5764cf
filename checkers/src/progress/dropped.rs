//! The dropped message of an acquire or a release that left a stuck lock with its owner.

use super::stuck::{Stuck, StuckOwner};
use crate::context::Context;
use crate::history::{F, MessageMatch, Window, client_number};
use crate::limits;

/// Requests of Redis that only set the end of a key.
pub(super) const RENEWALS: [&str; 4] = ["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"];
/// Messages that renew a session or a lease, and are no part of an acquire or a release.
const KEEPS: [&str; 3] = ["ping", "PING", "LeaseKeepAlive"];

/// A message that a fault dropped while its client's acquire or release of the stuck lock was pending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DroppedMessage<'a> {
    pub window: &'a Window,
    pub message: &'a MessageMatch,
    /// The position of the client's call.
    pub call: u32,
    pub f: F,
}

impl DroppedMessage<'_> {
    /// Returns whether only the reply was lost, and the request was executed.
    pub(crate) fn is_reply(&self) -> bool {
        self.window.fault.starts_with("drop-reply")
    }
}

/// Returns the last dropped message, if no client acquired the lock after it, and if the client's request then may be the reason why the
/// owner stayed. A dropped message of a waiter is none.
pub(crate) fn dropped_message<'a>(context: &'a Context<'_>, stuck: &Stuck) -> Option<DroppedMessage<'a>> {
    let history = context.history;
    let (owner, granted) = match stuck.owner {
        StuckOwner::Ghost { process, granted } => (process, Some(granted)),
        StuckOwner::Waiting { process, granted } => (Some(process), Some(granted)),
        StuckOwner::Unsure { process, .. } => (Some(process), None),
        _ => return None,
    };
    let lock = history.locks[stuck.lock];
    let windows = context.windows.iter();
    let drops = windows.filter(|window| window.fault.starts_with("drop-"));
    let drops = drops.filter_map(|window| Some((window, window.matched()?)));
    let matters = |message: &MessageMatch| message.done && !KEEPS.contains(&message.message.as_str());
    let before = drops.filter(|(_, message)| matters(message) && message.time_ns <= stuck.to_ns);
    let (window, message) = before.max_by_key(|(_, message)| message.time_ns)?;
    let client = client_number(&message.client)?;
    if owner.is_some_and(|process| history.client_of(process) != client) {
        return None;
    }
    let (mut call, mut acquired) = (None, false);
    history.events.each_of(
        |f, _| matches!(f, F::Acquire | F::Release),
        |position, event| {
            if event.lock != lock {
                return;
            }
            let later = event.time > message.time_ns;
            acquired |= later && event.time <= stuck.to_ns && event.is_ok(F::Acquire);
            let is_call = event.is_call(F::Acquire) || event.is_call(F::Release);
            if is_call && !later && history.client_of(event.process) == client {
                let answered = history.events.answer(event.mate).map_or(u64::MAX, |(_, at)| at);
                call = (answered > message.time_ns).then_some((position, event.f));
            }
        },
    );
    let (call, f) = call.filter(|_| !acquired)?;
    let left_the_owner = match f {
        // a renewal during a release removes nothing
        F::Release => owner.is_some() && !RENEWALS.contains(&message.message.as_str()),
        _ => granted.is_some_and(|granted| {
            let granted_ns = history.event(granted).time;
            let apart_ns = message.time_ns.abs_diff(granted_ns);
            let before = owner.is_some() && message.time_ns <= granted_ns;
            before || apart_ns <= limits::OBSERVER_LAG_NS
        }),
    };
    left_the_owner.then_some(DroppedMessage {
        window,
        message,
        call,
        f,
    })
}
