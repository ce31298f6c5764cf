//! What the nemesis wrote, line by line: the fault windows and phases of a run, and servers that ended by themselves.

use super::History;
use super::nemesis::{Nemesis, NemesisFact, PHASE, ServerEnd};
use super::phase_fact::{PhaseFact, TapTotals};
use super::window_facts::{WindowHeal, WindowStart};

/// The last phase: a history that has phases and not this one was cut short.
const END: &str = "end";

/// One fault window, from its start to its heal.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// As the plan numbers it; 0 when the line has no number.
    pub number: u32,
    /// The fault's name: `partition`, `pause-holder`, …
    pub fault: String,
    /// When it was opened, in nanoseconds of the history.
    pub start_ns: u64,
    /// The `index` of the line that opened it.
    pub start_index: u64,
    /// `None` when the history ends before the heal.
    pub heal_ns: Option<u64>,
    /// The `index` of the line that healed it.
    pub heal_index: Option<u64>,
    /// What the line of the start says.
    pub started: WindowStart,
    /// What the line of the heal says; `None` without one.
    pub healed: Option<WindowHeal>,
}

/// Whether this is the name of a client. A server may have any name.
pub(crate) fn is_client(name: &str) -> bool {
    client_number(name).is_some()
}

/// The number of a client by its name: 3 of `c3`.
pub(crate) fn client_number(name: &str) -> Option<u32> {
    name.strip_prefix('c')?.parse().ok()
}

impl Window {
    /// Its fault and its number, which not every recorder writes.
    pub(crate) fn name(&self) -> String {
        match self.number {
            0 => self.fault.clone(),
            number => format!("{} {number}", self.fault),
        }
    }

    /// Whether the window names this client (`c3`, alone or in a link such as `c3->n1`), or was for a message of it.
    pub fn names_client(&self, client: u32) -> bool {
        self.started.names_client(client) || self.healed.as_ref().is_some_and(|heal| heal.names_client(client))
    }

    /// Whether there is evidence that it did something to this client: it was for a message of it, and found that message; or it
    /// acted on this client, on no other, and left its trace. Of several clients on whose links it acted, the counts do not
    /// say which of them it met. A window of another recorder, which counts nothing, is believed.
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
        alone || healed.left_trace.is_none() || self.is_done_to_each()
    }

    /// Whether it does the same to each of its targets, so that what it did at all it did to each.
    fn is_done_to_each(&self) -> bool {
        ["pause", "kill", "clock"]
            .iter()
            .any(|fault| self.fault.starts_with(fault))
    }

    /// Whether all that it was done to are clients and links from clients.
    pub fn is_of_clients(&self) -> bool {
        // a link begins with the client that dials it
        let is_a_client = |name: &String| is_client(name.split("->").next().unwrap_or(name));
        let cut = self.started.cut.iter().flatten();
        self.started.targets.iter().chain(cut).all(is_a_client)
    }

    /// From when on it acted: from the message that it was for, or from its beginning, in nanoseconds of the history.
    pub fn acted_ns(&self) -> u64 {
        let message = self.healed.as_ref().and_then(|healed| healed.matched.as_ref());
        message.map_or(self.start_ns, |message| message.time_ns)
    }

    /// Whether it is for one message: it acts when that passes, and not before.
    pub fn is_on_message(&self) -> bool {
        ["drop-", "delay-", "kill-after"]
            .iter()
            .any(|fault| self.fault.starts_with(fault))
    }

    /// Whether it is one that stops processes.
    pub fn stops(&self) -> bool {
        ["pause", "freeze", "sigstop", "suspend"]
            .iter()
            .any(|fault| self.fault.starts_with(fault))
    }

    /// Whether it is one that ends servers, and starts them again.
    pub(crate) fn restarts_servers(&self) -> bool {
        ["server-kill", "server-restart"].contains(&self.fault.as_str())
    }

    /// Milliseconds for which it made this client go on holding, where it was aimed at that holder.
    pub fn kept_working_ms(&self, client: u32) -> Option<u64> {
        let holder = self.started.holder.as_deref()? == format!("c{client}");
        self.started.holder_works_ms.filter(|_| holder)
    }

    /// Whether it was on at some instant of `from_ns..=to_ns`.
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        self.start_ns <= to_ns && self.heal_ns.is_none_or(|heal| heal >= from_ns)
    }
}

/// The beginning of a phase of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseStart {
    /// `control`, `warm-up`, `faults`, `recovery` (`calm` in older histories), `violation` or `end`.
    pub name: String,
    /// When it began, in nanoseconds of the history.
    pub start_ns: u64,
    /// The `index` of the line that began it.
    pub index: u64,
}

impl PhaseStart {
    /// Whether all faults are healed by plan from here on.
    pub fn is_recovery(&self) -> bool {
        matches!(self.name.as_str(), "recovery" | "calm")
    }
}

impl History {
    /// All lines of the nemesis.
    pub fn nemesis(&self) -> &[Nemesis] {
        &self.nemesis
    }

    /// What taps told at the end of the run.
    pub(crate) fn tap_totals(&self) -> impl Iterator<Item = &TapTotals> {
        self.nemesis.iter().filter_map(|line| match &line.fact {
            NemesisFact::Phase(PhaseFact::End { wire, .. }) => wire.as_ref(),
            _ => None,
        })
    }

    /// The fault windows, by start.
    pub fn windows(&self) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        for line in self.nemesis() {
            match &line.fact {
                NemesisFact::Start { fault, start } => windows.push(Window {
                    number: start.number,
                    fault: fault.clone(),
                    start_ns: line.time_ns,
                    start_index: line.index,
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
                        window.heal_ns = Some(line.time_ns);
                        window.heal_index = Some(line.index);
                        window.healed = Some(heal.clone());
                    }
                }
                _ => {}
            }
        }
        windows
    }

    /// The servers that ended by themselves, each with the time in nanoseconds at which that was seen.
    pub fn server_ends(&self) -> Vec<(u64, ServerEnd)> {
        let ends = self.nemesis().iter().filter_map(|line| match &line.fact {
            NemesisFact::ServerEnded(end) => Some((line.time_ns, end.clone())),
            _ => None,
        });
        ends.collect()
    }

    /// The phases of the run, in order.
    pub fn phases(&self) -> Vec<PhaseStart> {
        let phases = self.nemesis().iter().filter(|line| line.name == PHASE);
        phases
            .filter_map(|line| {
                Some(PhaseStart {
                    name: line.phase.clone()?,
                    start_ns: line.time_ns,
                    index: line.index,
                })
            })
            .collect()
    }

    /// Marks a history that has phases and no end.
    pub(super) fn see_phases(&mut self) {
        let phases = self.phases();
        if !phases.is_empty() && phases.iter().all(|phase| phase.name != END) {
            self.partial
                .get_or_insert_with(|| "the run was stopped before its end".to_owned());
        }
    }
}
