//! The progress of a hunt on stderr: a line for each experiment, and a block that is redrawn on a terminal.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use super::{is_dumb, is_watched};
use crate::event::{ProgressEvent, TimedEvent};
use crate::hunt::{ExperimentResult, HuntRecord, render};
use crate::report::terminal::Look;
use crate::ui::ScreenBlock;
use crate::ui::metrics::MetricsSource;

/// A line about the current experiment of each job.
#[derive(Default)]
pub struct JobLines(Mutex<BTreeMap<u32, String>>);

impl JobLines {
    /// Returns the lines by the number of the job.
    pub fn by_job(&self) -> MutexGuard<'_, BTreeMap<u32, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Updates the line of a job and the figures of its run.
pub fn follow(
    jobs: Arc<JobLines>,
    (job, index): (u32, u64),
    metrics: Option<MetricsSource>,
    mut events: mpsc::Receiver<TimedEvent>,
) {
    tokio::spawn(async move {
        let (mut phase, mut open) = ("servers", String::new());
        while let Some((_, event)) = events.recv().await {
            if let Some(metrics) = &metrics {
                metrics.see_event(&event);
            }
            match event {
                ProgressEvent::Phase { name, .. } => phase = name,
                ProgressEvent::WindowOpened { title, .. } => open = format!("   {title}"),
                ProgressEvent::WindowHealed { .. } => open.clear(),
                // servers that are kept may send more
                ProgressEvent::End => break,
                ProgressEvent::Snapshot(pulse) => {
                    let line = format!("experiment {}: {phase}, {} acquires{open}", index + 1, pulse.acquires);
                    jobs.by_job().insert(job, line);
                }
                _ => {}
            }
        }
    });
}

/// The progress of a hunt on stderr.
pub struct HuntScreen {
    look: Look,
    /// `None` if only lines are printed.
    block: Option<ScreenBlock>,
    quiet: bool,
}

impl HuntScreen {
    pub fn of(quiet: bool, look: Look) -> Self {
        let live = is_watched(&io::stderr()) && !is_dumb() && !quiet;
        Self {
            look,
            block: live.then(ScreenBlock::default),
            quiet,
        }
    }

    pub fn say(&self, result: &ExperimentResult, is_new: bool) {
        let line = render::line(result, is_new, self.look);
        self.note(line.trim_end().to_owned());
    }

    pub fn note(&self, line: String) {
        match &self.block {
            Some(block) => block.say(line),
            None if self.quiet => {}
            None => eprintln!("{line}"),
        }
    }

    pub fn draw(&self, record: &HuntRecord, jobs: &JobLines) {
        if let Some(block) = &self.block {
            let lines: Vec<String> = jobs.by_job().values().cloned().collect();
            block.draw(render::block(record, &lines, self.look));
        }
    }

    pub fn end(&self) {
        if let Some(block) = &self.block {
            block.end();
        }
    }
}
