//! The hit rate of a violation: hits in a number of runs, with the Wilson score interval.

use serde::{Deserialize, Serialize};

/// The normal quantile of an interval that contains the true rate in 95 of 100 cases.
const Z: f64 = 1.96;

/// The number of runs, and of those with the violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HitRate {
    pub hits: u32,
    pub runs: u32,
}

impl HitRate {
    /// Returns the 95 % Wilson score interval of the rate, from 0 to 1:
    /// <https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval>
    pub fn interval(self) -> (f64, f64) {
        if self.runs == 0 {
            return (0.0, 1.0);
        }
        let (hits, runs) = (f64::from(self.hits), f64::from(self.runs));
        let rate = hits / runs;
        let middle = rate + Z * Z / (2.0 * runs);
        let half = Z * (rate * (1.0 - rate) / runs + Z * Z / (4.0 * runs * runs)).sqrt();
        let scale = 1.0 + Z * Z / runs;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

/// `4 of 5 runs (38 % to 96 %)`
impl std::fmt::Display for HitRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = self.interval();
        let (hits, runs) = (self.hits, self.runs);
        let what = if runs == 1 { "run" } else { "runs" };
        write!(
            f,
            "{hits} of {runs} {what} ({:.0} % to {:.0} %)",
            low * 100.0,
            high * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // solved independently for |p - hits/runs| = Z * sqrt(p (1 - p) / runs)
        for (hits, runs, low, high) in [
            (4, 5, 0.3755, 0.9638),
            (0, 10, 0.0, 0.2775),
            (10, 10, 0.7225, 1.0),
            (1, 2, 0.0945, 0.9055),
        ] {
            let (from, to) = HitRate { hits, runs }.interval();
            assert!(
                (from - low).abs() < 1e-3 && (to - high).abs() < 1e-3,
                "{hits} of {runs}: {from} to {to}"
            );
        }
        assert_eq!(HitRate { hits: 0, runs: 0 }.interval(), (0.0, 1.0), "nothing is known");
        assert_eq!(HitRate { hits: 4, runs: 5 }.to_string(), "4 of 5 runs (38 % to 96 %)");
    }
}
