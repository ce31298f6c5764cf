//! A fault of an experiment as it is typed: its name, and what of it is the same in many experiments.

use crate::config::parse_duration;

/// Faults that act on one message.
pub const ON_MESSAGES: [&str; 5] = [
    "drop-request",
    "drop-reply",
    "delay-request",
    "delay-reply",
    "kill-after",
];

/// The name of a fault as it is typed: `partition` of `partition=holder`.
pub fn name(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// `delay-reply=SET:waiter` of `delay-reply=SET:2:waiter:300ms`.
pub fn without_number_or_time(fault: &str) -> String {
    let is_name = |part: &&str| part.parse::<u32>().is_err() && parse_duration(part).is_err();
    let parts = fault.split(':').filter(is_name);
    parts.collect::<Vec<_>>().join(":")
}
