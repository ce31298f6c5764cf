//! Events of equal time, of which each process keeps its own order: histories that were judged wrongly once.

use crate::history::{History, ReadOptions};
use crate::model::Model;
use crate::options::Options;
use crate::{Property, Verdict, check};

/// Whether the holds of a history overlap, and whether its operations have an order.
fn verdicts(text: &str, model: Option<Model>) -> (Verdict, Verdict) {
    let history = History::read(text.as_bytes(), &ReadOptions::default()).expect("a history");
    let options = Options {
        model,
        ..Options::default()
    };
    let found = check(&history, &options);
    (found.of(Property::Hl001).verdict, found.of(Property::Hl002).verdict)
}

const ACQUIRED_AGAIN: &str = r#"{"format":"harness-history","version":1,"locks":["l0"]}
{"index":1,"time":700,"process":4,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":800,"process":4,"type":"ok","f":"acquire","lock":"l0"}
{"index":3,"time":850,"process":4,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":900,"process":4,"type":"ok","f":"acquire","lock":"l0"}
{"index":5,"time":900,"process":4,"type":"invoke","f":"release","lock":"l0"}
{"index":6,"time":990,"process":4,"type":"ok","f":"release","lock":"l0"}
"#;

#[test]
fn a_release_at_the_time_of_its_acquires_reply_does_not_go_before_it() {
    assert_eq!(verdicts(ACQUIRED_AGAIN, None).1, Verdict::Violated);
}

const LATE_LOSS_OF_ONE_LOCK: &str = r#"{"format":"harness-history","version":1,"locks":["l0","l1"],"lease_ms":900}
{"index":1,"time":20,"process":7,"type":"invoke","f":"acquire","lock":"l1"}
{"index":2,"time":40,"process":7,"type":"ok","f":"acquire","lock":"l1"}
{"index":3,"time":50,"process":7,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":80,"process":8,"type":"invoke","f":"acquire","lock":"l1"}
{"index":5,"time":95,"process":8,"type":"ok","f":"acquire","lock":"l1"}
{"index":6,"time":99,"process":7,"type":"ok","f":"acquire","lock":"l0"}
{"index":7,"time":90,"process":7,"type":"signal","f":"lost","lock":"l1"}
"#;

#[test]
fn a_late_loss_of_one_lock_does_not_wait_for_the_grant_of_another() {
    assert_eq!(verdicts(LATE_LOSS_OF_ONE_LOCK, None), (Verdict::Holds, Verdict::Holds));
}

#[test]
fn a_correct_lock_holds_at_every_resolution_of_its_clock() {
    let header = r#"{"format":"harness-history","version":1,"model":"read-write","locks":["l0"]}"#;
    for grain in [1, 10, 100, 1_000, 100_000] {
        let mut lines = vec![header.to_owned()];
        for (round, first) in (0..400u64).map(|round| (round, round * 20)) {
            let (reads, client) = (round % 3 > 0, round % 8);
            let mode = if reads { r#","mode":"read""# } else { "" };
            let steps = [
                ("invoke", "acquire"),
                ("ok", "acquire"),
                ("invoke", "release"),
                ("ok", "release"),
            ];
            for (step, (kind, f)) in steps.into_iter().enumerate() {
                let (index, time) = (first + step as u64, (first + step as u64 * 5) / grain * grain);
                lines.push(format!(
                    r#"{{"index":{index},"time":{time},"process":{client},"type":"{kind}","f":"{f}","lock":"l0"{mode}}}"#
                ));
            }
        }
        let verdicts = verdicts(&lines.join("\n"), None);
        assert_eq!(verdicts, (Verdict::Holds, Verdict::Holds), "{grain}");
    }
}

const SECOND_HOLDER_LOSES: &str = r#"{"format":"harness-history","version":1,"locks":["l0"]}
{"index":1,"time":10,"process":3,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":25,"process":3,"type":"ok","f":"acquire","lock":"l0"}
{"index":3,"time":31,"process":5,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":44,"process":5,"type":"ok","f":"acquire","lock":"l0"}
{"index":5,"time":60,"process":5,"type":"signal","f":"lost","lock":"l0"}
"#;

#[test]
fn the_loss_of_a_plain_mutex_frees_nothing_before_its_own_grant() {
    let (_, linearizable) = verdicts(SECOND_HOLDER_LOSES, Some(Model::Mutex));
    assert_eq!(linearizable, Verdict::Violated);
}
