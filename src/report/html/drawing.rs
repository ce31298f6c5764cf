//! A violation's drawing as static SVG. Positions are percentages, so it fits every width, and text keeps its size.

use maud::{Markup, html};

use super::text::tokens;
use crate::report::drawing::{Bar, BarKind, Drawing, DrawingLane};
use crate::report::words::axis;

/// Pixels of a lane, of the axis above all lanes and of the words under them.
const LANE: usize = 38;
const HEAD: usize = 22;
const FOOT: usize = 30;
/// Percent of the width below which a bar is too narrow for text.
const WORDY: f64 = 7.0;
/// Percent of the width below which a bar would be invisible.
const THIN: f64 = 0.35;

/// Returns the labels in a column of their own, and the lanes next to them. `common` are the digits with which all tokens begin.
pub fn figure(drawing: &Drawing, summary: &str, common: &str) -> Markup {
    let height = HEAD + LANE * drawing.lanes.len() + FOOT;
    html! {
        figure.lanes {
            div.labels aria-hidden="true" { @for lane in &drawing.lanes { span { (lane.label) } } }
            svg role="img" aria-label=(summary) width="100%" height=(height) {
                (ticks(drawing, height))
                (overlaps(drawing, height))
                @for (place, lane) in drawing.lanes.iter().enumerate() { (draw_lane(drawing, lane, HEAD + LANE * place, common)) }
                (overlap_words(drawing, height))
            }
        }
    }
}

/// Returns the position of a moment in the width of a drawing, in percent.
fn percent(drawing: &Drawing, ns: u64) -> f64 {
    drawing.place(ns) * 100.0
}

/// `12.34%`
pub fn percentage(percent: f64) -> String {
    format!("{percent:.2}%")
}

fn ticks(drawing: &Drawing, height: usize) -> Markup {
    html! {
        @for (at, label) in axis(drawing.from_ns, drawing.to_ns, 6) {
            @let x = percent(drawing, at);
            line.tick x1=(percentage(x)) x2=(percentage(x)) y1=(HEAD) y2=(height - FOOT) {}
            @if x < 95.0 { text.time x=(percentage(x)) y="14" { (label) } }
        }
    }
}

/// Draws overlaps; those that would touch on the screen are joined.
fn overlaps(drawing: &Drawing, height: usize) -> Markup {
    let mut shown: Vec<(f64, f64)> = Vec::new();
    for (from, to) in &drawing.overlaps_ns {
        let (from, to) = (percent(drawing, *from), percent(drawing, *to));
        match shown.last_mut() {
            Some(last) if from - last.1 < THIN => last.1 = last.1.max(to),
            _ => shown.push((from, to)),
        }
    }
    html! {
        @for (from, to) in shown {
            rect.overlap x=(percentage(from)) width=(percentage((to - from).max(THIN))) y=(HEAD) height=(height - HEAD - FOOT + 8) {}
        }
    }
}

fn overlap_words(drawing: &Drawing, height: usize) -> Markup {
    let Some((first, last, text)) = drawing.both_hold() else {
        return html! {};
    };
    // text is longer than most overlaps: it begins or ends where there is more room
    let (x, anchor) = match percent(drawing, last) {
        end if end > 55.0 => (end, "end"),
        _ => (percent(drawing, first), "start"),
    };
    let (from, to) = (percentage(percent(drawing, first)), percentage(percent(drawing, last)));
    html! {
        // a bracket connects the text with the overlap
        @let y = height - FOOT + 10;
        line.both x1=(from) x2=(to) y1=(y) y2=(y) {}
        @for x in [&from, &to] { line.both x1=(x) x2=(x) y1=(y - 4) y2=(y) {} }
        text.both text-anchor=(anchor) x=(percentage(x)) y=(height - 4) { (text) }
    }
}

fn draw_lane(drawing: &Drawing, lane: &DrawingLane, top: usize, common: &str) -> Markup {
    let place = (top + 4, LANE - 8);
    let (wide, narrow) = bars(drawing, lane);
    html! {
        @for (bar, extent) in wide { (wide_bar(bar, extent, place, common)) }
        @for (kind, (from, to)) in narrow {
            rect.(class(kind)) x=(percentage(from)) width=(percentage((to - from).max(THIN))) y=(place.0) height=(place.1) {}
        }
        @for mark in &lane.marks {
            @let x = percentage(percent(drawing, mark.at_ns));
            // at the edge of the lane, so that its bar stays visible
            g class={ "mark s" (mark.sentence) } {
                line x1=(x) x2=(x) y1=(top + 3) y2=(top + LANE - 3) {}
                circle cx=(x) cy=(top + 3) r="8" {}
                text x=(x) y=(top + 7) { (mark.sentence) }
            }
        }
    }
}

/// Bars that are wide enough for text, and stretches of narrow ones: neighbours that would touch on the screen are joined.
type Bars<'a> = (Vec<(&'a Bar, (f64, f64))>, Vec<(BarKind, (f64, f64))>);

fn bars<'a>(drawing: &Drawing, lane: &'a DrawingLane) -> Bars<'a> {
    let (mut wide, mut narrow): Bars<'a> = Bars::default();
    for bar in &lane.bars {
        let (from, to) = (percent(drawing, bar.from_ns), percent(drawing, bar.to_ns));
        match narrow.last_mut() {
            _ if to - from >= WORDY => wide.push((bar, (from, to))),
            Some((kind, last)) if *kind == bar.kind && from - last.1 < THIN => last.1 = last.1.max(to),
            _ => narrow.push((bar.kind, (from, to))),
        }
    }
    (wide, narrow)
}

fn class(kind: BarKind) -> &'static str {
    match kind {
        BarKind::Fault => "fault",
        BarKind::Hold => "hold",
        BarKind::Wait => "wait",
        BarKind::Owner => "owner",
    }
}

/// Draws a bar with its text, or with the brief part if the text does not fit. No number is cut.
fn wide_bar(bar: &Bar, (from, to): (f64, f64), (y, height): (usize, usize), common: &str) -> Markup {
    let class = class(bar.kind);
    let class_of = |name: &str, text: &str| {
        let room = ROOMS.into_iter().find(|room| *room >= width_of(text));
        room.map(|room| format!(" {name}{room}")).unwrap_or_default()
    };
    let rooms = class_of("room", &bar.text) + &class_of("least", &bar.brief);
    html! {
        svg x=(percentage(from)) y=(y) width=(percentage(to - from)) height=(height) {
            title { (bar.text) }
            rect.(class) width="100%" height="100%" {}
            foreignObject width="100%" height="100%" {
                div.words {
                    div class={ "in-bar in-" (class) (rooms) } {
                        span.full { (tokens(&bar.text, common)) }
                        span.brief { (tokens(&bar.brief, common)) }
                    }
                }
            }
        }
    }
}

/// Widths of bars, in pixels, by which the style sheet decides whether text fits.
const ROOMS: [usize; 8] = [60, 100, 140, 180, 240, 300, 380, 480];

/// Returns the rules of the style sheet: a bar that is narrower than its text has the brief part, and one that is too narrow for that has
/// none.
pub fn rules() -> String {
    let rule = |room: usize| {
        let narrower = format!("@container (max-width: {}px)", room - 1);
        let hidden = format!(".room{room} .full, .in-bar.least{room} .brief {{ display: none; }}");
        format!("{narrower} {{ {hidden} .room{room} .brief {{ display: inline; }} }}\n")
    };
    ROOMS.map(rule).concat()
}

/// Estimates the width of a text in a bar, in pixels.
fn width_of(text: &str) -> usize {
    text.chars().count() * 15 / 2 + 24
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_too_narrow_for_its_words_shows_no_part_of_a_token() {
        let longest = width_of(&format!("token {}", u64::MAX));
        let room = ROOMS.into_iter().find(|room| *room >= longest).unwrap();
        assert_eq!(room, 240);
        let rule = "@container (max-width: 239px) { .room240 .full, .in-bar.least240 .brief { display: none; } \
                    .room240 .brief { display: inline; } }";
        assert!(rules().lines().any(|line| line == rule), "{}", rules());
    }
}
