//! Charts as static SVG: latencies, the queue, the herd. Scripts only move their window of time.

use std::collections::BTreeSet;
use std::fmt::Write;

use harness_checkers::{Property, Verdict};

use super::drawing::axis;
use super::text::text;
use crate::report::diagnosis::Diagnosis;
use crate::report::timeline::{Answer, Timeline};
use crate::report::words::{many, span, thousands};

/// Columns and rows of the raster in which dots that would lie on one another are drawn once.
const RASTER: (u64, u64) = (800, 90);
/// Dots of one chart; a coarser raster is taken until they are no more.
const MAX_DOTS: usize = 12_000;
/// Steps of the queue's line.
const MAX_STEPS: u64 = 1_000;
/// Units of a plot's height.
const TALL: f64 = 1000.0;

/// Latencies of all acquires that were answered, on a logarithmic axis, under the faults that were on.
pub fn latency(diagnosis: &Diagnosis, timeline: &Timeline) -> String {
    let dots: Vec<(u64, u64, Answer)> = timeline
        .turns
        .iter()
        .filter_map(|turn| {
            let answered = turn.answered?;
            Some((
                answered.ns,
                answered.ns.saturating_sub(turn.asked.ns).max(1000),
                turn.answer,
            ))
        })
        .collect();
    let (Some(least), Some(most)) = (dots.iter().map(|dot| dot.1).min(), dots.iter().map(|dot| dot.1).max()) else {
        return String::new();
    };
    let (bottom, top) = (least.ilog10(), most.ilog10() + 1);
    let height = |ns: u64| TALL * (1.0 - ((ns as f64).log10() - f64::from(bottom)) / f64::from(top - bottom));
    let mut plot = String::new();
    let mut legend = String::new();
    for (answer, class, word) in [
        (Answer::Ok, "ok", "acquired"),
        (Answer::No, "no", "surely not acquired"),
        (Answer::Unknown, "unknown", "nobody can know"),
    ] {
        let of_it: Vec<(u64, f64)> = dots
            .iter()
            .filter(|dot| dot.2 == answer)
            .map(|dot| (dot.0 / 1000, height(dot.1)))
            .collect();
        if of_it.is_empty() {
            continue;
        }
        let _ = write!(
            legend,
            r#"<span class="key {class}">{}</span>"#,
            text(&format!("{word} {}", thousands(of_it.len() as u64)))
        );
        let _ = write!(
            plot,
            r#"<path class="dots {class}" d="{}"/>"#,
            raster(&of_it, timeline.end_ns / 1000)
        );
    }
    let decades = (bottom..=top).map(|power| {
        let ns = 10_u64.pow(power);
        (
            height(ns) / TALL * 100.0,
            span(ns).replace(".0ms", "ms").replace(".00s", "s").replace(".0s", "s"),
        )
    });
    let rows: Vec<(f64, String)> = decades.collect();
    let legend = format!(
        "{legend} <span class=\"quiet\">by the time of the answer; dots that would lie on one another are drawn once</span>"
    );
    chart(
        "latency",
        "Time from the call of an acquire to its answer",
        diagnosis,
        timeline,
        (&plot, &rows, 190),
        &legend,
    )
}

/// One dot in each cell of a raster, exact in its place.
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

/// How many waited.
pub fn queue(diagnosis: &Diagnosis, timeline: &Timeline) -> String {
    let queue = timeline.queue();
    let Some(most) = queue.iter().map(|(_, waiting)| *waiting).max().filter(|most| *most > 0) else {
        return String::new();
    };
    // of the changes that fall into one step, the highest counts
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
    let plot = format!(r#"<path class="area" d="{path}"/>"#);
    let legend = text(&format!("at most {} at once, on all locks", many(most, "waiter")));
    chart(
        "queue",
        "Clients that waited for a lock",
        diagnosis,
        timeline,
        (&plot, &rows, 90),
        &legend,
    )
}

/// A plot over the run's time: labels of rows, bands of faults, ticks, and a window that scripts move.
fn chart(
    name: &str,
    title: &str,
    diagnosis: &Diagnosis,
    timeline: &Timeline,
    (plot, rows, height): (&str, &[(f64, String)], u32),
    legend: &str,
) -> String {
    let end_ns = timeline.end_ns.max(1);
    let percent = |ns: u64| ns as f64 / end_ns as f64 * 100.0;
    let mut labels = String::new();
    let mut lines = String::new();
    for (y, label) in rows {
        let _ = write!(labels, r#"<span style="top:{y:.1}%">{}</span>"#, text(label));
        let _ = write!(
            lines,
            r#"<line class="tick" x1="0" x2="100%" y1="{y:.1}%" y2="{y:.1}%"/>"#
        );
    }
    for window in &diagnosis.bite.windows {
        let (from, to) = (window.start_ns, window.heal_ns.unwrap_or(end_ns));
        let _ = write!(
            lines,
            r#"<rect class="band" data-from="{}" data-to="{}" x="{:.2}%" width="{:.2}%" y="0" height="100%"><title>{} {}</title></rect>"#,
            from / 1000,
            to / 1000,
            percent(from),
            percent(to.saturating_sub(from)),
            text(&window.fault),
            window.number
        );
    }
    let ticks = axis(0, end_ns, 10).into_iter().filter(|(at, _)| percent(*at) < 97.0);
    let ticks: String = ticks
        .map(|(at, label)| format!(r#"<span style="left:{:.2}%">{label}</span>"#, percent(at)))
        .collect();
    format!(
        r#"<h3>{title}</h3><figure class="chart" id="{name}"><div class="rows" style="height:{height}px">{labels}</div><div><svg class="plot" role="img" aria-label="{title}" width="100%" height="{height}">{lines}<svg class="window" viewBox="0 0 {} {TALL:.0}" preserveAspectRatio="none" width="100%" height="100%">{plot}</svg></svg><div class="ticks">{ticks}</div></div></figure><p class="legend">{legend}</p>"#,
        end_ns / 1000
    )
}

/// How many were woken by one release, by how many waited.
pub fn herd(diagnosis: &Diagnosis) -> String {
    let found = diagnosis
        .findings
        .iter()
        .find(|finding| finding.property == Property::Hl004);
    let Some(finding) = found else { return String::new() };
    let rows: Vec<(u64, u64)> = finding
        .figures
        .iter()
        .filter_map(|(name, woken)| {
            let waiters = name.strip_prefix("woken_at_")?.strip_suffix("_waiters")?;
            Some((waiters.parse().ok()?, *woken as u64))
        })
        .collect();
    let Some(most) = rows.iter().map(|(waiters, woken)| *waiters.max(woken)).max() else {
        return format!(r#"<h3>Herd</h3><p class="quiet">{}</p>"#, text(&finding.evidence));
    };
    let limit = finding.figures.get("limit").copied().unwrap_or(1.0);
    let violated = finding.verdict == Verdict::Violated;
    // more than the limit, and no herd: the reason belongs beside it
    let excused = !violated && rows.iter().any(|(_, woken)| *woken as f64 > limit);
    let why = if excused {
        format!(r#"<p class="quiet">{}</p>"#, text(&finding.evidence))
    } else {
        String::new()
    };
    let cells = rows.iter().map(|(waiters, woken)| {
        let over = if violated && *woken as f64 > limit { "over" } else { "within" };
        format!(
            r#"<tr><th>{waiters}</th><td><span class="meter {over}" style="width:{:.1}%"></span><b>{woken}</b></td></tr>"#,
            *woken as f64 / most as f64 * 90.0
        )
    });
    format!(
        r#"<h3>Herd: most that one release woke, by how many waited (limit {limit})</h3><table class="herd"><tr><th>waiters</th><th class="left">woken</th></tr>{}</table>{why}"#,
        cells.collect::<String>()
    )
}
