//! The drawing of a violation as text: a lane for each client with its holds, the events of the proof, and the explanation.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::finding::Violation;
use crate::history::History;
use crate::holds::CertainHold;

/// Characters of the time axis.
const WIDTH: usize = 64;

/// Draws a violation of a history as text, for a console or the message of a failed test. The holds are the history's
/// [`certain_holds`](History::certain_holds).
pub fn draw_as_text(history: &History, holds: &[CertainHold<'_>], violation: &Violation) -> String {
    let mut text = format!("{}  {}\n", violation.id, violation.summary);
    let times = violation.events.iter().map(|event| event.time_ns);
    if let (Some(first), Some(last)) = (times.clone().min(), times.max()) {
        let (from, to) = violation.overlap_ns.map_or((first, last), |(from, to)| {
            (first.min(from), last.max(to.min(history.end_ns())))
        });
        // A tenth more on both sides shows the time before and after.
        let more = ((to - from) / 10).max(1);
        lanes(&mut text, holds, violation, (from.saturating_sub(more), to + more));
    }
    for event in &violation.events {
        let process = event
            .process
            .map_or("server".to_owned(), |process| format!("p{process}"));
        let _ = writeln!(
            text,
            "  {:>14.6}s  {process:<8} {} (event {})",
            event.time_ns as f64 / 1e9,
            event.role,
            event.index
        );
    }
    for (number, because) in violation.because.iter().enumerate() {
        let _ = writeln!(text, "  {}  {}", number + 1, because.text);
    }
    if let Some(likely) = &violation.likely {
        let _ = writeln!(text, "  likely: {likely}");
    }
    text
}

/// Draws `#` for a hold, `=` for a pending call, and `^` below an overlap.
fn lanes(text: &mut String, holds: &[CertainHold<'_>], violation: &Violation, (from, to): (u64, u64)) {
    let column = |ns: u64| {
        let share = u128::from(ns.clamp(from, to) - from) * (WIDTH as u128 - 1) / u128::from(to - from);
        share as usize
    };
    // times may go back in a history that is ordered by its lines
    let span = |from: u64, to: u64| {
        let (from, to) = (column(from), column(to));
        from.min(to)..=from.max(to)
    };
    let processes: BTreeSet<u32> = violation.processes.iter().copied().collect();
    for process in processes {
        let mut lane = [' '; WIDTH];
        let own = holds.iter().filter(|hold| {
            hold.process == process && hold.lock == violation.lock && hold.asked_ns < to && hold.to_ns > from
        });
        for hold in own {
            lane[span(hold.asked_ns, hold.from_ns)].fill('=');
            lane[span(hold.from_ns, hold.to_ns)].fill('#');
        }
        let lane: String = lane.iter().collect();
        let _ = writeln!(text, "  {:<8} |{lane}|", format!("p{process}"));
    }
    if let Some((from, to)) = violation.overlap_ns {
        let (start, end) = span(from, to).into_inner();
        let _ = writeln!(
            text,
            "  {:<8}  {}{}",
            "",
            " ".repeat(start),
            "^".repeat(end - start + 1)
        );
    }
}
