//! Progress in logs: a line for each phase and fault, a heartbeat now and then, and no redrawing.

use std::io::Write;
use std::time::{Duration, Instant};

use super::{View, fact};
use crate::event::ProgressEvent;
use crate::report::screen::Look;
use crate::report::words::many;

const HEARTBEAT: Duration = Duration::from_secs(10);
/// Losses are frequent under faults; a log needs the first few of each window.
const LOSSES_SHOWN: u32 = 3;

pub struct PlainView {
    look: Look,
    out: Box<dyn Write + Send>,
    last_beat: Duration,
    losses: u32,
}

impl PlainView {
    pub fn new(look: Look, out: Box<dyn Write + Send>) -> Self {
        Self {
            look,
            out,
            last_beat: Duration::ZERO,
            losses: 0,
        }
    }

    /// A failure to write progress does not stop the run.
    fn say(&mut self, since_start: Duration, event: &ProgressEvent) {
        if let Some(line) = fact(since_start, event, self.look) {
            let _ = writeln!(self.out, "{line}");
        }
    }
}

impl View for PlainView {
    fn see(&mut self, since_start: Duration, event: &ProgressEvent, _: Instant) {
        match event {
            ProgressEvent::Snapshot(pulse) if since_start >= self.last_beat + HEARTBEAT => {
                self.last_beat = since_start;
                let (acquires, rate) = (many(pulse.acquires, "acquire"), pulse.acquires_per_second);
                let text = format!(
                    "{acquires}, {rate}/s, {} unknown, {} refused",
                    pulse.unknown, pulse.refused
                );
                return self.say(since_start, &ProgressEvent::Note(text));
            }
            ProgressEvent::Lost { .. } => self.losses += 1,
            ProgressEvent::WindowOpened { .. } => self.losses = 0,
            _ => {}
        }
        if self.losses > LOSSES_SHOWN && matches!(event, ProgressEvent::Lost { .. }) {
            return;
        }
        self.say(since_start, event);
    }
}
