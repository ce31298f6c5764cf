//! The diagnosis on a terminal: the verdict in the first line, then the proof, then the next commands.

use harness_checkers::{Finding, Property, Verdict, Violation};

use super::coverage::Coverage;
use super::diagnosis::{Diagnosis, Outcome};
use super::drawing::{Bar, BarKind, Drawing, DrawingLane};
use super::escape;
pub use super::screen::Look;
use super::screen::ScreenText;
use super::summary;
use super::words::{axis, many, span, wrap};

/// Columns of text.
const WIDTH: usize = 92;
/// Columns of a drawing's time axis.
const AXIS: usize = 62;
/// Steps of a drawing's time axis, at most.
const TICKS: u64 = 6;
/// Columns for the last label of an axis, beyond its end.
const LABEL: usize = 10;
/// Columns before a drawing's time axis.
const MARGIN: usize = 12;
/// Columns from which on a bar is drawn with ends.
const WIDE: usize = 4;

fn verdict_cell(look: Look, verdict: Verdict) -> ScreenText {
    let code = match verdict {
        Verdict::Holds => "32",
        Verdict::Violated => "1;31",
        Verdict::Inconclusive => "33",
        Verdict::NotApplicable => "2",
    };
    look.paint(code, &format!("{:<13}", summary::verdict_word(verdict)))
}

/// Returns the whole screen of a finished run.
pub fn render(diagnosis: &Diagnosis, look: Look) -> String {
    let mut lines = headline(diagnosis, look).wrapped(look.columns, 6);
    lines.push(ScreenText::default());
    for (finding, violation) in summary::shown(diagnosis) {
        lines.extend(violation_lines(diagnosis, finding, violation, look));
        lines.push(ScreenText::default());
    }
    let came_to_nothing = diagnosis.outcome == Outcome::Error && diagnosis.operations == 0;
    if !came_to_nothing {
        lines.extend(table(diagnosis, look));
        lines.push(ScreenText::default());
        lines.extend(effect(diagnosis, look));
    }
    lines.extend(reasons(diagnosis, look));
    lines.push(ScreenText::default());
    lines.extend(pointers(diagnosis, look));
    lines.push(ScreenText::default());
    ScreenText::join(&lines)
}

fn headline(diagnosis: &Diagnosis, look: Look) -> ScreenText {
    let run = diagnosis.run.as_ref();
    let runtime = run.map_or(String::new(), |run| format!("{}, ", run.servers_were()));
    let (length, check) = (span(diagnosis.length_ns), span(diagnosis.check_ns));
    let times = format!("{runtime}{length} run, {check} check");
    let title = look.bold(&summary::title(diagnosis));
    look.outcome(diagnosis.outcome) + "  " + title + "   " + look.dim(&times)
}

fn violation_lines(diagnosis: &Diagnosis, finding: &Finding, violation: &Violation, look: Look) -> Vec<ScreenText> {
    let heading = look.bold(&format!("{}  {}", violation.id, violation.summary));
    let heading = look.paint("1;31", "x") + " " + heading;
    let mut lines = heading.wrapped(look.columns, violation.id.len() + 4);
    lines.push(ScreenText::default());
    if let Some(drawing) = diagnosis.drawings.get(&violation.id) {
        lines.extend(draw(drawing, look));
        lines.push(ScreenText::default());
    }
    if finding.property == Property::Hl004 {
        lines.extend(herd(violation, look));
        lines.push(ScreenText::default());
    }
    for (number, because) in violation.because.iter().enumerate() {
        lines.extend(labelled(3, &(number + 1).to_string(), 4, &because.text, look));
    }
    for (label, remark) in summary::remarks(diagnosis, finding, violation) {
        lines.extend(labelled(3, label, 9, &remark, look));
    }
    lines
}

/// Returns a text in lines behind a label of this width.
fn labelled(indent: usize, label: &str, width: usize, text: &str, look: Look) -> Vec<ScreenText> {
    let wrapped = wrap(text, look.at_most(WIDTH).saturating_sub(indent + width));
    let line = |(number, line): (usize, &String)| {
        let label = if number == 0 { label } else { "" };
        ScreenText::from(format!("{:indent$}{label:<width$}{line}", ""))
    };
    wrapped.iter().enumerate().map(line).collect()
}

/// Returns a drawing alone, without colours, for other texts.
pub fn picture(drawing: &Drawing) -> String {
    ScreenText::join(&draw(drawing, Look::PLAIN))
}

fn draw(drawing: &Drawing, look: Look) -> Vec<ScreenText> {
    let width = axis_width(look);
    let column = |ns: u64| (drawing.place(ns) * (width - 1) as f64).round() as usize;
    let mut lines = vec![look.dim(&axis_line(drawing, look, column))];
    // a lane of marks alone shows nothing if marks are not drawn
    let is_drawn = |lane: &&DrawingLane| drawing.overlaps_ns.is_empty() || !lane.bars.is_empty();
    let lanes = drawing.lanes.iter().filter(is_drawn);
    lines.extend(lanes.map(|lane| draw_lane(lane, drawing, width, column)));
    let Some((_, _, text)) = drawing.both_hold() else {
        return lines;
    };
    let mut marks = vec![' '; width];
    for (from, to) in &drawing.overlaps_ns {
        marks[column(*from)..=column(*to)].fill('^');
    }
    let from = marks.iter().position(|mark| *mark == '^').unwrap_or(0);
    let marks: String = marks.into_iter().collect();
    let margin = || ScreenText::from(" ".repeat(MARGIN));
    lines.push(margin() + look.paint("1;31", marks.trim_end()));
    let from = from.min(width.saturating_sub(text.len()));
    lines.push(margin() + &format!("{:from$}{text}", ""));
    lines
}

/// Columns of a drawing's time axis on this terminal.
fn axis_width(look: Look) -> usize {
    (look.at_most(MARGIN + AXIS).saturating_sub(MARGIN)).max(2)
}

fn axis_line(drawing: &Drawing, look: Look, column: impl Fn(u64) -> usize) -> String {
    let room = look.at_most(MARGIN + AXIS + LABEL).saturating_sub(MARGIN);
    let mut line = vec![' '; room.max(axis_width(look))];
    let mut taken = 0;
    for (at, label) in axis(drawing.from_ns, drawing.to_ns, TICKS) {
        let place = column(at)..column(at) + label.len();
        // half a number would be another number
        if place.start >= taken && place.end <= line.len() {
            taken = place.end + 1;
            line[place]
                .iter_mut()
                .zip(label.chars())
                .for_each(|(cell, letter)| *cell = letter);
        }
    }
    format!("{:MARGIN$}{}", "", line.into_iter().collect::<String>().trim_end())
}

fn draw_lane(lane: &DrawingLane, drawing: &Drawing, width: usize, column: impl Fn(u64) -> usize) -> ScreenText {
    let mut cells = vec![' '; width];
    for bar in &lane.bars {
        let (from, to) = (column(bar.from_ns), column(bar.to_ns));
        let fill = match bar.kind {
            BarKind::Fault => '=',
            BarKind::Hold => '#',
            BarKind::Wait => '-',
            BarKind::Owner => '+',
        };
        cells[from..=to].fill(fill);
        let room = (to - from).saturating_sub(3);
        let words = escaped(bar).fitted(room.saturating_sub(2));
        let inside = if words.is_empty() { words } else { format!(" {words} ") };
        for (offset, letter) in inside.chars().enumerate() {
            cells[from + 2 + offset] = letter;
        }
        let wide = to - from >= WIDE;
        // an owner often follows another at once, and a short grant must not look like a part of the previous one
        let begins = wide || bar.kind == BarKind::Owner;
        if begins && bar.from_ns >= drawing.from_ns {
            cells[from] = '[';
        }
        if wide && bar.to_ns <= drawing.to_ns {
            cells[to] = ']';
        }
    }
    // in an overlap, the drawing itself shows what the sentences say
    for mark in lane.marks.iter().filter(|_| drawing.overlaps_ns.is_empty()) {
        cells[column(mark.at_ns)] = char::from_digit(mark.sentence, 10).unwrap_or('*');
    }
    let label = format!("   {:<width$}", lane.label, width = MARGIN - 3);
    let line = format!("{label}{}", cells.into_iter().collect::<String>());
    line.trim_end().into()
}

/// Escapes the texts of a bar, which can become longer.
fn escaped(bar: &Bar) -> Bar {
    Bar {
        text: escape::line(&bar.text).into_owned(),
        brief: escape::line(&bar.brief).into_owned(),
        ..bar.clone()
    }
}

fn herd(violation: &Violation, look: Look) -> Vec<ScreenText> {
    let figure = |name: &str| violation.figures.get(name).map(|figure| *figure as usize);
    let bar = |count: usize| "#".repeat(count.min(axis_width(look)));
    let mut lines = Vec::new();
    for (label, name) in [("woken", "woken"), ("useful", "useful"), ("waiting", "waiters")] {
        if let Some(count) = figure(name) {
            lines.push(format!("   {label:<9}{} {count}", bar(count)).into());
        }
    }
    if let Some(messages) = violation.figures.get("messages_per_hand_over") {
        let retries = violation.figures.get("retries_per_hand_over").copied().unwrap_or(0.0);
        let messages = many(messages.round() as u64, "message");
        let text = format!("{messages} per hand-over, {retries:.0} of them asked again");
        lines.extend(labelled(3, "on the wire", 14, &text, look));
    }
    lines
}

fn table(diagnosis: &Diagnosis, look: Look) -> Vec<ScreenText> {
    let mut lines = vec![look.dim(&format!("  {:<19}{:<13}{}", "property", "verdict", "evidence"))];
    for finding in &diagnosis.findings {
        let width = 2 + 19 + 13;
        let room = look.at_most(WIDTH + 16).saturating_sub(width);
        let wrapped = wrap(&summary::evidence(finding), room);
        for (number, line) in wrapped.iter().enumerate() {
            lines.push(match number {
                0 => {
                    let name = ScreenText::from(format!("  {:<19}", finding.property.name()));
                    name + verdict_cell(look, finding.verdict) + line
                }
                _ => format!("{:width$}{line}", "").into(),
            });
        }
    }
    lines
}

fn effect(diagnosis: &Diagnosis, look: Look) -> Vec<ScreenText> {
    let mut lines = Vec::new();
    if !diagnosis.effect.windows.is_empty() || diagnosis.run.is_some() {
        lines.extend(labelled_flush("effect", &diagnosis.effect.evidence, look));
        for missed in summary::missed(&diagnosis.effect) {
            lines.extend(labelled_flush("", &missed, look));
        }
    }
    if let Some(coverage) = diagnosis.coverage.as_ref().and_then(Coverage::in_words) {
        lines.extend(labelled_flush("struck", &coverage, look));
    }
    if let Some(latency) = summary::latency(diagnosis) {
        lines.extend(labelled_flush("latency", &latency, look));
    }
    lines.extend(labelled_flush("recorded", &summary::amount(diagnosis), look));
    lines
}

fn labelled_flush(label: &str, text: &str, look: Look) -> Vec<ScreenText> {
    labelled(2, label, 14, text, look)
}

fn flush(label: &str, text: &str) -> ScreenText {
    format!("  {label:<14}{text}").into()
}

/// Returns the reasons; a label is on the first of its lines.
fn reasons(diagnosis: &Diagnosis, look: Look) -> Vec<ScreenText> {
    let mut lines = Vec::new();
    let mut before = "";
    for (label, text) in summary::reasons(diagnosis) {
        lines.extend(labelled_flush(if label == before { "" } else { label }, text, look));
        before = label;
    }
    lines
}

/// Returns the places to look at, and the next commands.
fn pointers(diagnosis: &Diagnosis, look: Look) -> Vec<ScreenText> {
    let mut lines = Vec::new();
    if let Some(more) = summary::more(diagnosis) {
        lines.extend(labelled_flush("more", &more, look));
    }
    match summary::page(diagnosis) {
        Some(page) => lines.push(flush("report", &page)),
        None => lines.push(flush("history", &history_path(diagnosis))),
    }
    if let Some(exact) = summary::exact(diagnosis) {
        lines.push(flush("exact", &exact));
    }
    if let Some(again) = summary::again(diagnosis) {
        let label = flush("again", "").to_string();
        lines.extend(ScreenText::command(&label, &again, Some(look.at_most(WIDTH))));
        lines.extend(labelled_flush(
            "",
            &format!("({})", summary::made_again(diagnosis)),
            look,
        ));
    }
    lines
}

fn history_path(diagnosis: &Diagnosis) -> String {
    match &diagnosis.run {
        Some(_) => format!("{}/history.jsonl", diagnosis.path),
        None => diagnosis.path.clone(),
    }
}
