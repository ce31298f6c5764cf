//! Progress of a run on stderr, for people: views of its events. They do not depend on the way a run is made.

mod block;
mod live;
pub mod metrics;
mod plain;

use std::io::Write;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

use crate::event::{ProgressEvent, TimedEvent};
use crate::report::screen::{Look, ScreenText};
pub use block::ScreenBlock;
use metrics::MetricsSource;

/// The way in which progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Facts scroll, and a block is redrawn under them.
    Live,
    /// One line a fact, and a heartbeat.
    Plain,
    Nothing,
}

/// Shows events until the run ends, and writes them to a log, if there is one. Blocks even if the terminal accepts no
/// output, because it is not read or the user has stopped it by Ctrl-S.
pub fn show(
    mut events: Receiver<TimedEvent>,
    (how, look): (Show, Look),
    log: Option<impl Write + Send + 'static>,
    metrics: Option<MetricsSource>,
) {
    let mut views: Vec<Box<dyn View + Send>> = Vec::new();
    match how {
        Show::Live => views.push(Box::new(live::LiveView::new(look))),
        Show::Plain => views.push(Box::new(plain::PlainView::new(look, Box::new(std::io::stderr())))),
        Show::Nothing => {}
    }
    if let Some(log) = log {
        views.push(Box::new(plain::PlainView::new(Look::PLAIN, Box::new(log))));
    }
    if let Some(metrics) = metrics {
        views.push(Box::new(metrics));
    }
    let mut start = None;
    while let Some((at, event)) = events.blocking_recv() {
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
    fn end(&mut self) {}
}

/// Returns a fact as a line, or `None` for an event that is no fact.
fn fact(since_start: Duration, event: &ProgressEvent, look: Look) -> Option<String> {
    let tenths = (since_start.as_millis() + 50) / 100;
    let clock = format!("{:02}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10);
    let text = match event {
        ProgressEvent::Begin { title, plan } => {
            let plan = plan.lines().map(|line| look.dim(line));
            let lines = [look.bold(title)].into_iter().chain(plan);
            let lines: Vec<ScreenText> = lines.flat_map(|line| line.wrapped(look.columns, 6)).collect();
            return Some(ScreenText::join(&lines) + "\n");
        }
        ProgressEvent::Chosen { name, why } => format!("runtime {name}: {why}").into(),
        ProgressEvent::Note(text) | ProgressEvent::Starting(text) | ProgressEvent::Phase { text, .. } => text.into(),
        ProgressEvent::ClusterReady { took, summary } => {
            format!("cluster ready in {:.1}s   {summary}", took.as_secs_f64()).into()
        }
        ProgressEvent::WindowOpened { title, .. } => look.bold(title),
        ProgressEvent::WindowHealed {
            number,
            lasted,
            evidence,
            ..
        } => format!("healed {number}   {:.1}s, {evidence}", lasted.as_secs_f64()).into(),
        ProgressEvent::Struck { title, evidence } => look.bold(title) + "   " + evidence.as_str(),
        ProgressEvent::Lost { client, cause } => format!("c{client} lost its lock: {cause}").into(),
        ProgressEvent::Waiting(_) | ProgressEvent::Snapshot(_) | ProgressEvent::End => return None,
    };
    let line = ScreenText::from(" ") + look.dim(&clock) + "  " + text;
    Some(ScreenText::join(&line.wrapped(look.columns, 10)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_one_line_and_no_command() {
        let lost = ProgressEvent::Lost {
            client: 3,
            cause: "gone\n::error::x\x1b[2J".into(),
        };
        let line = fact(Duration::from_millis(61_500), &lost, Look::PLAIN).unwrap();
        assert_eq!(line, " 01:01.5  c3 lost its lock: gone\\n::error::x\\u{1b}[2J");
        let note = ProgressEvent::Note("on".into());
        let line = fact(Duration::from_millis(59_960), &note, Look::PLAIN);
        assert_eq!(line.as_deref(), Some(" 01:00.0  on"), "a minute has 60 seconds");
    }
}
