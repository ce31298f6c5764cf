//! The oracle: tries every order of a small history. Slow, simple, and knows nothing of sweeps and searches.

use std::collections::HashSet;

use super::mutant::{Mutant, with};
use super::operations::{self, Operations};
use super::random::{LOCKS, is_coarse, random, show};
use super::register::{Register, RegisterOp};
use super::spec::{Operation, SequentialSpec, validate};
use super::specs::{LockOp, ManyOwners, OneOwner};
use super::{Decision, Searched, anonymous, decisions, search};
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock};

/// Histories for each model, many enough to catch each mutant many times over; `ORACLE_HISTORIES` asks for more.
fn histories() -> u64 {
    std::env::var("ORACLE_HISTORIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8_000)
}

/// Whether some order of the operations is legal, by trying all.
fn exists<S: SequentialSpec>(spec: &S, operations: &[Operation<S::Op>]) -> bool {
    assert!(operations.len() <= 64, "the oracle is for small histories");
    let mut seen: HashSet<(u64, S::State)> = HashSet::new();
    let mut open = vec![(0u64, spec.initial())];
    let replied = (0..operations.len()).filter(|place| operations[*place].reply.is_some());
    let all: u64 = replied.map(|place| 1 << place).sum();
    while let Some((done, state)) = open.pop() {
        if done & all == all {
            return true;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        for (place, operation) in operations
            .iter()
            .enumerate()
            .filter(|(place, _)| done >> place & 1 == 0)
        {
            let must_wait = operations.iter().enumerate().any(|(other, earlier)| {
                done >> other & 1 == 0 && earlier.reply.is_some_and(|reply| reply < operation.call)
            });
            if !must_wait {
                open.extend(spec.step(state, &operation.op).map(|next| (done | 1 << place, next)));
            }
        }
    }
    false
}

fn budget() -> Budget {
    Budget::default()
}

/// What the oracle says of a history, lock by lock.
fn oracle(history: &History, model: &Model) -> Vec<bool> {
    if !model.is_lock() {
        let all = operations::registers(history);
        return all.iter().map(|all| exists(&Register, &all.operations)).collect();
    }
    let all = operations::locks(history, model);
    let legal = |all: &Operations<LockOp>| match model {
        Model::ReadWrite | Model::Semaphore { .. } => exists(&ManyOwners::new(*model).without_hints(), &all.operations),
        _ => exists(&OneOwner::new(*model).without_hints(), &all.operations),
    };
    all.iter().map(legal).collect()
}

fn fast(history: &History, model: &Model) -> Vec<bool> {
    let decisions = decisions(history, model, budget(), Clock::still());
    let legal = |decision: &Decision| match decision {
        Decision::Legal => true,
        Decision::Illegal(_) => false,
        Decision::Unknown(reason) => panic!("undecided: {reason}"),
    };
    decisions.iter().map(legal).collect()
}

fn mismatches(model: Model, count: u64) -> u64 {
    (1..=count)
        .filter(|seed| {
            let history = random(*seed, model);
            !operations::has_ties(&history) && oracle(&history, &model) != fast(&history, &model)
        })
        .count() as u64
}

fn agrees(model: Model) {
    let mut illegal = 0;
    for seed in 1..=histories() {
        let history = random(seed, model);
        let (slow, quick) = (oracle(&history, &model), fast(&history, &model));
        // Of equal times, this oracle does not know each process's own order, by which fewer histories are legal; see
        // `equal_times` for those.
        let each = || slow.iter().zip(&quick);
        let agree = slow == quick
            || operations::has_ties(&history) && model.is_lock() && each().all(|(slow, quick)| *slow || !quick);
        assert!(
            agree,
            "seed {seed} under {model}: oracle {slow:?} against sweep {quick:?}\n{}",
            show(&history)
        );
        illegal += u64::from(slow.contains(&false));
    }
    let share = illegal * 100 / histories();
    assert!(
        (5..=95).contains(&share),
        "{share}% illegal: such histories prove little for {model}"
    );
}

#[test]
fn the_oracle_and_the_fast_paths_agree_on_every_lock_model() {
    LOCKS.into_iter().for_each(agrees);
}

#[test]
fn the_oracle_and_the_search_agree_on_registers() {
    [Model::Register, Model::CasRegister].into_iter().for_each(agrees);
}

/// Search with and without hints against the oracle; every order found must stand the validator's test.
fn searches<S: SequentialSpec>(seed: u64, spec: &S, operations: &[Operation<S::Op>], legal: bool) {
    match search(spec, operations, budget(), Clock::still()) {
        Searched::Order(order) => {
            assert!(legal, "seed {seed}: the search found an order where there is none");
            assert_eq!(validate(spec, operations, &order), Ok(()), "seed {seed}");
        }
        Searched::NoOrder { blocked } => {
            assert!(!legal, "seed {seed}: the search found no order");
            let until = operations[blocked].reply.expect("a blocked operation has a reply");
            let cut = |reply: u64| {
                let before = operations.iter().filter(move |operation| operation.call <= reply);
                before.map(move |operation| (operation.call, operation.reply.filter(|r| *r <= reply)))
            };
            assert!(cut(until).count() > 0, "seed {seed}");
        }
        Searched::Unknown { reason, .. } => panic!("seed {seed}: {reason}"),
    }
}

#[test]
fn the_oracle_and_the_search_agree_with_and_without_hints() {
    for model in LOCKS {
        // What hints say of locks rests on different times.
        for seed in (1..=histories() / 2).filter(|seed| !is_coarse(*seed)) {
            let history = random(seed, model);
            let all = operations::locks(&history, &model);
            let Some(Operations { operations, .. }) = all.first() else {
                continue;
            };
            let legal = oracle(&history, &model).first() == Some(&true);
            if matches!(model, Model::ReadWrite | Model::Semaphore { .. }) {
                searches(seed, &ManyOwners::new(model), operations, legal);
                searches(seed, &ManyOwners::new(model).without_hints(), operations, legal);
            } else {
                searches(seed, &OneOwner::new(model), operations, legal);
                searches(seed, &OneOwner::new(model).without_hints(), operations, legal);
            }
        }
    }
}

#[test]
fn anonymous_permits_are_decided_as_the_oracle_does() {
    for permits in 1..=3u64 {
        let model = Model::Mutex;
        for seed in 1..=histories() / 2 {
            let history = random(seed, model);
            let all = operations::locks(&history, &model);
            let Some(Operations { operations, .. }) = all.first() else {
                continue;
            };
            let counter = PermitCounter(permits);
            let legal = exists(&counter, operations);
            match anonymous::decide(operations, permits) {
                Ok(order) => {
                    let order: Vec<usize> = order.iter().map(|place| *place as usize).collect();
                    assert!(legal, "seed {seed}");
                    assert_eq!(validate(&counter, operations, &order), Ok(()), "seed {seed}");
                }
                Err(_) => assert!(!legal, "seed {seed} with {permits} permits"),
            }
        }
    }
}

struct PermitCounter(u64);

impl SequentialSpec for PermitCounter {
    type Op = LockOp;
    type State = u64;

    fn initial(&self) -> u64 {
        0
    }

    fn step(&self, state: u64, op: &LockOp) -> Option<u64> {
        match op {
            LockOp::Acquire { .. } => (state < self.0).then_some(state + 1),
            _ => state.checked_sub(1),
        }
    }
}

#[test]
fn every_mutant_of_the_sweeps_is_caught() {
    let mutants = [
        (Mutant::ReplyEnds, Model::OwnerMutex),
        (Mutant::UnknownReleaseKeeps, Model::OwnerMutex),
        (Mutant::FailedReleaseKeeps, Model::OwnerMutex),
        (Mutant::LostIgnored, Model::Election),
        (Mutant::UnknownAcquireNeverHolds, Model::TryLock),
        (Mutant::FreeTooSoon, Model::TryLock),
        (Mutant::OnlyWritersExclude, Model::ReadWrite),
        (Mutant::OnePermitMore, Model::Semaphore { permits: 2 }),
        (Mutant::DepthIsOne, Model::Reentrant { limit: 2 }),
        (Mutant::EqualTokens, Model::Fenced),
    ];
    for (mutant, model) in mutants {
        let caught = with(mutant, || mismatches(model, 20_000));
        assert!(caught >= 3, "{mutant:?} under {model} is caught {caught} times");
    }
}

#[test]
fn a_certificate_is_found_for_every_legal_lock_history() {
    for model in LOCKS {
        for seed in 1..=500 {
            let history = random(seed, model);
            let Some(all) = operations::locks(&history, &model).into_iter().next() else {
                continue;
            };
            let order = super::certificate::lock(&model, &all.operations, budget(), Clock::still());
            let legal = fast(&history, &model).first() == Some(&true);
            let known = operations::has_ties(&history) && order.is_some();
            assert!(known || order.is_some() == legal, "seed {seed} under {model}");
        }
    }
}

#[test]
fn a_validator_refuses_what_is_no_proof() {
    use super::Invalid;
    let op = |op, call, reply| Operation {
        op,
        call,
        reply: Some(reply),
    };
    let operations = [op(RegisterOp::Write(1), 0, 1), op(RegisterOp::Read(Some(1)), 2, 3)];
    let validate = |order: &[usize]| validate(&Register, &operations, order);
    assert_eq!(validate(&[0, 1]), Ok(()));
    assert_eq!(validate(&[0]), Err(Invalid::Missing(1)));
    assert_eq!(validate(&[0, 0]), Err(Invalid::Unknown(0)));
    assert_eq!(validate(&[1, 0]), Err(Invalid::Illegal(1)));
    let late = [op(RegisterOp::Write(1), 2, 3), op(RegisterOp::Write(2), 0, 1)];
    assert_eq!(super::validate(&Register, &late, &[0, 1]), Err(Invalid::OutOfTime(1)));
}
