//! Tests of the general search at the ends of its budgets, and with many operations in flight.

use std::time::Duration;

use super::done;
use harness_checkers::linearizability::{
    LockOp, OneOwner, Operation, Register, RegisterOp, Searched, search, validate,
};
use harness_checkers::{Budget, Clock, Mode, Model};

/// Writes of different values that all overlap, and then a read of something else.
fn hard(writes: u64) -> Vec<Operation<RegisterOp>> {
    let mut operations: Vec<_> = (0..writes)
        .map(|value| done(RegisterOp::Write(value), value, 100))
        .collect();
    operations.push(done(RegisterOp::Read(Some(1_000)), 50, 99));
    operations
}

#[test]
fn a_time_budget_that_ends_is_unknown_and_never_a_pass() {
    let budget = Budget {
        time: Duration::ZERO,
        ..Budget::default()
    };
    let found = search(&Register::default(), &hard(20), budget, Clock::default());
    assert!(
        matches!(found, Searched::Unknown { reason: "the time budget ended", configurations } if configurations > 0)
    );
}

#[test]
fn forgetting_failures_costs_time_and_no_verdict() {
    let small = Budget {
        memory: 100_000,
        ..Budget::default()
    };
    assert_eq!(
        search(&Register::default(), &hard(10), small, Clock::still()),
        Searched::NoOrder { blocked: 10 }
    );
}

#[test]
fn thousands_of_operations_in_flight_are_searched_and_more_are_unknown() {
    let reads = |count: u64| -> Vec<_> { (0..count).map(|at| done(RegisterOp::Read(None), at, 100_000)).collect() };
    let budget = Budget::default();
    for count in [64, 65, 129, 257, 1_025, 4_096] {
        let operations = reads(count);
        let Searched::Order(order) = search(&Register::default(), &operations, budget, Clock::still()) else {
            panic!("{count} reads have an order");
        };
        assert_eq!(validate(&Register::default(), &operations, &order), Ok(()));
    }
    assert!(matches!(
        search(&Register::default(), &reads(4_097), budget, Clock::still()),
        Searched::Unknown { .. }
    ));
}

#[test]
fn forty_unknown_operations_do_not_slow_the_search_down() {
    let acquire = |process| LockOp::Acquire {
        process,
        mode: Mode::Write,
        permits: 1,
        token: None,
        extends: false,
    };
    for model in [Model::Mutex, Model::OwnerMutex] {
        let mut operations: Vec<Operation<LockOp>> = Vec::new();
        for process in 0..40 {
            operations.push(Operation {
                op: acquire(100 + process),
                call: u64::from(process),
                reply: None,
            });
        }
        for round in 0..200u64 {
            let at = 100 + round * 10;
            operations.push(done(acquire(1), at, at + 1));
            operations.push(done(LockOp::Release { process: 1, permits: 1 }, at + 2, at + 3));
        }
        operations.push(done(acquire(2), 5_000, 5_001));
        let legal = search(&OneOwner::new(model), &operations, Budget::default(), Clock::still());
        assert!(matches!(legal, Searched::Order(_)), "{model}");
        operations.push(done(acquire(3), 5_002, 5_003));
        let double = search(&OneOwner::new(model), &operations, Budget::default(), Clock::still());
        assert_eq!(
            double,
            Searched::NoOrder {
                blocked: operations.len() - 1
            },
            "{model}"
        );
    }
}
