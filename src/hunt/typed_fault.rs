//! A typed fault of an experiment: its name, and the part that is the same in many experiments.

use crate::config::{NO_FAULT, parse_duration};

/// Faults that act on one message.
pub const ON_MESSAGES: [&str; 5] = [
    "drop-request",
    "drop-reply",
    "delay-request",
    "delay-reply",
    "kill-after",
];

/// Returns the name of a typed fault: `partition` of `partition=holder`.
pub fn name(text: &str) -> &str {
    text.split_once('=').map_or(text, |(name, _)| name)
}

/// Returns faults as the value of `--fault`, which is `none` without one.
pub fn joined(faults: &[String]) -> String {
    match faults {
        [] => NO_FAULT.to_owned(),
        faults => faults.join(","),
    }
}

/// `delay-reply=SET:waiter` of `delay-reply=SET:2:waiter:300ms`.
pub fn without_number_or_time(fault: &str) -> String {
    let is_name = |part: &&str| part.parse::<u32>().is_err() && parse_duration(part).is_err();
    let parts = fault.split(':').filter(is_name);
    parts.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use harness_checkers::history::{Window, WindowStart};

    use super::*;
    use crate::faults::{FAULTS, Pace};

    #[test]
    fn the_faults_on_messages_are_the_same_in_a_hunt_in_the_list_of_all_and_in_a_history() {
        let listed = FAULTS.iter().filter(|fault| fault.definition().pace == Pace::Message);
        let listed: Vec<&str> = listed.map(|fault| fault.name()).collect();
        assert_eq!(listed, ON_MESSAGES);
        for fault in FAULTS {
            let window = Window {
                number: 1,
                fault: fault.name().to_owned(),
                start_ns: 0,
                start_index: 0,
                heal_ns: None,
                heal_index: None,
                started: WindowStart::default(),
                healed: None,
            };
            let is_listed = ON_MESSAGES.contains(&fault.name());
            assert_eq!(window.is_on_message(), is_listed, "{window:?}");
        }
    }
}
