//! Times in which the machine was overloaded: processes waited for a processor for most of the time, so the inaction of a lock is little
//! evidence.

use super::History;
use super::nemesis::NemesisFact;
use crate::limits;

/// The precision of the load: one second.
const ABOUT_NS: u64 = 1_000_000_000;

/// A span of overload, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BusySpan {
    from_ns: u64,
    to_ns: u64,
    /// The load as a multiple of [`limits::PROCESSES_BORNE`]; more than one.
    times: f64,
}

/// The spans of overload, by time, disjoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BusyTime(Vec<BusySpan>);

impl BusyTime {
    pub(crate) fn of(history: &History) -> Self {
        let mut spans: Vec<BusySpan> = Vec::new();
        for line in history.nemesis() {
            let NemesisFact::Busy {
                lasted_ms,
                per_processor,
            } = line.fact
            else {
                continue;
            };
            let to_ns = line.time_ns;
            let before = spans.last().map_or(0, |span| span.to_ns);
            let from_ns = to_ns.saturating_sub(lasted_ms.saturating_mul(1_000_000)).max(before);
            let times = per_processor / limits::PROCESSES_BORNE;
            if from_ns < to_ns && times > 1.0 {
                spans.push(BusySpan { from_ns, to_ns, times });
            }
        }
        Self(spans)
    }

    /// Returns the part of an interval that counts, in nanoseconds: all of it without overload, a third of a span with three times the load
    /// that is borne.
    pub(crate) fn counted_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let length = to_ns.saturating_sub(from_ns);
        let lost = self
            .within(from_ns, to_ns)
            .map(|(ns, times)| ns as f64 * (1.0 - 1.0 / times));
        length.saturating_sub(lost.sum::<f64>() as u64)
    }

    /// Returns the factor by which a process may be slower than usual about a time; 1 without overload.
    pub(crate) fn times_about(&self, ns: u64) -> f64 {
        let about = self.within(ns.saturating_sub(ABOUT_NS), ns.saturating_add(ABOUT_NS));
        about.map(|(_, times)| times).fold(1.0, f64::max)
    }

    fn within(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (u64, f64)> {
        let first = self.0.partition_point(|span| span.to_ns <= from_ns);
        let spans = self.0[first..].iter().take_while(move |span| span.from_ns < to_ns);
        spans.map(move |span| {
            (
                span.to_ns.min(to_ns).saturating_sub(span.from_ns.max(from_ns)),
                span.times,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ReadOptions;

    const SECOND: u64 = 1_000_000_000;

    fn busy(lines: &[(u64, u64, f64)]) -> BusyTime {
        let mut text = r#"{"format":"harness-history","version":1,"locks":["l0"]}"#.to_owned();
        for (index, (time, lasted_ms, per_processor)) in (1..).zip(lines) {
            text += &format!(
                "\n{{\"index\":{index},\"time\":{time},\"process\":\"nemesis\",\"type\":\"info\",\"f\":\"busy\",\"phase\":\"over\",\
                 \"lasted_ms\":{lasted_ms},\"per_processor\":{per_processor}}}"
            );
        }
        BusyTime::of(&History::read(text.as_bytes(), &ReadOptions::default()).unwrap())
    }

    #[test]
    fn time_on_a_machine_with_too_much_to_do_counts_for_less() {
        let busy = busy(&[
            (5 * SECOND, 1000, 24.0),
            (6 * SECOND, 1000, 12.0),
            (9 * SECOND, 1000, 5.9),
        ]);
        assert_eq!(busy.counted_ns(0, 4 * SECOND), 4 * SECOND);
        assert_eq!(busy.counted_ns(4 * SECOND, 5 * SECOND), SECOND / 4);
        assert_eq!(
            busy.counted_ns(3 * SECOND, 7 * SECOND),
            2 * SECOND + SECOND / 4 + SECOND / 2
        );
        let half = 4 * SECOND + SECOND / 2;
        assert_eq!(busy.counted_ns(half, half + SECOND), SECOND / 8 + SECOND / 4);
        assert_eq!(busy.times_about(2 * SECOND + SECOND / 2), 1.0);
        assert_eq!(busy.times_about(3 * SECOND + SECOND / 2), 4.0);
        assert_eq!(busy.times_about(6 * SECOND + SECOND / 2), 2.0);
        assert_eq!(busy.counted_ns(8 * SECOND, 10 * SECOND), 2 * SECOND, "that is borne");
    }
}
