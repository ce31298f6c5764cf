//! Tests that the examples of the README work: a caller's own history and model.

use harness_checkers::linearizability::{Operation, Searched, SequentialSpec, search};
use harness_checkers::{
    Budget, Clock, Entry, F, Header, HistoryBuilder, Kind, Options, Process, Property, Verdict, check, check_property,
};

enum CounterOp {
    Add(i64),
    Read(i64),
}

struct Counter;

impl SequentialSpec for Counter {
    type Op = CounterOp;
    type State = i64;

    fn initial(&self) -> i64 {
        0
    }

    fn step(&self, state: i64, op: &CounterOp) -> Option<i64> {
        match op {
            CounterOp::Add(n) => Some(state + n),
            CounterOp::Read(value) => (*value == state).then_some(state),
        }
    }

    fn is_observer(&self, op: &CounterOp) -> bool {
        matches!(op, CounterOp::Read(_))
    }
}

fn counter(read: i64) -> Searched {
    let operations = [
        Operation {
            op: CounterOp::Add(2),
            call: 0,
            reply: None,
        },
        Operation {
            op: CounterOp::Read(read),
            call: 5,
            reply: Some(6),
        },
    ];
    search(&Counter, &operations, Budget::default(), Clock::default())
}

#[test]
fn a_model_of_ones_own_is_searched() {
    assert_eq!(counter(2), Searched::Order(vec![0, 1]));
    assert_eq!(counter(0), Searched::Order(vec![1]));
    assert_eq!(counter(3), Searched::NoOrder { blocked: 1 });
}

#[test]
fn a_history_of_ones_own_is_built_and_judged() {
    let header = Header::of_locks(["l0"]).with_model("fenced").with_lease_ms(2000);
    let mut builder = HistoryBuilder::new(header);
    builder
        .push(&Entry::new(1, 1_000, Process::Client(0), Kind::Invoke, F::Acquire))
        .unwrap();
    let reply = Entry {
        token: Some(41),
        ..Entry::new(2, 2_000, Process::Client(0), Kind::Ok, F::Acquire)
    };
    builder.push(&reply).unwrap();
    let history = builder.finish();
    let found = check(&history, &Options::default());
    assert_eq!(found.model, "fenced");
    assert_eq!(found.of(Property::MUTUAL_EXCLUSION).verdict, Verdict::Holds);
    let options = Options::still();
    let found = check(&history, &options);
    for property in Property::ALL {
        assert_eq!(check_property(&history, &options, property), *found.of(property));
    }
}
