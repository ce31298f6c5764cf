//! Progress on a terminal: facts scroll, and a block of six lines under them is redrawn in place and removed at the end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::block::ScreenBlock;
use super::{View, fact};
use crate::event::{ProgressEvent, ProgressSnapshot};
use crate::report::escape;
use crate::report::screen::{Look, ScreenText};
use crate::report::words::{many, span};

const BAR: usize = 30;

pub struct LiveView {
    look: Look,
    block: ScreenBlock,
    /// Open windows: title and when they opened.
    open: BTreeMap<u32, (String, Instant)>,
    /// Whether the block shows a wait.
    waits: bool,
}

impl LiveView {
    pub fn new(look: Look) -> Self {
        Self {
            look,
            block: ScreenBlock::default(),
            open: BTreeMap::new(),
            waits: false,
        }
    }

    fn draw(&self, pulse: &ProgressSnapshot, at: Instant) -> String {
        let share = (pulse.elapsed.as_secs_f64() / pulse.total.as_secs_f64().max(0.1)).min(1.0);
        let filled = (share * BAR as f64) as usize;
        let bar = format!("{}>{}", "=".repeat(filled), ".".repeat(BAR - filled));
        let clock = |time: Duration| format!("{:02}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
        let [elapsed, total] = [pulse.elapsed, pulse.total].map(clock);
        let open = self.open.values().map(|(title, since)| {
            let active = at.saturating_duration_since(*since).as_secs_f64();
            format!("{title}   active {active:.1}s")
        });
        let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
        let holders = or_none(pulse.holders.join("  "));
        let [p50, p99] = [pulse.p50, pulse.p99].map(|time| span(time.as_nanos() as u64));
        let (rate, unknown, refused) = (pulse.acquires_per_second, pulse.unknown, pulse.refused);
        let overlaps = match pulse.overlaps {
            0 => "no overlap".to_owned(),
            some => many(some, "overlap"),
        };
        let acquires = many(pulse.acquires, "acquire");
        let rows = [
            ("run", format!("[{bar}]  {elapsed} / {total}")),
            ("fault", or_none(open.collect::<Vec<_>>().join("\n"))),
            ("nodes", pulse.nodes.join("   ")),
            ("holder", format!("{holders}      {} waiting", pulse.waiting)),
            (
                "acquire",
                format!("{rate}/s   p50 {p50}   p99 {p99}   unknown {unknown}   refused {refused}"),
            ),
            (
                "so far",
                format!("{acquires}, {overlaps} seen; the verdict comes at the end"),
            ),
        ];
        let lines = rows.iter().flat_map(|(name, text)| {
            text.lines().enumerate().flat_map(move |(number, line)| {
                let name = if number == 0 { name } else { "" };
                let row = ScreenText::from(" ") + self.look.dim(&format!("{name:<9}")) + " " + line;
                row.wrapped(self.look.columns, 11)
            })
        });
        format!("\n{}", ScreenText::join(&lines.collect::<Vec<_>>()))
    }
}

impl View for LiveView {
    fn see(&mut self, since_start: Duration, event: &ProgressEvent, at: Instant) {
        if self.waits && !matches!(event, ProgressEvent::Waiting(_) | ProgressEvent::Note(_)) {
            self.block.end_wait();
            self.waits = false;
        }
        match event {
            ProgressEvent::Snapshot(pulse) => {
                self.block.draw(self.draw(pulse, at));
            }
            ProgressEvent::Waiting(what) => {
                self.block.wait(escape::line(what).into_owned(), !self.waits);
                self.waits = true;
            }
            ProgressEvent::WindowOpened { number, title } => {
                self.open.insert(*number, (title.clone(), at));
            }
            ProgressEvent::WindowHealed { number, .. } => {
                self.open.remove(number);
            }
            _ => {}
        }
        if let Some(line) = fact(since_start, event, self.look) {
            self.block.say(line);
        }
    }

    fn end(&mut self) {
        self.block.end();
    }
}
