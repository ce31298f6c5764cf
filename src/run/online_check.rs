//! The online check of a run: every recorded line goes to a [`Monitor`], and the first violation ends the run.
//!
//! It gives no verdict. The complete check of the recorded history does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_checkers::history::event::{Header, Line};
use harness_checkers::{Entry, Kind, Monitor, NotOnline, Process, Violation};

use super::locked::locked;

/// A monitor of the lines of one run, in the order of the history.
pub struct OnlineCheck {
    watched: Mutex<Watched>,
    /// Cloned by each fault that is being injected.
    injecting: Arc<()>,
}

struct Watched {
    monitor: Monitor,
    first: Option<Box<Violation>>,
}

impl OnlineCheck {
    /// Returns the check of a history with this header, by the model that it names.
    pub fn of(header: &Header) -> Result<Self, NotOnline> {
        let monitor = Monitor::of_header(header.clone())?;
        Ok(Self {
            watched: Mutex::new(Watched { monitor, first: None }),
            injecting: Arc::default(),
        })
    }

    /// Begins the injection of a fault. Its line, which comes when the fault is active, excuses the `busy` answers of this time: until the
    /// result is dropped, none proves a violation.
    pub fn injecting(&self) -> Arc<()> {
        Arc::clone(&self.injecting)
    }

    /// Checks the next line. One that is not well formed is left to the check at the end, which refuses the history for it.
    pub fn see(&self, line: &Line<'_>) {
        let mut watched = locked(&self.watched);
        if watched.first.is_some() {
            return;
        }
        let is_injecting = Arc::strong_count(&self.injecting) > 1;
        let delay = if is_injecting { Duration::MAX } else { Duration::ZERO };
        watched.monitor.set_fault_delay(delay);
        // lines of the nemesis are read whole
        let is_nemesis = line.process == Process::Nemesis;
        let raw = is_nemesis.then(|| serde_json::to_string(line).expect("a line is plain data"));
        let entry = Entry {
            raw: raw.as_deref(),
            ..Entry::from(line)
        };
        let seen = watched.monitor.push(&entry).ok().flatten();
        // the time of a line of the nemesis or the server counts, too
        let latest = || watched.monitor.advance(line.time);
        watched.first = if line.kind == Kind::Signal {
            seen
        } else {
            seen.or_else(latest)
        };
    }

    /// Returns the first violation that is certain by now.
    pub fn first(&self) -> Option<Violation> {
        locked(&self.watched).first.as_deref().cloned()
    }
}

#[cfg(test)]
mod tests {
    use harness_checkers::history::event::Fields;
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_busy_answer_is_a_violation_at_once_unless_a_fault_is_being_injected() {
        let lines = [
            (0, Kind::Invoke, "acquire"),
            (0, Kind::Ok, "acquire"),
            (0, Kind::Invoke, "release"),
            (0, Kind::Ok, "release"),
            (1, Kind::Invoke, "acquire"),
            (1, Kind::Fail, "acquire"),
            (0, Kind::Invoke, "acquire"),
            (0, Kind::Ok, "acquire"),
        ];
        for injects in [false, true] {
            let header = Header::of_locks(["l0"]).with_model("try-lock");
            let check = OnlineCheck::of(&header).expect("a model with owners");
            let mut pending = injects.then(|| check.injecting());
            for (index, (process, kind, f)) in (1..).zip(lines) {
                if index == 8 {
                    assert_eq!(check.first().is_some(), !injects);
                    pending = None;
                }
                check.see(&Line {
                    index,
                    time: index * 2_000_000_000,
                    process: Process::Client(process),
                    client: None,
                    kind,
                    f,
                    fields: Fields {
                        error: (kind == Kind::Fail).then_some("busy"),
                        ..Fields::of("l0")
                    },
                    extra: Map::new(),
                });
            }
            assert!(check.first().is_some() && pending.is_none());
        }
    }
}
