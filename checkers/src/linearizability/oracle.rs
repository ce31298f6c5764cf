//! The oracle of linearizability: tries every order of a small history. Slow, simple, and independent of sweeps and searches.

use std::collections::HashSet;

use super::mutant::{Mutant, with};
use super::operations::{self, Operations};
use super::random::{LOCKS, REGISTERS, has_ties, is_coarse, random, show};
use super::register::{Register, RegisterOp};
use super::search::SearchLimits;
use super::search_run::search_in_turn;
use super::spec::{Operation, SequentialSpec, validate};
use super::specs::{LockOp, ManyOwners, OneOwner};
use super::{Decision, Searched, anonymous, decisions};
use crate::history::History;
use crate::history::event::Kind;
use crate::model::Model;
use crate::options::{Budget, Clock};

/// Returns the number of histories for each model, enough to detect each mutant many times over; `ORACLE_HISTORIES` sets a larger one.
fn histories() -> u64 {
    std::env::var("ORACLE_HISTORIES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8_000)
}

/// Returns whether some order of the operations is legal, by trying all in which each process keeps its own.
fn exists<S: SequentialSpec>(spec: &S, history: &History, all: &Operations<S::Op>) -> bool {
    let operations = &all.operations;
    let process = |place: usize| history.event(all.calls[place]).process;
    let own = |earlier: usize, later: usize| {
        let call = history.event(all.calls[earlier]);
        let replied = if call.kind == Kind::Signal {
            all.turns[earlier]
        } else {
            call.mate
        };
        let known = operations[earlier]
            .reply
            .is_some_and(|reply| reply <= operations[later].call);
        known && earlier != later && process(earlier) == process(later) && replied <= all.turns[later]
    };
    assert!(operations.len() <= 64, "the oracle is for small histories");
    let mut seen: HashSet<(u64, S::State)> = HashSet::new();
    let mut open = vec![(0u64, spec.initial())];
    let replied = (0..operations.len()).filter(|place| operations[*place].reply.is_some());
    let all: u64 = replied.map(|place| 1 << place).sum();
    while let Some((done, state)) = open.pop() {
        if done & all == all {
            return true;
        }
        if !seen.insert((done, state.clone())) {
            continue;
        }
        for (place, operation) in operations
            .iter()
            .enumerate()
            .filter(|(place, _)| done >> place & 1 == 0)
        {
            let must_wait = operations.iter().enumerate().any(|(other, earlier)| {
                let before = earlier.reply.is_some_and(|reply| reply < operation.call);
                done >> other & 1 == 0 && (before || own(other, place))
            });
            if !must_wait {
                open.extend(
                    spec.step(state.clone(), &operation.op)
                        .map(|next| (done | 1 << place, next)),
                );
            }
        }
    }
    false
}

fn limits() -> SearchLimits {
    (Budget::default(), Clock::still())
}

/// Returns the verdict of the oracle on each lock.
fn oracle(history: &History, model: &Model) -> Vec<bool> {
    if !model.is_lock() {
        let all = operations::registers(history, model);
        // Random values are 0, 1 and 2.
        let starts = match (model, model.start().flatten()) {
            (_, Some(start)) => vec![Some(start)],
            (Model::ExactCasRegister { .. }, None) => vec![None],
            _ => vec![None, Some(0), Some(1), Some(2)],
        };
        let legal = |all: &Operations<RegisterOp>| {
            starts
                .iter()
                .any(|start| exists(&Register { start: *start }, history, all))
        };
        return all.iter().map(legal).collect();
    }
    let all = operations::locks(history, model);
    let legal = |all: &Operations<LockOp>| match model {
        Model::ReadWrite | Model::Semaphore { .. } => exists(&ManyOwners::new(*model).without_hints(), history, all),
        _ => exists(&OneOwner::new(*model).without_hints(), history, all),
    };
    all.iter().map(legal).collect()
}

fn fast(history: &History, model: &Model) -> Vec<bool> {
    let (budget, clock) = limits();
    let decisions = decisions(history, model, budget, clock);
    let legal = |decision: &Decision| match decision {
        Decision::Legal => true,
        Decision::Illegal(_) => false,
        Decision::Unknown(reason) => panic!("undecided: {reason}"),
    };
    decisions.iter().map(legal).collect()
}

/// Returns the histories of a model on which the oracle and the sweep differ.
fn mismatches(model: Model, count: u64) -> impl Iterator<Item = u64> {
    (1..=count).filter(move |seed| {
        let history = random(*seed, model);
        !has_ties(&history) && oracle(&history, &model) != fast(&history, &model)
    })
}

/// Checks histories that were written for one model under another one: at least `least` percent of them must be illegal.
fn agrees(model: Model, written_for: Model, least: u64) {
    let mut illegal = 0;
    for seed in 1..=histories() {
        let history = random(seed, written_for);
        let (slow, quick) = (oracle(&history, &model), fast(&history, &model));
        assert_eq!(
            slow,
            quick,
            "seed {seed} under {model}: oracle against sweep\n{}",
            show(&history)
        );
        illegal += u64::from(slow.contains(&false));
    }
    let share = illegal * 100 / histories();
    assert!(
        (least..=95).contains(&share),
        "{share}% illegal: such histories prove little for {model}"
    );
}

#[test]
fn the_oracle_and_the_fast_paths_agree_on_every_lock_model() {
    LOCKS.into_iter().for_each(|model| agrees(model, model, 5));
}

/// A signal stands between the call and the answer of an acquire, all of one instant: a later answer is not lost by it.
#[test]
fn a_grant_that_is_told_after_a_loss_of_its_instant_goes_on() {
    let model = Model::Reentrant { limit: 2 };
    let history = random(23_869, model);
    assert_eq!(oracle(&history, &model), [false], "{}", show(&history));
    assert_eq!(fast(&history, &model), [false]);
}

/// Random histories of a semaphore have a number of permits for each acquire; those of a mutex have one each.
#[test]
fn the_oracle_and_the_fast_paths_agree_on_semaphores_of_single_permits() {
    for permits in 1..=3 {
        agrees(Model::Semaphore { permits }, Model::OwnerMutex, 1);
    }
}

#[test]
fn the_oracle_and_the_search_agree_on_registers() {
    REGISTERS.into_iter().for_each(|model| agrees(model, model, 5));
}

/// Compares searches by some forms of one specification with the oracle; every order found must be valid.
fn searches<S: SequentialSpec>(seed: u64, specs: [S; 2], history: &History, all: &Operations<S::Op>, legal: bool) {
    let operations = &all.operations;
    for spec in &specs {
        match search_in_turn(spec, operations, &all.predecessors(history), limits()) {
            Searched::Order(order) => {
                assert!(legal, "seed {seed}: the search found an order where there is none");
                assert_eq!(validate(spec, operations, &order), Ok(()), "seed {seed}");
            }
            Searched::NoOrder { blocked } => {
                assert!(!legal, "seed {seed}: the search found no order");
                assert!(
                    operations[blocked].reply.is_some(),
                    "seed {seed}: a blocked operation has a reply"
                );
            }
            Searched::Unknown { reason, .. } => panic!("seed {seed}: {reason}"),
        }
    }
}

#[test]
fn the_oracle_and_the_search_agree_with_and_without_hints() {
    for model in LOCKS {
        // The hints for locks need different times.
        for seed in (1..=histories() / 2).filter(|seed| !is_coarse(*seed)) {
            let history = random(seed, model);
            let all = operations::locks(&history, &model);
            let Some(operations) = all.first() else { continue };
            let legal = oracle(&history, &model).first() == Some(&true);
            if matches!(model, Model::ReadWrite | Model::Semaphore { .. }) {
                let spec = ManyOwners::new(model);
                searches(seed, [spec, spec.without_hints()], &history, operations, legal);
            } else {
                let spec = OneOwner::new(model);
                searches(seed, [spec, spec.without_hints()], &history, operations, legal);
            }
        }
    }
}

#[test]
fn a_plain_mutex_is_decided_as_the_oracle_does_and_its_order_is_one() {
    for seed in 1..=histories() / 2 {
        let history = random(seed, Model::Mutex);
        let all = operations::locks(&history, &Model::Mutex);
        let Some(all) = all.first() else { continue };
        let mutex = OneOwner::new(Model::Mutex).without_hints();
        let legal = exists(&mutex, &history, all);
        match anonymous::decide(&history, all, limits()) {
            Ok(order) => {
                let order: Vec<usize> = order.iter().map(|place| *place as usize).collect();
                assert!(legal, "seed {seed}");
                assert_eq!(validate(&mutex, &all.operations, &order), Ok(()), "seed {seed}");
            }
            Err(_) => assert!(!legal, "seed {seed}"),
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
        (Mutant::UnknownAcquireNeverHolds, Model::ExactTryLock),
        (Mutant::FreeTooSoon, Model::ExactTryLock),
        (Mutant::ContendersAreBlind, Model::TryLock),
        (Mutant::FreeTooSoon, Model::TryLock),
        (Mutant::OnlyWritersExclude, Model::ReadWrite),
        (Mutant::OnePermitMore, Model::Semaphore { permits: 2 }),
        (Mutant::DepthIsOne, Model::Reentrant { limit: 2 }),
        (Mutant::EqualTokens, Model::Fenced),
    ];
    for (mutant, model) in mutants {
        // the next ones would prove nothing more
        let caught = with(mutant, || mismatches(model, 20_000).take(3).count());
        assert_eq!(caught, 3, "{mutant:?} under {model}");
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
            let order = super::certificate::lock(&history, &model, &all, limits());
            let legal = fast(&history, &model).first() == Some(&true);
            let rank = |place: usize| order.as_ref()?.iter().position(|other| *other == place);
            for (place, first) in all.predecessors(&history).into_iter().enumerate() {
                let Some(first) = first else { continue };
                let in_turn = rank(place).is_none() || rank(first).is_some() && rank(first) < rank(place);
                assert!(in_turn, "seed {seed} under {model}: {place} goes before {first}");
            }
            let known = has_ties(&history) && order.is_some();
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
    let validate = |order: &[usize]| validate(&Register::default(), &operations, order);
    assert_eq!(validate(&[0, 1]), Ok(()));
    assert_eq!(validate(&[0]), Err(Invalid::Missing(1)));
    assert_eq!(validate(&[0, 0]), Err(Invalid::Unknown(0)));
    assert_eq!(validate(&[1, 0]), Err(Invalid::Illegal(1)));
    let late = [op(RegisterOp::Write(1), 2, 3), op(RegisterOp::Write(2), 0, 1)];
    assert_eq!(
        super::validate(&Register::default(), &late, &[0, 1]),
        Err(Invalid::OutOfTime(1))
    );
}
