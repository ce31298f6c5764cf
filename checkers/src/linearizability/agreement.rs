//! Sweeps, searches and certificates against each other on random histories, and mutants of the sweeps, which the oracle of
//! `tests/independent.rs` must notice.

#[path = "../../tests/independent/orders.rs"]
mod orders;

use super::mutant::{Mutant, with};
use super::operations::{self, Operations};
use super::random::{LOCKS, chance, has_ties, is_coarse, random};
use super::register::{Register, RegisterOp};
use super::search::SearchLimits;
use super::search_run::search_in_turn;
use super::spec::{Operation, SequentialSpec, validate};
use super::specs::{ManyOwners, OneOwner};
use super::{Decision, Searched, decisions};
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock};

/// Histories for each model; `AGREEMENT_HISTORIES` asks for more.
fn histories() -> u64 {
    chance::asked("AGREEMENT_HISTORIES", 4_000)
}

fn limits() -> SearchLimits {
    (Budget::default(), Clock::still())
}

/// Whether each lock of a history is linearizable, as it is decided.
fn decided(history: &History, model: Model) -> Vec<bool> {
    let (budget, clock) = limits();
    let decisions = decisions(history, &model, budget, clock);
    let legal = |decision: &Decision| match decision {
        Decision::Legal => true,
        Decision::Illegal(_) => false,
        Decision::Unknown(reason) => panic!("undecided: {reason}"),
    };
    decisions.iter().map(legal).collect()
}

/// Searches by some forms of one specification against the decision; every order found must stand the validator's test.
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
fn the_sweeps_and_the_search_agree_with_and_without_hints() {
    for model in LOCKS {
        // What hints say of locks rests on different times.
        let each = (1..=histories()).map(|seed| (seed, random(seed, model)));
        for (seed, history) in each.filter(|(_, history)| !is_coarse(history)) {
            let all = operations::locks(&history, &model);
            let Some(operations) = all.first() else { continue };
            let legal = decided(&history, model).first() == Some(&true);
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

/// Histories without equal times of which the oracle and a mutant call other numbers of locks illegal.
fn noticed(mutant: Mutant, model: Model) -> impl Iterator<Item = u64> {
    (1..=200_000).filter(move |seed| {
        let lines = chance::lines(*seed, model);
        let history = lines.history().expect("a well-formed history");
        if has_ties(&history) {
            return false;
        }
        let wrong = with(mutant, || decided(&history, model));
        let count = wrong.iter().filter(|legal| !**legal).count();
        let is_illegal = |lock: &u32| !orders::is_legal(&lines, model, *lock);
        // the oracle is slow, and is asked only where the mutant makes a difference
        wrong != decided(&history, model) && count != (0..2).filter(is_illegal).count()
    })
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
        let caught = noticed(mutant, model).take(3).count();
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
            let legal = decided(&history, model).first() == Some(&true);
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
