//! What somebody did to the network through the proxy's API while a run was on: no fault of the plan, and said all the same.

use harness_checkers::History;
use serde_json::Value;

use super::words::{many, moment};

/// How many of them a note tells one by one.
const TOLD: usize = 5;

/// A note on all that was done, if anything was.
pub fn pokes(history: &History) -> Option<String> {
    let lines = history.nemesis();
    let pokes: Vec<String> = lines
        .iter()
        .filter(|line| line.name == "proxy-api")
        .map(|line| {
            let text = |name: &str| line.fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let toxic = line.fields.get("toxic").and_then(|toxic| toxic["name"].as_str());
            let toxic = toxic.map(|toxic| format!(" ({toxic})")).unwrap_or_default();
            format!("{} {}{toxic} at {}", text("proxy"), text("did"), moment(line.time_ns))
        })
        .collect();
    let more = match pokes.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let told = pokes[..pokes.len().min(TOLD)].join(", ");
    let times = many(pokes.len() as u64, "change");
    (!pokes.is_empty()).then(|| format!("{times} came through the proxy's API, beside the plan: {told}{more}"))
}

#[cfg(test)]
mod tests {
    use harness_checkers::ReadOptions;

    use super::*;

    fn history(pokes: usize) -> History {
        let mut lines = vec![r#"{"format":"harness-history","version":1,"locks":["l0"]}"#.to_owned()];
        for index in 1..=pokes {
            lines.push(format!(
                r#"{{"index":{index},"time":{index}000000000,"process":"nemesis","type":"info","f":"proxy-api","phase":"poke","proxy":"c0->n1","did":"toxic put on","toxic":{{"name":"latency_downstream"}}}}"#
            ));
        }
        History::read(lines.join("\n").as_bytes(), &ReadOptions::default()).unwrap()
    }

    #[test]
    fn every_poke_is_told_and_none_is_a_window_of_the_plan() {
        assert_eq!(pokes(&history(0)), None);
        let told = pokes(&history(1)).unwrap();
        assert!(
            told.contains("c0->n1 toxic put on (latency_downstream) at 1.00s"),
            "{told}"
        );
        assert!(pokes(&history(7)).unwrap().contains("7 changes came"));
        assert!(pokes(&history(7)).unwrap().ends_with("and 2 more"));
        assert!(history(1).windows().is_empty());
    }
}
