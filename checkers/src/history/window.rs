//! One fault window: its targets, its effect, and the times between which it is an excuse or a cause.

use super::nemesis::NemesisFact;
use super::window_facts::{MessageMatch, WindowHeal, WindowStart};

/// One fault window, from its start to its heal.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Its number in the plan; 0 when the line has no number.
    pub number: u32,
    /// The fault's name: `partition`, `pause-holder`, …
    pub fault: String,
    /// The time of its start, in nanoseconds of the history.
    pub start_ns: u64,
    /// The `index` of the line of its start.
    pub start_index: u64,
    /// `None` when the history ends before the heal.
    pub heal_ns: Option<u64>,
    /// The `index` of the line of its heal.
    pub heal_index: Option<u64>,
    /// The fields of the start.
    pub started: WindowStart,
    /// The fields of the heal; `None` without one.
    pub healed: Option<WindowHeal>,
}

/// Returns whether this is the name of a client. A server may have any name.
pub(crate) fn is_client(name: &str) -> bool {
    client_number(name).is_some()
}

/// Returns the number of a client by its name: 3 of `c3`.
pub(crate) fn client_number(name: &str) -> Option<u32> {
    name.strip_prefix('c')?.parse().ok()
}

impl Window {
    /// Opens or heals a window by a line of the nemesis.
    pub(super) fn see(windows: &mut Vec<Self>, fact: &NemesisFact, (index, time_ns): (u64, u64)) {
        match fact {
            NemesisFact::Start { fault, start } => windows.push(Self {
                number: start.number,
                fault: fault.clone(),
                start_ns: time_ns,
                start_index: index,
                heal_ns: None,
                heal_index: None,
                started: start.clone(),
                healed: None,
            }),
            NemesisFact::Heal { fault, heal } => {
                let open = windows.iter_mut().rev().find(|window| {
                    window.heal_ns.is_none()
                        && window.fault == *fault
                        && heal.number.is_none_or(|number| number == window.number)
                });
                if let Some(window) = open {
                    window.heal_ns = Some(time_ns);
                    window.heal_index = Some(index);
                    window.healed = Some(heal.clone());
                }
            }
            _ => {}
        }
    }

    /// Returns its fault and its number, if the recorder writes one.
    pub(crate) fn name(&self) -> String {
        match self.number {
            0 => self.fault.clone(),
            number => format!("{} {number}", self.fault),
        }
    }

    /// Returns whether it names this client (`c3`, alone or in a link such as `c3->n1`), or matched a message of it.
    pub fn names_client(&self, client: u32) -> bool {
        self.started.names_client(client) || self.healed.as_ref().is_some_and(|heal| heal.names_client(client))
    }

    /// Returns whether there is evidence of an effect on this client: the window matched a message of it, or had this client as its only
    /// target, and left its trace. For several clients with affected links, the counts do not show which of them it met. A window of
    /// another recorder, which counts nothing, is assumed to have an effect.
    pub fn touched_client(&self, client: u32) -> bool {
        let Some(healed) = &self.healed else {
            return self.names_client(client);
        };
        if let Some(message) = &healed.matched {
            return message.done && message.client == format!("c{client}");
        }
        if !self.names_client(client) || healed.missed.is_some() || healed.left_trace == Some(false) {
            return false;
        }
        let clients = |target: &&String| is_client(target);
        let alone = self.started.targets.iter().filter(clients).count() <= 1;
        let same_on_each = self.is_one_of(&["pause", "kill", "clock"]);
        alone || healed.left_trace.is_none() || same_on_each
    }

    /// Returns whether the name of its fault begins with one of these.
    fn is_one_of(&self, faults: &[&str]) -> bool {
        faults.iter().any(|fault| self.fault.starts_with(fault))
    }

    /// Returns whether it is on clients and links from clients alone. A window of another recorder that names nothing may be on a server.
    pub fn is_of_clients(&self) -> bool {
        let names_nothing = self.started.targets.is_empty() && self.started.cut.iter().flatten().next().is_none();
        self.names_no_server() && (self.number > 0 || !names_nothing)
    }

    /// Returns whether all its targets are clients and links from clients, if it names any.
    pub(crate) fn names_no_server(&self) -> bool {
        // a link begins with the client that dials it
        let is_a_client = |name: &String| is_client(name.split("->").next().unwrap_or(name));
        let cut = self.started.cut.iter().flatten();
        self.started.targets.iter().chain(cut).all(is_a_client)
    }

    /// Returns the beginning of its injection: its line is written when the fault is active. Some effects are seen between the two.
    pub(crate) fn began_ns(&self) -> u64 {
        let injected_in_ns = self.started.injected_in_ms.unwrap_or(0).saturating_mul(1_000_000);
        self.start_ns.saturating_sub(injected_in_ns)
    }

    /// Returns whether its injection touches an interval: it may have begun to act in it.
    pub(crate) fn begins_in(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns >= from_ns && self.began_ns() <= to_ns
    }

    /// Returns the beginning of its effect: the time of the message that it matched, or its start, in nanoseconds of the history.
    pub fn acted_ns(&self) -> u64 {
        self.matched().map_or(self.start_ns, |message| message.time_ns)
    }

    /// Returns the message that it matched. A fault of another recorder may have the name of one on a message, and be on all packets.
    pub(crate) fn matched(&self) -> Option<&MessageMatch> {
        self.healed.as_ref()?.matched.as_ref()
    }

    /// Returns whether it is for one message, and has no effect before that passes.
    pub fn is_on_message(&self) -> bool {
        self.is_one_of(&["drop-", "delay-", "kill-after"])
    }

    /// Returns whether it stops processes.
    pub fn stops(&self) -> bool {
        self.is_one_of(&["pause", "freeze", "sigstop", "suspend"])
    }

    /// Returns whether it ends servers, and starts them again.
    pub(crate) fn restarts_servers(&self) -> bool {
        ["server-kill", "server-restart"].contains(&self.fault.as_str())
    }

    /// Returns the milliseconds for which it made this client continue its hold, if that holder was its target.
    pub fn kept_working_ms(&self, client: u32) -> Option<u64> {
        let holder = self.started.holder.as_deref()? == format!("c{client}");
        self.started.holder_works_ms.filter(|_| holder)
    }

    /// Returns whether it was active at some instant of `from_ns..=to_ns`.
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns <= to_ns && self.heal_ns.is_none_or(|heal| heal >= from_ns)
    }

    /// Returns whether it was active, or being injected, at some instant of `from_ns..=to_ns`.
    pub(crate) fn may_touch(&self, from_ns: u64, to_ns: u64) -> bool {
        self.began_ns() <= to_ns && self.touches(from_ns, u64::MAX)
    }
}
