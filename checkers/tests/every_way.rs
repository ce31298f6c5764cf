//! Each operation of this crate on one input: read it, judge it by every model, export it, read it again.
//!
//! The fuzz target and the replay of its corpus share it. It is not a test by itself.

use std::time::Duration;

use harness_checkers::{Budget, Clock, History, MODEL_NAMES, Options, ReadOptions, check, write_edn};

/// Runs all operations on one input. Panics only if this crate does.
pub fn every_way(data: &[u8]) {
    let keyed = ReadOptions {
        lock_key: Some("value".to_owned()),
        initial: Some("0".to_owned()),
    };
    for options in [ReadOptions::default(), keyed] {
        let Ok(history) = History::read(data, &options) else {
            continue;
        };
        judge(&history);
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).expect("memory can be written to");
        let _ = History::read(edn.as_slice(), &ReadOptions::default());
    }
}

fn judge(history: &History) {
    let budget = Budget {
        time: Duration::from_millis(200),
        memory: 1 << 20,
    };
    for model in MODEL_NAMES {
        let options = Options {
            model: Some(model.parse().expect("a name of the list")),
            budget,
            certificate: true,
            clock: Clock::default(),
            ..Options::default()
        };
        let found = check(history, &options);
        assert_eq!(found.findings.len(), harness_checkers::Property::ALL.len());
        serde_json::to_string(&found).expect("findings can be written");
    }
    let _ = (
        history.certain_holds(),
        history.windows(),
        history.phases(),
        history.clients(),
    );
}
