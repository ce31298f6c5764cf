//! Samples of pages: stored histories, and large ones that are generated here.

use harness::report::Diagnosis;
use harness_checkers::{History, ReadOptions};

use crate::screens::{diagnosis_of, history, rendered_as};

pub struct Sample {
    pub history: History,
    pub diagnosis: Diagnosis,
}

impl Sample {
    /// Returns a stored history.
    pub fn stored(name: &str) -> Self {
        Self::of(history(name))
    }

    fn of(history: History) -> Self {
        Self {
            diagnosis: diagnosis_of("sample", &history, None),
            history,
        }
    }

    fn of_lines(lines: &[String]) -> Self {
        Self::of(History::read(lines.join("\n").as_bytes(), &ReadOptions::default()).unwrap())
    }

    pub fn page(&self) -> String {
        rendered_as("html", &self.history, &self.diagnosis)
    }
}

/// Returns a history of `turns` acquires and releases by five clients in turn over 100 s, with a partition in the
/// middle. At the end two clients hold at once.
pub fn long(turns: u64) -> Sample {
    let mut lines = vec![r#"{"format":"harness-history","version":1,"locks":["l0"],"model":"mutex"}"#.to_owned()];
    let step = 100_000_000_000 / turns;
    for turn in 0..turns {
        let (client, at) = (turn % 5, turn * step);
        if turn == turns / 2 || turn == turns / 2 + turns / 100 {
            let phase = if turn == turns / 2 { "start" } else { "heal" };
            push(
                &mut lines,
                at,
                &format!(r#""process":"nemesis","type":"info","f":"partition","window":1,"phase":"{phase}""#),
            );
        }
        let token = 1000 + turn;
        // the last turn but one is released after the last one is granted
        let (got, end) = if turn + 1 == turns {
            (at - step / 2, at + step)
        } else {
            (at + step / 4, at + step * 3 / 4)
        };
        if turn + 1 == turns {
            lines.pop();
            lines.pop();
        }
        for (time, kind, f, token) in [
            (got - 100, "invoke", "acquire", None),
            (got, "ok", "acquire", Some(token)),
            (end, "invoke", "release", None),
            (end + 100, "ok", "release", None),
        ] {
            let token = token.map(|token| format!(r#","token":{token}"#)).unwrap_or_default();
            push(
                &mut lines,
                time,
                &format!(r#""process":{client},"type":"{kind}","f":"{f}","lock":"l0"{token}"#),
            );
        }
    }
    Sample::of_lines(&lines)
}

fn push(lines: &mut Vec<String>, time: u64, rest: &str) {
    let index = lines.len();
    lines.push(format!(r#"{{"index":{index},"time":{time},{rest}}}"#));
}

/// Returns a history of two clients that hold each of fifty locks in turn, and one of the locks both at once.
pub fn many_locks(at_once: usize) -> Sample {
    let names: Vec<String> = (0..50).map(|lock| format!("\"l{lock}\"")).collect();
    let head = format!(
        r#"{{"format":"harness-history","version":1,"locks":[{}],"model":"mutex"}}"#,
        names.join(",")
    );
    let mut lines = vec![head];
    for (lock, name) in names.iter().enumerate() {
        let from = lock as u64 * 1000;
        let second = if lock == at_once { from + 200 } else { from + 500 };
        let mut calls = Vec::new();
        for (process, got, end) in [(1, from + 100, from + 400), (2, second, second + 300)] {
            calls.extend([
                (got - 10, process, "invoke", "acquire"),
                (got, process, "ok", "acquire"),
                (end, process, "invoke", "release"),
                (end + 10, process, "ok", "release"),
            ]);
        }
        calls.sort_unstable();
        for (time, process, kind, f) in calls {
            let rest = format!(r#""process":{process},"type":"{kind}","f":"{f}","lock":{name}"#);
            push(&mut lines, time * 1_000_000, &rest);
        }
    }
    Sample::of_lines(&lines)
}
