//! Metrics of current runs, in the text format of Prometheus:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>.
//!
//! They come from progress events, some of which may be dropped: they are for monitoring, and no verdict depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::View;
use crate::event::{ProgressEvent, ProgressSnapshot};

/// The figures of all runs of this process: totals, and those of the current runs.
#[derive(Debug, Default)]
pub struct MetricsBoard(Mutex<BoardFigures>);

#[derive(Debug, Default)]
struct BoardFigures {
    runs: u64,
    acquires: u64,
    unknown: u64,
    refused: u64,
    lost: u64,
    overlaps: u64,
    windows: u64,
    stalls: u64,
    worst_delay: Duration,
    /// The current runs, by number.
    now: BTreeMap<u64, RunFigures>,
    /// For a hunt: the numbers of experiments by outcome, and of finds.
    experiments: Option<(Vec<(&'static str, u64)>, u64)>,
}

/// The figures of a current run.
#[derive(Debug, Clone, Default)]
struct RunFigures {
    last: ProgressSnapshot,
    open: BTreeSet<u32>,
}

/// A run that writes to a board.
#[derive(Debug)]
pub struct MetricsSource {
    board: Arc<MetricsBoard>,
    run: u64,
}

impl MetricsBoard {
    /// Adds a run, which begins.
    pub fn begin(self: &Arc<Self>) -> MetricsSource {
        let mut figures = self.figures();
        figures.runs += 1;
        let run = figures.runs;
        figures.now.insert(run, RunFigures::default());
        let board = Arc::clone(self);
        MetricsSource { board, run }
    }

    /// Sets the numbers of experiments and finds of a hunt.
    pub fn experiments(&self, by_outcome: Vec<(&'static str, u64)>, finds: u64) {
        self.figures().experiments = Some((by_outcome, finds));
    }

    fn figures(&self) -> MutexGuard<'_, BoardFigures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn text(&self) -> String {
        let figures = self.figures();
        let mut text = MetricsText::default();
        let now = || figures.now.values();
        let sum = |of: fn(&RunFigures) -> u64| now().map(of).sum::<u64>();
        let slowest = |of: fn(&RunFigures) -> Duration| now().map(of).max().unwrap_or_default().as_secs_f64();
        text.counter("runs_total", "Runs that began.", figures.runs);
        text.counter("grants_total", "Acquires that were granted.", figures.acquires);
        text.counter("unknown_total", "Operations whose outcome is unknown.", figures.unknown);
        text.counter("refused_total", "Acquires that were refused.", figures.refused);
        text.counter("lost_total", "Holds that clients reported as lost.", figures.lost);
        text.counter(
            "overlaps_total",
            "Grants of a lock that another client held.",
            figures.overlaps,
        );
        text.counter("windows_total", "Fault windows that opened.", figures.windows);
        let open = sum(|run| run.open.len() as u64);
        text.gauge("windows_open", "Fault windows that are open.", open);
        text.gauge("holders", "Clients that hold a lock.", sum(|run| run.last.holding));
        text.gauge("waiting", "Clients that wait for a lock.", sum(|run| run.last.waiting));
        text.head("acquire_seconds", "gauge", "Time of the latest acquires, by quantile.");
        for (quantile, of) in [
            ("0.5", (|run| run.last.p50) as fn(&RunFigures) -> Duration),
            ("0.99", |run| run.last.p99),
        ] {
            text.sample("acquire_seconds", &format!("{{quantile=\"{quantile}\"}}"), slowest(of));
        }
        let delay = slowest(|run| run.last.delay);
        text.gauge(
            "own_delay_seconds",
            "Largest delay of the latest timers of harness.",
            delay,
        );
        let worst = figures.worst_delay.as_secs_f64();
        text.gauge("own_delay_worst_seconds", "Largest delay of a timer of harness.", worst);
        text.counter("own_stalls_total", "Stalls of harness itself.", figures.stalls);
        if let Some((by_outcome, finds)) = &figures.experiments {
            text.head("experiments_total", "counter", "Experiments of the hunt, by outcome.");
            for (outcome, count) in by_outcome {
                text.sample("experiments_total", &format!("{{outcome=\"{outcome}\"}}"), count);
            }
            text.gauge("finds", "Causes of violations that the hunt found.", finds);
        }
        text.0
    }
}

impl MetricsSource {
    pub fn see_event(&self, event: &ProgressEvent) {
        let mut figures = self.board.figures();
        let mut of_run = figures.now.remove(&self.run).unwrap_or_default();
        match event {
            ProgressEvent::WindowOpened { number, .. } => {
                figures.windows += 1;
                of_run.open.insert(*number);
            }
            ProgressEvent::WindowHealed { number, .. } => {
                of_run.open.remove(number);
            }
            ProgressEvent::Lost { .. } => figures.lost += 1,
            ProgressEvent::Snapshot(pulse) => {
                let grown = |of: fn(&ProgressSnapshot) -> u64| of(pulse).saturating_sub(of(&of_run.last));
                figures.acquires += grown(|pulse| pulse.acquires);
                figures.unknown += grown(|pulse| pulse.unknown);
                figures.refused += grown(|pulse| pulse.refused);
                figures.overlaps += grown(|pulse| pulse.overlaps);
                figures.stalls += grown(|pulse| pulse.stalls);
                figures.worst_delay = figures.worst_delay.max(pulse.delay);
                of_run.last = pulse.clone();
            }
            _ => {}
        }
        figures.now.insert(self.run, of_run);
    }
}

impl Drop for MetricsSource {
    fn drop(&mut self) {
        self.board.figures().now.remove(&self.run);
    }
}

impl View for MetricsSource {
    fn see(&mut self, _: Duration, event: &ProgressEvent, _: Instant) {
        self.see_event(event);
    }
}

#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP harness_{name} {help}\n# TYPE harness_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "harness_{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(acquires: u64) -> ProgressEvent {
        ProgressEvent::Snapshot(ProgressSnapshot {
            acquires,
            waiting: 3,
            holding: 2,
            p50: Duration::from_millis(5),
            delay: Duration::from_millis(20),
            ..ProgressSnapshot::default()
        })
    }

    fn value(board: &MetricsBoard, name: &str) -> String {
        let text = board.text();
        let line = text.lines().find(|line| line.starts_with(&format!("harness_{name} ")));
        line.and_then(|line| line.split(' ').nth(1))
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .to_owned()
    }

    #[test]
    fn counters_go_on_from_run_to_run_and_gauges_end_with_theirs() {
        let board = Arc::new(MetricsBoard::default());
        let first = board.begin();
        let title = String::new();
        first.see_event(&snapshot(10));
        first.see_event(&snapshot(25));
        first.see_event(&ProgressEvent::WindowOpened { number: 1, title });
        assert_eq!(value(&board, "grants_total"), "25");
        assert_eq!(value(&board, "windows_open"), "1");
        let second = board.begin();
        second.see_event(&snapshot(5));
        assert_eq!(value(&board, "waiting"), "6", "of both runs");
        drop(first);
        assert_eq!(value(&board, "grants_total"), "30");
        assert_eq!(value(&board, "holders"), "2");
        assert_eq!(value(&board, "windows_open"), "0");
        drop(second);
        assert_eq!(
            (value(&board, "runs_total"), value(&board, "waiting")),
            ("2".into(), "0".into())
        );
        assert_eq!(value(&board, "own_delay_worst_seconds"), "0.02");
        assert!(!board.text().contains("experiments"), "there is no hunt");
        board.experiments(vec![("held", 4), ("violated", 1)], 1);
        assert!(board.text().contains("harness_experiments_total{outcome=\"held\"} 4\n"));
    }

    #[test]
    fn every_figure_has_its_help_and_type_once_and_before_it() {
        let board = Arc::new(MetricsBoard::default());
        board.begin().see_event(&snapshot(1));
        board.experiments(vec![("held", 1)], 0);
        let text = board.text();
        let mut described = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(described.insert(rest.split(' ').next().unwrap()), "{line}");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                assert!(described.contains(name), "{line}");
                assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(described.len() > 12, "{text}");
    }
}
