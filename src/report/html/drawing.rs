//! A violation's drawing as static SVG. Places are percentages, so it fits every width, and text keeps its size.

use std::fmt::Write;

use super::text::text;
use crate::report::drawing::{Bar, BarKind, Drawing, Lane};
use crate::report::words::stretch;

/// Pixels of a lane and of what stands above and below all lanes.
const LANE: usize = 38;
const HEAD: usize = 22;
const FOOT: usize = 26;
/// Percent of the width below which a bar is too narrow for words.
const WORDY: f64 = 7.0;
/// Percent of the width below which a bar would not be seen.
const THIN: f64 = 0.35;

/// Labels in a column of their own, and the lanes beside them.
pub fn figure(drawing: &Drawing, summary: &str) -> String {
    let height = HEAD + LANE * drawing.lanes.len() + FOOT;
    let mut svg = format!(
        r#"<svg role="img" aria-label="{}" width="100%" height="{height}">"#,
        text(summary)
    );
    ticks(drawing, height, &mut svg);
    overlaps(drawing, height, &mut svg);
    for (place, lane) in drawing.lanes.iter().enumerate() {
        draw_lane(drawing, lane, HEAD + LANE * place, &mut svg);
    }
    overlap_words(drawing, height, &mut svg);
    svg.push_str("</svg>");
    let labels = drawing
        .lanes
        .iter()
        .map(|lane| format!("<span>{}</span>", text(&lane.label)));
    format!(
        r#"<figure class="lanes"><div class="labels" aria-hidden="true">{}</div>{svg}</figure>"#,
        labels.collect::<String>()
    )
}

fn percent(drawing: &Drawing, ns: u64) -> f64 {
    let (from, to) = (drawing.from_ns as f64, drawing.to_ns as f64);
    ((ns as f64 - from) / (to - from).max(1.0)).clamp(0.0, 1.0) * 100.0
}

fn ticks(drawing: &Drawing, height: usize, svg: &mut String) {
    let bottom = height - FOOT;
    for (at, label) in axis(drawing.from_ns, drawing.to_ns, 6) {
        let x = percent(drawing, at);
        let _ = write!(
            svg,
            r#"<line class="tick" x1="{x:.2}%" x2="{x:.2}%" y1="{HEAD}" y2="{bottom}"/>"#
        );
        if x < 95.0 {
            let _ = write!(svg, r#"<text class="time" x="{x:.2}%" y="14">{label}</text>"#);
        }
    }
}

/// Whole steps of time, about `count` of them, with their labels.
pub fn axis(from_ns: u64, to_ns: u64, count: u64) -> Vec<(u64, String)> {
    let length = to_ns.saturating_sub(from_ns).max(1);
    let powers = (0..13).map(|power| 10_u64.pow(power));
    let steps = powers.flat_map(|power| [power, power * 2, power * 5]);
    let step = steps.into_iter().find(|step| length / step <= count).unwrap_or(length);
    let digits = match step {
        1_000_000_000.. => 0,
        100_000_000.. => 1,
        10_000_000.. => 2,
        1_000_000.. => 3,
        _ => 6,
    };
    let first = from_ns.div_ceil(step);
    let last = to_ns / step;
    let ticks = (first..=last).map(|number| number * step);
    ticks.map(|at| (at, format!("{:.digits$}s", at as f64 / 1e9))).collect()
}

/// Overlaps that would touch on the screen are one.
fn overlaps(drawing: &Drawing, height: usize, svg: &mut String) {
    let mut shown: Vec<(f64, f64)> = Vec::new();
    for (from, to) in &drawing.overlaps_ns {
        let (from, to) = (percent(drawing, *from), percent(drawing, *to));
        match shown.last_mut() {
            Some(last) if from - last.1 < THIN => last.1 = last.1.max(to),
            _ => shown.push((from, to)),
        }
    }
    let tall = height - HEAD - FOOT + 8;
    for (from, to) in shown {
        let width = (to - from).max(THIN);
        let _ = write!(
            svg,
            r#"<rect class="overlap" x="{from:.2}%" width="{width:.2}%" y="{HEAD}" height="{tall}"/>"#
        );
    }
}

fn overlap_words(drawing: &Drawing, height: usize, svg: &mut String) {
    let (Some(first), Some(last)) = (
        drawing.overlaps_ns.first(),
        drawing.overlaps_ns.iter().map(|overlap| overlap.1).max(),
    ) else {
        return;
    };
    let times = match drawing.overlaps_ns.len() {
        1 => String::new(),
        count => format!(", {count} times"),
    };
    let words = format!("both hold: {}{times}", stretch(first.0, last));
    let x = percent(drawing, first.0);
    // words are longer than most overlaps: they begin or end where there is more room
    let (x, anchor) = if percent(drawing, last) > 55.0 {
        (percent(drawing, last), "end")
    } else {
        (x, "start")
    };
    let y = height - 6;
    let _ = write!(
        svg,
        r#"<text class="both" text-anchor="{anchor}" x="{x:.2}%" y="{y}">{words}</text>"#
    );
}

fn draw_lane(drawing: &Drawing, lane: &Lane, top: usize, svg: &mut String) {
    let y = top + 4;
    let height = LANE - 8;
    let mut narrow: Option<(f64, f64)> = None;
    for bar in &lane.bars {
        let (from, to) = (percent(drawing, bar.from_ns), percent(drawing, bar.to_ns));
        if to - from < WORDY {
            // neighbours that would touch on the screen are one
            match &mut narrow {
                Some(last) if from - last.1 < THIN => last.1 = last.1.max(to),
                _ => {
                    narrow_bar(narrow.replace((from, to)), (y, height), bar.kind, svg);
                }
            }
            continue;
        }
        wide_bar(bar, (from, to), (y, height), svg);
    }
    let kind = lane.bars.first().map_or(BarKind::Hold, |bar| bar.kind);
    narrow_bar(narrow, (y, height), kind, svg);
    for mark in &lane.marks {
        let x = percent(drawing, mark.at_ns);
        let middle = top + LANE / 2;
        let (circle, number) = (middle + 4, mark.sentence);
        let _ = write!(
            svg,
            r#"<g class="mark s{number}"><circle cx="{x:.2}%" cy="{middle}" r="9"/><text x="{x:.2}%" y="{circle}">{number}</text></g>"#
        );
    }
}

fn class(kind: BarKind) -> &'static str {
    match kind {
        BarKind::Fault => "fault",
        BarKind::Hold => "hold",
    }
}

fn narrow_bar(bar: Option<(f64, f64)>, (y, height): (usize, usize), kind: BarKind, svg: &mut String) {
    if let Some((from, to)) = bar {
        let width = (to - from).max(THIN);
        let class = class(kind);
        let _ = write!(
            svg,
            r#"<rect class="{class}" x="{from:.2}%" width="{width:.2}%" y="{y}" height="{height}"/>"#
        );
    }
}

/// A bar with its words inside, cut off where it ends.
fn wide_bar(bar: &Bar, (from, to): (f64, f64), (y, height): (usize, usize), svg: &mut String) {
    let width = to - from;
    let class = class(bar.kind);
    let middle = height / 2 + 5;
    let words = text(&bar.text);
    let _ = write!(
        svg,
        r#"<svg x="{from:.2}%" y="{y}" width="{width:.2}%" height="{height}"><title>{words}</title><rect class="{class}" width="100%" height="100%"/><text class="in-{class}" x="14" y="{middle}">{words}</text></svg>"#
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_whole_steps_inside_its_stretch() {
        let labels: Vec<String> = axis(11_400_000_000, 16_200_000_000, 6)
            .into_iter()
            .map(|tick| tick.1)
            .collect();
        assert_eq!(labels, ["12s", "13s", "14s", "15s", "16s"]);
        let labels: Vec<String> = axis(1_000_000_000, 1_300_000_000, 6)
            .into_iter()
            .map(|tick| tick.1)
            .collect();
        assert_eq!(labels, ["1.00s", "1.05s", "1.10s", "1.15s", "1.20s", "1.25s", "1.30s"]);
    }
}
