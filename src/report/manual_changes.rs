//! Manual changes: those through the proxy's API during a run. They are no faults of the plan, and are reported.

use harness_checkers::History;
use harness_checkers::history::NemesisFact;

use super::words::{many, moment};

/// Maximum number of them in a note.
const SHOWN: usize = 5;

/// Returns a note on all of them, if there are any.
pub fn manual_changes(history: &History) -> Option<String> {
    let lines = history.nemesis();
    let changes = lines.iter().filter_map(|line| match &line.fact {
        NemesisFact::ProxyChange(change) => {
            let toxic = change.toxic.as_ref().and_then(|toxic| toxic.get("name")?.as_str());
            let toxic = toxic.map(|toxic| format!(" ({toxic})")).unwrap_or_default();
            let (proxy, did, at) = (&change.proxy, &change.did, moment(line.time_ns));
            Some(format!("{proxy} {did}{toxic} at {at}"))
        }
        _ => None,
    });
    let changes: Vec<String> = changes.collect();
    let more = match changes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let shown = changes[..changes.len().min(SHOWN)].join(", ");
    let count = many(changes.len() as u64, "manual change");
    (!changes.is_empty()).then(|| format!("{count} came through the proxy's API and not from the plan: {shown}{more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    fn history(changes: u64) -> History {
        let change = r#""process":"nemesis","type":"info","f":"proxy-api","phase":"change","proxy":"c0->n1","did":"toxic put on","toxic":{"name":"latency_downstream"}"#;
        history_of((1..=changes).map(|second| (second * 1_000_000_000, change)))
    }

    #[test]
    fn every_change_is_reported_and_none_is_a_window_of_the_plan() {
        assert_eq!(manual_changes(&history(0)), None);
        let told = manual_changes(&history(1)).unwrap();
        let change = "c0->n1 toxic put on (latency_downstream) at 1.00s";
        assert!(told.contains(change), "{told}");
        assert!(manual_changes(&history(7)).unwrap().contains("7 manual changes came"));
        assert!(manual_changes(&history(7)).unwrap().ends_with("and 2 more"));
        assert!(history(1).windows().is_empty());
    }
}
