//! For logs: one line a phase and a fault, a heartbeat now and then, nothing is redrawn.

use std::time::{Duration, Instant};

use super::{View, fact};
use crate::event::Event;
use crate::report::terminal::Look;

const HEARTBEAT: Duration = Duration::from_secs(10);
/// Losses are frequent where faults bite; a log needs the first few of each stretch.
const LOSSES_SHOWN: u32 = 3;

pub struct Plain {
    look: Look,
    last_beat: Duration,
    losses: u32,
}

impl Plain {
    pub fn new(look: Look) -> Self {
        Self {
            look,
            last_beat: Duration::ZERO,
            losses: 0,
        }
    }
}

impl View for Plain {
    fn see(&mut self, since_start: Duration, event: &Event, _: Instant) {
        match event {
            Event::Pulse(pulse) if since_start >= self.last_beat + HEARTBEAT => {
                self.last_beat = since_start;
                let text = format!(
                    "{} acquires, {}/s, {} unknown, {} refused",
                    pulse.acquires, pulse.acquires_per_second, pulse.unknown, pulse.refused
                );
                if let Some(line) = fact(since_start, &Event::Note(text), self.look) {
                    eprintln!("{line}");
                }
                return;
            }
            Event::Lost { .. } => self.losses += 1,
            Event::WindowOpened { .. } => self.losses = 0,
            _ => {}
        }
        if self.losses > LOSSES_SHOWN && matches!(event, Event::Lost { .. }) {
            return;
        }
        if let Some(line) = fact(since_start, event, self.look) {
            eprintln!("{line}");
        }
    }

    fn end(&mut self) {}
}
