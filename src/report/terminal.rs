//! The diagnosis on a terminal: the answer in the first line, the proof below it, what to type at the end.

use harness_checkers::{Finding, Property, Verdict, Violation};

use super::diagnosis::{Diagnosis, Outcome};
use super::drawing::{BarKind, Drawing, Lane};
use super::words::{many, moment, quoted, span, thousands, wrap, wrap_words};

/// Columns of text.
const WIDTH: usize = 92;
/// Columns of a drawing's time axis.
const AXIS: usize = 62;
/// Columns before a drawing's time axis.
const MARGIN: usize = 12;
/// Columns from which on a bar has ends.
const WIDE: usize = 4;
/// Violations that are told in full; the rest is counted.
const TOLD: usize = 3;

/// How things look.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub color: bool,
}

impl Look {
    fn paint(self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn outcome(self, outcome: Outcome) -> String {
        let code = match outcome {
            Outcome::Pass => "1;32",
            Outcome::Fail | Outcome::Error => "1;31",
            Outcome::Unsure => "1;33",
        };
        self.paint(code, outcome.word())
    }

    fn verdict(self, verdict: Verdict) -> String {
        let (word, code) = match verdict {
            Verdict::Holds => ("holds", "32"),
            Verdict::Violated => ("violated", "1;31"),
            Verdict::Inconclusive => ("inconclusive", "33"),
            Verdict::NotApplicable => ("n/a", "2"),
        };
        self.paint(code, &format!("{word:<13}"))
    }
}

/// The whole screen of a finished run.
pub fn render(diagnosis: &Diagnosis, look: Look) -> String {
    let mut lines = vec![headline(diagnosis, look), String::new()];
    let told = told(diagnosis);
    for (finding, violation) in &told {
        lines.extend(story(diagnosis, finding, violation, look));
        lines.push(String::new());
    }
    let came_to_nothing = diagnosis.outcome == Outcome::Error && diagnosis.operations == 0;
    if !came_to_nothing {
        lines.extend(table(diagnosis, look));
        lines.push(String::new());
        lines.extend(bite(diagnosis));
    }
    lines.extend(reasons(diagnosis));
    lines.push(String::new());
    lines.extend(pointers(diagnosis, told.len() as u64));
    lines.push(String::new());
    lines.join("\n")
}

fn headline(diagnosis: &Diagnosis, look: Look) -> String {
    let what = match &diagnosis.run {
        Some(run) => {
            let attitude = run
                .attitude
                .as_ref()
                .map(|attitude| format!(" {attitude}"))
                .unwrap_or_default();
            format!("{} / {}{attitude} / {}", run.backend, run.recipe, run.fault)
        }
        None => diagnosis.path.clone(),
    };
    let runtime = diagnosis
        .run
        .as_ref()
        .map(|run| format!("{}, ", run.runtime))
        .unwrap_or_default();
    let times = format!(
        "{runtime}{} run, {} check",
        span(diagnosis.length_ns),
        span(diagnosis.check_ns)
    );
    format!(
        "{}  {}   {}",
        look.outcome(diagnosis.outcome),
        look.bold(&what),
        look.dim(&times)
    )
}

/// The violations that are told in full: of each property the first that stands for itself, the gravest property first.
fn told(diagnosis: &Diagnosis) -> Vec<(&Finding, &Violation)> {
    let root = |finding: &'_ Finding| {
        finding
            .violations
            .iter()
            .position(|violation| violation.follows.is_none())
    };
    let roots = diagnosis
        .findings
        .iter()
        .filter_map(|finding| Some((finding, &finding.violations[root(finding)?])));
    roots.take(TOLD).collect()
}

fn story(diagnosis: &Diagnosis, finding: &Finding, violation: &Violation, look: Look) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {}",
        look.paint("1;31", "x"),
        look.bold(&format!("{}  {}", violation.id, violation.summary))
    )];
    lines.push(String::new());
    if let Some(drawing) = diagnosis.drawings.get(&violation.id) {
        lines.extend(draw(drawing, look));
        lines.push(String::new());
    }
    if finding.property == Property::Hl004 {
        lines.extend(herd(violation));
        lines.push(String::new());
    }
    for (number, because) in violation.because.iter().enumerate() {
        lines.extend(labelled(&format!("{}", number + 1), 4, &because.text));
    }
    let damage = damage(diagnosis, violation);
    if !damage.is_empty() {
        lines.extend(labelled("damage", 9, &damage));
    }
    if let Some(likely) = &violation.likely {
        lines.extend(labelled(
            "likely",
            9,
            &format!("{likely}   (a guess; `harness explain {}`)", finding.property.id()),
        ));
    }
    if finding.property == Property::Hl004 && verdict_of(diagnosis, Property::Hl001) == Verdict::Holds {
        lines.extend(labelled(
            "safe?",
            9,
            "yes: mutual exclusion holds. This is a load defect.",
        ));
    }
    lines
}

fn labelled(label: &str, width: usize, text: &str) -> Vec<String> {
    let wrapped = wrap(text, WIDTH - width - 3);
    let line = |(number, line): (usize, &String)| {
        if number == 0 {
            format!("   {label:<width$}{line}")
        } else {
            format!("   {:width$}{line}", "")
        }
    };
    wrapped.iter().enumerate().map(line).collect()
}

fn verdict_of(diagnosis: &Diagnosis, property: Property) -> Verdict {
    let found = diagnosis.findings.iter().find(|finding| finding.property == property);
    found.map_or(Verdict::NotApplicable, |finding| finding.verdict)
}

/// What follows from a violation, in the numbers of the guarded register.
fn damage(diagnosis: &Diagnosis, violation: &Violation) -> String {
    if !violation.id.starts_with(Property::Hl001.id()) {
        return String::new();
    }
    let mut parts = Vec::new();
    for property in [Property::Hl008, Property::Hl003] {
        let Some(finding) = diagnosis.findings.iter().find(|finding| finding.property == property) else {
            continue;
        };
        let worth_telling = match property {
            Property::Hl008 => finding.verdict == Verdict::Violated,
            _ => finding
                .figures
                .get("stale_writes_refused")
                .is_some_and(|refused| *refused > 0.0),
        };
        if worth_telling {
            parts.push(finding.evidence.clone());
        }
    }
    parts.join("; ")
}

fn draw(drawing: &Drawing, look: Look) -> Vec<String> {
    let column = |ns: u64| {
        let (from, to) = (drawing.from_ns as f64, drawing.to_ns as f64);
        (((ns as f64 - from) / (to - from).max(1.0)).clamp(0.0, 1.0) * (AXIS - 1) as f64).round() as usize
    };
    let mut lines = vec![look.dim(&axis(drawing, column))];
    lines.extend(drawing.lanes.iter().map(|lane| draw_lane(lane, drawing, column)));
    let mut marks = vec![' '; AXIS];
    for (from, to) in &drawing.overlaps_ns {
        marks[column(*from)..=column(*to)].fill('^');
    }
    let from = marks.iter().position(|mark| *mark == '^').unwrap_or(0);
    let marks: String = marks.into_iter().collect();
    lines.push(format!("{:MARGIN$}{}", "", look.paint("1;31", marks.trim_end())));
    let first = drawing.overlaps_ns.first().map_or(0, |overlap| overlap.0);
    let last = drawing.overlaps_ns.iter().map(|overlap| overlap.1).max().unwrap_or(0);
    let times = if drawing.overlaps_ns.len() > 1 {
        format!(", {} times", drawing.overlaps_ns.len())
    } else {
        String::new()
    };
    let text = format!("both hold: {} to {}{times}", moment(first), moment(last));
    let from = from.min(AXIS.saturating_sub(text.len()));
    lines.push(format!("{:MARGIN$}{:from$}{text}", "", ""));
    lines
}

/// Whole steps of time, about six of them.
fn axis(drawing: &Drawing, column: impl Fn(u64) -> usize) -> String {
    let length = drawing.to_ns - drawing.from_ns;
    let steps = [
        1_000_000,
        10_000_000,
        100_000_000,
        500_000_000,
        1_000_000_000,
        2_000_000_000,
        5_000_000_000,
    ];
    let step = steps
        .into_iter()
        .find(|step| length / step <= 7)
        .unwrap_or(10_000_000_000);
    let mut line = vec![' '; AXIS + 10];
    let mut at = drawing.from_ns.div_ceil(step) * step;
    while at <= drawing.to_ns {
        let text = if step < 1_000_000_000 {
            format!("{:.2}s", at as f64 / 1e9)
        } else {
            format!("{}s", at / 1_000_000_000)
        };
        for (offset, letter) in text.chars().enumerate() {
            if let Some(cell) = line.get_mut(column(at) + offset) {
                *cell = letter;
            }
        }
        at += step;
    }
    format!("{:MARGIN$}{}", "", line.into_iter().collect::<String>().trim_end())
}

fn draw_lane(lane: &Lane, drawing: &Drawing, column: impl Fn(u64) -> usize) -> String {
    let mut cells = vec![' '; AXIS];
    for bar in &lane.bars {
        let (from, to) = (column(bar.from_ns), column(bar.to_ns));
        let fill = if bar.kind == BarKind::Fault { '=' } else { '#' };
        cells[from..=to].fill(fill);
        let inside: Vec<char> = format!(" {} ", bar.text).chars().collect();
        let room = (to - from).saturating_sub(3);
        for (offset, letter) in inside.iter().take(room).enumerate() {
            cells[from + 2 + offset] = *letter;
        }
        let wide = to - from >= WIDE;
        if wide && bar.from_ns >= drawing.from_ns {
            cells[from] = '[';
        }
        if wide && bar.to_ns <= drawing.to_ns {
            cells[to] = ']';
        }
    }
    let label = format!("   {:<width$}", lane.label, width = MARGIN - 3);
    format!("{label}{}", cells.into_iter().collect::<String>().trim_end())
}

fn herd(violation: &Violation) -> Vec<String> {
    let figure = |name: &str| violation.figures.get(name).map(|figure| *figure as usize);
    let bar = |count: usize| "#".repeat(count.min(AXIS));
    let mut lines = Vec::new();
    for (label, name) in [("woken", "woken"), ("useful", "useful")] {
        if let Some(count) = figure(name) {
            lines.push(format!("   {label:<9}{} {count}", bar(count)));
        }
    }
    if let Some(waiters) = figure("waiters") {
        lines.push(format!("   {:<9}{} {waiters}", "waiting", bar(waiters)));
    }
    if let Some(messages) = violation.figures.get("messages_per_hand_over") {
        let retries = violation.figures.get("retries_per_hand_over").copied().unwrap_or(0.0);
        lines.push(format!(
            "   on the wire   {messages:.0} messages per hand-over, {retries:.0} of them asked again"
        ));
    }
    lines
}

fn table(diagnosis: &Diagnosis, look: Look) -> Vec<String> {
    let mut lines = vec![look.dim(&format!("  {:<19}{:<13}{}", "property", "verdict", "evidence"))];
    for finding in &diagnosis.findings {
        let verdict = look.verdict(finding.verdict);
        let width = 2 + 19 + 13;
        let mut evidence = finding.evidence.clone();
        if finding.verdict == Verdict::Violated && finding.violations.iter().all(|v| v.follows.is_some()) {
            evidence += &format!(
                "   (follows {})",
                finding.violations[0].follows.as_deref().unwrap_or_default()
            );
        }
        let wrapped = wrap(&evidence, WIDTH.saturating_sub(width) + 16);
        for (number, line) in wrapped.iter().enumerate() {
            if number == 0 {
                lines.push(format!("  {:<19}{verdict}{line}", finding.property.name()));
            } else {
                lines.push(format!("{:width$}{line}", ""));
            }
        }
    }
    lines
}

fn bite(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = Vec::new();
    if !diagnosis.bite.windows.is_empty() || diagnosis.run.is_some() {
        lines.extend(labelled_flush("did it bite?", &diagnosis.bite.evidence));
        for window in diagnosis.bite.windows.iter().filter(|window| window.missed.is_some()) {
            let missed = window.missed.as_deref().unwrap_or_default();
            let how = if window.targets.is_empty() {
                "struck nobody"
            } else {
                "missed"
            };
            lines.extend(labelled_flush("", &format!("window {} {how}: {missed}", window.number)));
        }
    }
    let latency = diagnosis.latency;
    if latency.max_ns > 0 {
        let slowest = latency
            .max_window
            .map(|window| format!(" (window {window})"))
            .unwrap_or_default();
        let text = format!(
            "acquire p50 {}  p99 {}  max {}{slowest}",
            span(latency.p50_ns),
            span(latency.p99_ns),
            span(latency.max_ns)
        );
        lines.extend(labelled_flush("latency", &text));
    }
    let amount = format!(
        "{}, {} by {} on {}",
        many(diagnosis.operations, "operation"),
        many(diagnosis.acquires, "acquire"),
        many(diagnosis.clients, "client"),
        many(diagnosis.locks.len() as u64, "lock"),
    );
    lines.extend(labelled_flush("recorded", &amount));
    lines
}

fn labelled_flush(label: &str, text: &str) -> Vec<String> {
    let wrapped = wrap(text, WIDTH - 16);
    let line = |(number, line): (usize, &String)| format!("  {:<14}{line}", if number == 0 { label } else { "" });
    wrapped.iter().enumerate().map(line).collect()
}

fn reasons(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = Vec::new();
    // what is violated is sure, whatever else is not
    let is_sure = matches!(diagnosis.outcome, Outcome::Fail | Outcome::Error);
    if let Some(error) = diagnosis.run.as_ref().and_then(|run| run.error.as_ref()) {
        lines.extend(labelled_flush("error", error));
    }
    for (number, reason) in diagnosis.unsure.iter().filter(|_| !is_sure).enumerate() {
        lines.extend(labelled_flush(if number == 0 { "unsure" } else { "" }, reason));
    }
    if let Some(hint) = diagnosis.bite.hint.as_ref().filter(|_| !is_sure) {
        lines.extend(labelled_flush("hint", hint));
    }
    for (number, note) in diagnosis.notes.iter().enumerate() {
        lines.extend(labelled_flush(if number == 0 { "note" } else { "" }, note));
    }
    lines
}

/// Where to look, and what to type.
fn pointers(diagnosis: &Diagnosis, told: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let all: u64 = diagnosis.findings.iter().map(|finding| finding.violation_count).sum();
    if all > told {
        let more = format!(
            "{} more, like these or following from them: --json lists them",
            thousands(all - told)
        );
        lines.extend(labelled_flush("more", &more));
    }
    lines.push(format!("  {:<14}{}", "history", history_path(diagnosis)));
    if let Some(run) = &diagnosis.run {
        lines.push(format!("  {:<14}harness check {}", "exact", diagnosis.path));
        let mut again: Vec<String> = run.again.iter().map(|word| quoted(word)).collect();
        if diagnosis.outcome == Outcome::Fail {
            again.extend(["--repeat", "20", "--until", "fail"].map(str::to_owned));
        }
        let wrapped = wrap_words(again.iter().map(String::as_str), WIDTH - 20);
        let last = wrapped.len().saturating_sub(1);
        for (number, line) in wrapped.iter().enumerate() {
            let label = if number == 0 { "again" } else { "  " };
            lines.push(format!("  {label:<14}{line}{}", if number < last { " \\" } else { "" }));
        }
        lines.push(format!("  {:<14}(same plan, not same timing)", ""));
    }
    lines
}

fn history_path(diagnosis: &Diagnosis) -> String {
    if diagnosis.run.is_some() {
        format!("{}/history.jsonl", diagnosis.path)
    } else {
        diagnosis.path.clone()
    }
}
