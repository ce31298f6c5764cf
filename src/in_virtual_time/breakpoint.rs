//! A breakpoint in the history of a run ([`Breakpoint`]): the world stops before an event while one of its programs is inspected.

use std::sync::Arc;

use super::machine::KeptMachine;
use crate::run::OnLine;

/// Called with the processes of a program, its first one first, while the world is stopped. The error ends the run.
pub type OnBreak = Box<dyn Fn(&[u32]) -> Result<(), String> + Send + Sync>;

/// A point in the history before which a world stops.
pub struct Breakpoint {
    /// The number of the event in the history. The world stops when the event before it has been recorded.
    pub before: u64,
    /// The program to inspect: `client c0`, `server n1`.
    pub program: String,
    /// The world goes on when this returns.
    pub on_break: OnBreak,
}

impl Breakpoint {
    /// Returns the function that is called with each line of the history.
    pub fn on_line(self, machine: KeptMachine) -> OnLine {
        Arc::new(move |line| {
            if line + 1 != self.before {
                return;
            }
            let Some(machine) = machine.try_get() else { return };
            let looked = match machine.processes_of(&self.program) {
                Some(pids) => (self.on_break)(&pids),
                None => Err(format!("{} does not run before event {}", self.program, self.before)),
            };
            if let Err(why) = looked {
                let _ = machine.failed.set(why);
            }
        })
    }
}
