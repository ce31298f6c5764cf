//! The online check of a run: every recorded line goes to a [`Monitor`], and the first violation ends the run.
//!
//! It gives no verdict. The complete check of the recorded history does.

use std::sync::Mutex;

use harness_checkers::history::event::{Header, Line};
use harness_checkers::{Entry, Kind, Monitor, NotOnline, Process, Violation};

use super::locked::locked;

/// A monitor of the lines of one run, in the order of the history.
pub struct OnlineCheck(Mutex<Watched>);

struct Watched {
    monitor: Monitor,
    first: Option<Box<Violation>>,
}

impl OnlineCheck {
    /// Returns the check of a history with this header, by the model that it names.
    pub fn of(header: &Header) -> Result<Self, NotOnline> {
        let monitor = Monitor::of_header(header.clone())?;
        Ok(Self(Mutex::new(Watched { monitor, first: None })))
    }

    /// Checks the next line. One that is not well formed is left to the check at the end, which refuses the history for it.
    pub fn see(&self, line: &Line<'_>) {
        let mut watched = locked(&self.0);
        if watched.first.is_some() {
            return;
        }
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
        locked(&self.0).first.as_deref().cloned()
    }
}
