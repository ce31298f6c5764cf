//! What the experiments of a hunt have struck together: each message that clients sent, in each state of the client, by each
//! fault on messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::faults::ON_MESSAGES;
use crate::report::coverage::Coverage;

/// Messages in the states of their senders, as arguments of a fault: `create:waiter`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HuntCoverage(BTreeMap<String, HuntPoint>);

/// One message in one state of its sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct HuntPoint {
    passed: u64,
    /// How often each fault struck it.
    strikes: BTreeMap<String, u64>,
}

impl HuntCoverage {
    /// Adds what one experiment covers.
    pub fn add(&mut self, coverage: &Coverage) {
        for covered in &coverage.messages.points {
            let Some(argument) = &covered.argument else { continue };
            let point = self.0.entry(argument.clone()).or_default();
            point.passed += covered.passed.unwrap_or(0);
            for (fault, strikes) in &covered.strikes {
                *point.strikes.entry(fault.clone()).or_default() += strikes.times;
            }
        }
    }

    /// Every fault on every message, as it is typed; empty while no message is known.
    pub fn faults(&self) -> Vec<String> {
        self.cells()
            .map(|(fault, point, _)| format!("{fault}={point}"))
            .collect()
    }

    /// Those that have struck the least.
    pub fn least_struck(&self) -> Vec<String> {
        let least = self.cells().map(|(.., times)| times).min().unwrap_or(0);
        let cells = self.cells().filter(|(.., times)| *times == least);
        cells.map(|(fault, point, _)| format!("{fault}={point}")).collect()
    }

    /// How many of all were struck, and how many there are.
    pub fn struck(&self) -> (u64, u64) {
        let struck = self.cells().filter(|(.., times)| *times > 0).count();
        (struck as u64, self.cells().count() as u64)
    }

    fn cells(&self) -> impl Iterator<Item = (&'static str, &str, u64)> {
        self.0.iter().flat_map(|(name, point)| {
            ON_MESSAGES.iter().map(move |fault| {
                let times = point.strikes.get(*fault).copied().unwrap_or(0);
                (*fault, name.as_str(), times)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(point: &str, strikes: &[(&str, u64)]) -> Coverage {
        serde_json::from_value(serde_json::json!({
            "messages": {"faults": [], "points": [{
                "point": "in words",
                "argument": point,
                "passed": 9,
                "strikes": strikes.iter().map(|(fault, times)| ((*fault).to_owned(), serde_json::json!({"times": times, "noticed": 0})))
                    .collect::<serde_json::Map<_, _>>(),
            }]},
            "clients": {"faults": [], "points": []},
            "servers": {"faults": [], "points": []},
            "in_vain": 0,
        }))
        .unwrap()
    }

    #[test]
    fn what_was_struck_the_least_comes_next() {
        let mut coverage = HuntCoverage::default();
        assert!(coverage.faults().is_empty() && coverage.least_struck().is_empty());
        coverage.add(&experiment("SET:waiter", &[("drop-reply", 2)]));
        coverage.add(&experiment("EVAL:releaser", &[]));
        assert_eq!(coverage.struck(), (1, 10));
        assert_eq!(coverage.faults().len(), 10);
        let least = coverage.least_struck();
        assert!(
            least.len() == 9 && !least.contains(&"drop-reply=SET:waiter".to_owned()),
            "{least:?}"
        );
        for fault in ON_MESSAGES {
            coverage.add(&experiment("EVAL:releaser", &[(fault, 1)]));
            coverage.add(&experiment("SET:waiter", &[(fault, 1)]));
        }
        assert_eq!(coverage.struck(), (10, 10));
        assert_eq!(coverage.least_struck().len(), 9, "one was struck three times");
    }
}
