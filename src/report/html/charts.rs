//! Charts as static SVG: latencies, the queue, the herd. Scripts only move their time window.

use std::collections::BTreeSet;
use std::fmt::Write;

use harness_checkers::{Kind, Property, Verdict};
use maud::{Markup, html};

use super::drawing::percentage;
use super::sections::meter;
use crate::report::diagnosis::Diagnosis;
use crate::report::downsample::shown_windows;
use crate::report::timeline::Timeline;
use crate::report::words::{axis, many, span, thousands};

/// Columns and rows of the raster in which dots that would cover each other are drawn once.
const RASTER: (u64, u64) = (800, 90);
/// Maximum number of dots of one chart; the raster becomes coarser until they fit.
const MAX_DOTS: usize = 12_000;
/// Steps of the queue's line.
const MAX_STEPS: u64 = 1_000;
/// Units of a plot's height.
const TALL: f64 = 1000.0;

/// Returns the chart of the latencies of all answered acquires, on a logarithmic axis, with the active faults.
pub fn latency(diagnosis: &Diagnosis, timeline: &Timeline) -> Markup {
    let dots = timeline.turns.iter().filter_map(|turn| {
        let answered_ns = turn.answered?.ns;
        let took_ns = answered_ns.saturating_sub(turn.due_ns).max(1000);
        Some((answered_ns, took_ns, turn.answer?))
    });
    let dots: Vec<(u64, u64, Kind)> = dots.collect();
    let (Some(least), Some(most)) = (dots.iter().map(|dot| dot.1).min(), dots.iter().map(|dot| dot.1).max()) else {
        return html! {};
    };
    let (bottom, top) = (least.ilog10(), most.ilog10() + 1);
    let height = |ns: u64| TALL * (1.0 - ((ns as f64).log10() - f64::from(bottom)) / f64::from(top - bottom));
    let kinds = [
        (Kind::Ok, "ok", "acquired"),
        (Kind::Fail, "no", "not acquired"),
        (Kind::Info, "unknown", "unknown"),
    ];
    let kinds = kinds.map(|(answer, class, word)| {
        let of_it = dots.iter().filter(|dot| dot.2 == answer);
        let of_it: Vec<(u64, f64)> = of_it.map(|dot| (dot.0 / 1000, height(dot.1))).collect();
        (class, word, of_it)
    });
    let known = || kinds.iter().filter(|(.., of_it)| !of_it.is_empty());
    let plot = html! {
        @for (class, _, of_it) in known() { path class={ "dots " (class) } d=(raster(of_it, timeline.end_ns / 1000)) {} }
    };
    let legend = html! {
        @for (class, word, of_it) in known() {
            span class={ "key " (class) } { (word) " " (thousands(of_it.len() as u64)) }
        }
        " " span.quiet { "by the time of the answer; dots in the same place are drawn once" }
    };
    let decades = (bottom..=top).map(|power| {
        let ns = 10_u64.pow(power);
        let label = span(ns).replace(".0ms", "ms").replace(".00s", "s").replace(".0s", "s");
        (height(ns) / TALL * 100.0, label)
    });
    let rows: Vec<(f64, String)> = decades.collect();
    let title = match diagnosis.latency.late {
        0 => "Time from the call of an acquire to its answer",
        _ => "Time from the due time of an acquire to its answer",
    };
    chart("latency", title, diagnosis, timeline, (&plot, &rows, 190), &legend)
}

/// Returns one dot for each cell of a raster, at its exact position.
fn raster(dots: &[(u64, f64)], end_us: u64) -> String {
    let mut columns = RASTER.0;
    loop {
        let mut seen = BTreeSet::new();
        let cell = |(us, y): &&(u64, f64)| (us * columns / end_us.max(1), (y * RASTER.1 as f64 / TALL) as u64);
        let shown: Vec<&(u64, f64)> = dots.iter().filter(|dot| seen.insert(cell(dot))).collect();
        if shown.len() <= MAX_DOTS || columns <= 1 {
            let mut path = String::new();
            for (us, y) in shown {
                let _ = write!(path, "M{us} {y:.0}h0");
            }
            return path;
        }
        columns /= 2;
    }
}

/// Returns the chart of the number of waiters.
pub fn queue(diagnosis: &Diagnosis, timeline: &Timeline) -> Markup {
    let queue = timeline.queue();
    let Some(most) = queue.iter().map(|(_, waiting)| *waiting).max().filter(|most| *most > 0) else {
        return html! {};
    };
    // the maximum of the changes within one step
    let step = (timeline.end_ns / MAX_STEPS).max(1);
    let mut path = format!("M0 {TALL:.0}");
    let mut places = queue.iter().peekable();
    let mut last = 0;
    let height = |waiting: u64| TALL - TALL * waiting as f64 / most as f64;
    while let Some((ns, waiting)) = places.next() {
        let bucket = ns / step;
        let mut highest = (*waiting).max(last);
        last = *waiting;
        while let Some((_, more)) = places.next_if(|(ns, _)| ns / step == bucket) {
            highest = highest.max(*more);
            last = *more;
        }
        let us = ns / 1000;
        let _ = write!(path, "H{us}V{:.0}", height(highest));
        let _ = write!(path, "H{}V{:.0}", (bucket + 1) * step / 1000, height(last));
    }
    let _ = write!(path, "H{}V{TALL:.0}Z", timeline.end_ns / 1000);
    let rows = [(0.0, thousands(most)), (100.0, "0".to_owned())];
    let plot = html! { path.area d=(path) {} };
    let legend = html! { "at most " (many(most, "waiter")) " at once, on all locks" };
    let title = "Clients that waited for a lock";
    chart("queue", title, diagnosis, timeline, (&plot, &rows, 90), &legend)
}

/// Returns a plot over the run's time: labels of rows, bands of faults, ticks, and a window that scripts move.
fn chart(
    name: &str,
    title: &str,
    diagnosis: &Diagnosis,
    timeline: &Timeline,
    (plot, rows, height): (&Markup, &[(f64, String)], u32),
    legend: &Markup,
) -> Markup {
    let end_ns = timeline.end_ns.max(1);
    let percent = |ns: u64| ns as f64 / end_ns as f64 * 100.0;
    let top = |y: &f64| format!("{y:.1}%");
    let ticks = axis(0, end_ns, 10).into_iter().filter(|(at, _)| percent(*at) < 97.0);
    let (shown, windows) = (shown_windows(diagnosis), diagnosis.effect.windows.len());
    html! {
        h3 { (title) }
        figure.chart id=(name) {
            div.rows style={ "height:" (height) "px" } {
                @for (y, label) in rows { span style={ "top:" (top(y)) } { (label) } }
            }
            div {
                svg.plot role="img" aria-label=(title) width="100%" height=(height) {
                    @for (y, _) in rows { line.tick x1="0" x2="100%" y1=(top(y)) y2=(top(y)) {} }
                    @for window in &shown {
                        @let (from, to) = (window.start_ns, window.heal_ns.unwrap_or(end_ns));
                        rect.band data-from=(from / 1000) data-to=(to / 1000) x=(percentage(percent(from)))
                            width=(percentage(percent(to.saturating_sub(from)))) y="0" height="100%" {
                            title { (window.fault) " " (window.number) }
                        }
                    }
                    svg.window viewBox={ "0 0 " (end_ns / 1000) " " (TALL) } preserveAspectRatio="none" width="100%"
                        height="100%" { (plot) }
                }
                div.ticks {
                    @for (at, label) in ticks { span style={ "left:" (percentage(percent(at))) } { (label) } }
                }
            }
        }
        p.legend {
            (legend)
            @if shown.len() < windows {
                "; bands for " (thousands(shown.len() as u64)) " of " (many(windows as u64, "fault window"))
            }
        }
    }
}

/// Returns the chart of the waiters that one release woke, by the number of waiters.
pub fn herd(diagnosis: &Diagnosis) -> Markup {
    let Some(finding) = diagnosis.finding(Property::Hl004) else {
        return html! {};
    };
    let figures = finding.figures.iter().filter_map(|(name, woken)| {
        let waiters = name.strip_prefix("woken_at_")?.strip_suffix("_waiters")?;
        Some((waiters.parse().ok()?, *woken as u64))
    });
    let rows: Vec<(u64, u64)> = figures.collect();
    let Some(most) = rows.iter().map(|(waiters, woken)| *waiters.max(woken)).max() else {
        return html! { h3 { "Herd" } p.quiet { (finding.evidence) } };
    };
    let limit = finding.figures.get("limit").copied().unwrap_or(1.0);
    let violated = finding.verdict == Verdict::Violated;
    let is_over = |woken: u64| woken as f64 > limit;
    // above the limit without a violation: the reason is next to the chart
    let excused = !violated && rows.iter().any(|(_, woken)| is_over(*woken));
    html! {
        h3 { "Herd: the most waiters that one release woke, by number of waiters (limit " (limit) ")" }
        table.herd {
            tr { th { "waiters" } th.left { "woken" } }
            @for (waiters, woken) in &rows {
                @let class = match is_over(*woken) { true if violated => "over", true => "plain", false => "within" };
                tr { th { (waiters) } td { (meter(class, *woken as f64 / most as f64)) b { (woken) } } }
            }
        }
        @if excused { p.quiet { (finding.evidence) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::downsample::WINDOWS;
    use crate::report::test_diagnosis::diagnosis;

    #[test]
    fn a_chart_says_how_many_fault_windows_it_leaves_out() {
        let drawn = |windows| {
            let diagnosis = diagnosis("PASS", &[], &vec![("partition", true); windows]);
            let (plot, legend) = (html! {}, html! { "legend" });
            chart(
                "queue",
                "Queue",
                &diagnosis,
                &Timeline::default(),
                (&plot, &[], 90),
                &legend,
            )
            .into_string()
        };
        assert!(drawn(WINDOWS).contains(r#"<p class="legend">legend</p>"#));
        let many = drawn(3 * WINDOWS);
        let shown = many.matches("<rect").count();
        assert!(
            many.contains(&format!("legend; bands for {shown} of 1,500 fault windows</p>")),
            "{many}"
        );
    }
}
