//! What people see while a run goes on: folds over its events, on stderr. Nothing here knows how a run is made.

mod live;
mod plain;

use std::io::Write;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

use crate::event::{ProgressEvent, TimedEvent};
use crate::report::terminal::Look;

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Facts scroll, and a block is redrawn below them.
    Live,
    /// One line a fact, and a heartbeat.
    Plain,
    Nothing,
}

/// Shows events until the run ends, and keeps them as lines of a log.
pub async fn show(mut events: Receiver<TimedEvent>, how: Show, look: Look, log: impl Write + Send + 'static) {
    let on_screen: Box<dyn View + Send> = match how {
        Show::Live => Box::new(live::Live::new(look)),
        Show::Plain => Box::new(plain::Plain::new(look, Box::new(std::io::stderr()))),
        Show::Nothing => Box::new(Silent),
    };
    let kept = plain::Plain::new(Look { color: false }, Box::new(log));
    let mut views = [on_screen, Box::new(kept)];
    let mut start = None;
    while let Some((at, event)) = events.recv().await {
        let start = *start.get_or_insert(at);
        if matches!(event, ProgressEvent::End) {
            break;
        }
        for view in &mut views {
            view.see(at.saturating_duration_since(start), &event, at);
        }
    }
    for view in &mut views {
        view.end();
    }
}

trait View {
    fn see(&mut self, since_start: Duration, event: &ProgressEvent, at: Instant);
    fn end(&mut self);
}

struct Silent;

impl View for Silent {
    fn see(&mut self, _: Duration, _: &ProgressEvent, _: Instant) {}
    fn end(&mut self) {}
}

/// One fact as a line, or nothing for what is no fact.
fn fact(since_start: Duration, event: &ProgressEvent, look: Look) -> Option<String> {
    let seconds = since_start.as_secs_f64();
    let clock = format!("{:02}:{:04.1}", (seconds / 60.0) as u64, seconds % 60.0);
    let text = match event {
        ProgressEvent::Begin { title, plan } => return Some(format!("{}\n{}\n", look.bold(title), look.dim(plan))),
        ProgressEvent::Chosen { name, why } => format!("runtime {name}: {why}"),
        ProgressEvent::Note(text) => text.clone(),
        ProgressEvent::ClusterReady { took, summary } => {
            format!("cluster ready in {:.1}s   {summary}", took.as_secs_f64())
        }
        ProgressEvent::Phase { text, .. } => text.clone(),
        ProgressEvent::WindowOpened { title, .. } => look.bold(title),
        ProgressEvent::WindowHealed {
            number,
            lasted,
            evidence,
            ..
        } => {
            format!("healed {number}   {:.1}s, {evidence}", lasted.as_secs_f64())
        }
        ProgressEvent::Lost { client, cause } => format!("c{client} lost its lock: {cause}"),
        ProgressEvent::Snapshot(_) | ProgressEvent::End => return None,
    };
    Some(format!(" {}  {text}", look.dim(&clock)))
}
