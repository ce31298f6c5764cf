//! `harness check --online`: decides while a history is read, and ends at the first violation.

use std::fmt::Write as _;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::Path;

use harness_checkers::{EventStream, Monitor, Violation};
use serde::Serialize;

use super::Failure;
use super::args::CheckArgs;
use super::examined::{STDIN, has_known_model, unreadable};
use super::stdout::{print_json, print_table};
use crate::exit::Exit;
use crate::report::diagnosis::Outcome;
use crate::report::escape::line;
use crate::report::words::many;
use crate::store::Stored;

/// The verdict of `harness check --online`.
#[derive(Debug, Serialize)]
struct OnlineVerdict {
    /// `PASS`, `FAIL` or `UNSURE`.
    outcome: &'static str,
    /// The exit code.
    exit: u8,
    model: String,
    /// Calls, replies and signals of holders that were checked.
    events: u64,
    /// Lines that were written later than `--signal-delay` after their time.
    late_lines: u64,
    /// Why the history is partial.
    partial: Option<String>,
    violation: Option<Violation>,
}

pub fn check(stored: &Stored, args: &CheckArgs) -> Result<Exit, Failure> {
    let wrong = |error| unreadable(stored, error);
    let stream = if stored.history == Path::new(STDIN) {
        EventStream::new(BufReader::new(io::stdin()))
    } else {
        EventStream::open(&stored.history)
    };
    let mut stream = stream.map_err(wrong)?;
    let header = stream.header().clone();
    let monitor = match args.model {
        Some(model) => Monitor::new(header, model),
        None => {
            has_known_model(stored, &header)?;
            Monitor::of_header(header)
        }
    };
    let monitor = monitor.map_err(Failure::usage)?;
    let model = monitor.model();
    let mut monitor = monitor.with_signal_delay(args.signal_delay);
    let found = stream.each(|entry| {
        let violation = monitor.push(entry)?;
        Ok(violation.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    });
    let found = found.map_err(wrong)?;
    let (events, late_lines) = (monitor.events(), monitor.late());
    // after a violation the rest is not read
    let partial = if found.is_none() { stream.partial() } else { None };
    let violation = found
        .map(|found| *found)
        .or_else(|| monitor.finish().into_iter().next());
    let exit = match violation {
        Some(_) => Exit::Violated,
        None if late_lines > 0 || events == 0 || partial.is_some() => Exit::Inconclusive,
        None => Exit::Holds,
    };
    let verdict = OnlineVerdict {
        outcome: Outcome::of(exit).word(),
        exit: exit.code(),
        model: model.to_string(),
        events,
        late_lines,
        partial,
        violation,
    };
    if args.json {
        print_json(&verdict);
    } else {
        print_table(&verdict.text(stored));
    }
    Ok(exit)
}

impl OnlineVerdict {
    fn text(&self, stored: &Stored) -> String {
        let (outcome, name, model) = (self.outcome, stored.history.display(), &self.model);
        let events = many(self.events, "event");
        let mut text = format!("{outcome}  {name}   HL002 online, {model}, {events}\n");
        // Writing to a string does not fail.
        if let Some(violation) = &self.violation {
            let _ = writeln!(text, "\nx {}  {}\n", violation.id, line(&violation.summary));
            for (number, because) in violation.because.iter().enumerate() {
                let _ = writeln!(text, "   {}   {}", number + 1, line(&because.text));
            }
            let indices: Vec<String> = violation.events.iter().map(|event| event.index.to_string()).collect();
            let _ = writeln!(text, "   proof   events {}", indices.join(", "));
        }
        if self.late_lines > 0 {
            let _ = writeln!(
                text,
                "\nwritten later than --signal-delay allows: {}; hint: a longer delay, or harness check without --online",
                many(self.late_lines, "line")
            );
        }
        if let Some(partial) = &self.partial {
            let _ = writeln!(text, "\nthe history is partial: {partial}");
        }
        if self.events == 0 {
            text.push_str("\nno operation on a lock was recorded\n");
        }
        text
    }
}
