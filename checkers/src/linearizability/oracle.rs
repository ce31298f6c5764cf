//! The oracle: tries every order of a small history. Slow, simple, and knows nothing of sweeps and searches.

use std::collections::HashSet;

use super::mutant::{Mutant, with};
use super::operations::{self, Operations};
use super::register::{Register, RegisterOp};
use super::spec::{Operation, Spec, validate};
use super::specs::{LockOp, ManyOwners, OneOwner};
use super::{Decision, Searched, anonymous, decisions, search};
use crate::history::event::{FORMAT, Header, Kind, Process, VERSION};
use crate::history::{Entry, F, History, HistoryBuilder, Mode};
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
fn exists<S: Spec>(spec: &S, operations: &[Operation<S::Op>]) -> bool {
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

/// A small generator of numbers; the same seed gives the same history.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

fn header() -> Header {
    serde_json::from_str(&format!(
        r#"{{"format":"{FORMAT}","version":{VERSION},"locks":["l0"]}}"#
    ))
    .unwrap()
}

struct Client {
    process: u32,
    open: Option<(F, Mode, u32, u32)>,
    depth: u32,
    mode: Mode,
}

/// A random history of up to twelve operations by two to four clients, with every kind of outcome.
fn random(seed: u64, model: Model) -> History {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut builder = HistoryBuilder::new(header());
    let mut clients: Vec<Client> = (0..2 + dice.below(3) as u32)
        .map(|process| Client {
            process,
            open: None,
            depth: 0,
            mode: Mode::Write,
        })
        .collect();
    let (mut next, mut token, mut value) = (clients.len() as u32, 0, 0);
    let events = 6 + dice.below(20);
    let quiet = dice.chance(50);
    for index in 0..events {
        let at = dice.below(clients.len() as u64) as usize;
        let client = &mut clients[at];
        let mut entry = Entry::new(
            index,
            index * 10,
            Process::Client(client.process),
            Kind::Invoke,
            F::Acquire,
        );
        entry.lock = Some("l0");
        match client.open {
            None if client.depth > 0 && dice.chance(8) => {
                (entry.kind, entry.f) = (Kind::Signal, F::Lost);
                client.depth = 0;
            }
            None => call(&mut dice, &model, client, &mut entry),
            Some((f, mode, permits, expected)) => {
                (entry.f, entry.mode, entry.permits) = (f, mode, Some(permits));
                entry.expected = (f == F::Cas).then_some(u64::from(expected));
                reply(&mut dice, &model, client, &mut entry, quiet);
                if entry.kind == Kind::Ok && f == F::Acquire && dice.chance(80) {
                    token += if client.depth > 1 { 0 } else { dice.below(5) };
                    entry.token = Some(token.saturating_sub(u64::from(dice.chance(10))));
                }
                if entry.kind == Kind::Ok && f == F::Read {
                    entry.value = if dice.chance(10) { None } else { Some(dice.below(3)) };
                }
                value += 1;
                if entry.kind == Kind::Info {
                    *client = Client {
                        process: next,
                        open: None,
                        depth: 0,
                        mode: Mode::Write,
                    };
                    next += 1;
                }
            }
        }
        builder.push(&entry).expect("the generator makes well-formed histories");
    }
    let _ = value;
    builder.finish()
}

fn call(dice: &mut Dice, model: &Model, client: &mut Client, entry: &mut Entry<'_>) {
    if !model.is_lock() {
        entry.f = [F::Read, F::Write, F::Cas][dice.below(3) as usize];
        entry.value = (entry.f != F::Read).then(|| dice.below(3));
        entry.expected = (entry.f == F::Cas).then(|| dice.below(3));
        client.open = Some((entry.f, Mode::Write, 1, entry.expected.unwrap_or(0) as u32));
        return;
    }
    let again = model.is_reentrant() || matches!(model, Model::ReadWrite | Model::Semaphore { .. });
    let releases = if client.depth == 0 {
        dice.chance(4)
    } else {
        dice.chance(if again { 70 } else { 96 })
    };
    entry.f = if releases { F::Release } else { F::Acquire };
    entry.mode = if *model == Model::ReadWrite && dice.chance(60) {
        Mode::Read
    } else {
        Mode::Write
    };
    let permits = if matches!(model, Model::Semaphore { .. }) {
        1 + dice.below(2) as u32
    } else {
        1
    };
    entry.permits = Some(permits);
    client.open = Some((entry.f, entry.mode, permits, 0));
}

fn reply(dice: &mut Dice, model: &Model, client: &mut Client, entry: &mut Entry<'_>, quiet: bool) {
    client.open = None;
    entry.kind = match dice.below(20) {
        0..=13 => Kind::Ok,
        14..=17 => Kind::Fail,
        _ if quiet => Kind::Ok,
        _ => Kind::Info,
    };
    if entry.kind == Kind::Fail && model.is_lock() {
        let busy = entry.f == F::Acquire;
        entry.error = Some(if busy {
            "busy"
        } else if dice.chance(30) {
            "not-held"
        } else {
            "lease lost"
        });
    }
    match (entry.f, entry.kind) {
        (F::Acquire, Kind::Ok) => (client.depth, client.mode) = (client.depth + 1, entry.mode),
        (F::Release, _) => client.depth = client.depth.saturating_sub(1),
        _ => {}
    }
}

const LOCKS: [Model; 10] = [
    Model::OwnerMutex,
    Model::Mutex,
    Model::Reentrant { limit: 2 },
    Model::Fenced,
    Model::ReentrantFenced { limit: 2 },
    Model::ReadWrite,
    Model::Semaphore { permits: 2 },
    Model::Semaphore { permits: 3 },
    Model::TryLock,
    Model::Election,
];

fn budget() -> Budget {
    Budget::default()
}

/// What the oracle says of a history, on its only lock.
fn oracle(history: &History, model: &Model) -> Option<bool> {
    if !model.is_lock() {
        let all = operations::registers(history);
        return all.first().map(|all| exists(&Register, &all.operations));
    }
    let all = operations::locks(history, model);
    all.first().map(|all| match model {
        Model::ReadWrite | Model::Semaphore { .. } => exists(&ManyOwners::new(*model).without_hints(), &all.operations),
        _ => exists(&OneOwner::new(*model).without_hints(), &all.operations),
    })
}

fn fast(history: &History, model: &Model) -> Option<bool> {
    let decisions = decisions(history, model, budget(), Clock::still());
    decisions.first().map(|decision| match decision {
        Decision::Legal => true,
        Decision::Faulty(_) => false,
        Decision::Unknown(reason) => panic!("undecided: {reason}"),
    })
}

fn mismatches(model: Model, count: u64) -> u64 {
    (1..=count)
        .filter(|seed| {
            let history = random(*seed, model);
            oracle(&history, &model) != fast(&history, &model)
        })
        .count() as u64
}

fn show(history: &History) -> String {
    let line = |entry: Entry<'_>| {
        format!(
            "{:?} {:?} {} {:?} {:?} {:?}",
            entry.process,
            entry.kind,
            entry.f.name(),
            entry.mode,
            entry.token,
            entry.error
        )
    };
    history.entries().map(line).collect::<Vec<_>>().join("\n")
}

fn agrees(model: Model) {
    let mut illegal = 0;
    for seed in 1..=histories() {
        let history = random(seed, model);
        let (slow, quick) = (oracle(&history, &model), fast(&history, &model));
        assert_eq!(
            slow,
            quick,
            "seed {seed} under {model}: oracle against sweep\n{}",
            show(&history)
        );
        illegal += u64::from(slow == Some(false));
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
fn searches<S: Spec>(seed: u64, spec: &S, operations: &[Operation<S::Op>], legal: bool) {
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
        for seed in 1..=histories() / 2 {
            let history = random(seed, model);
            let all = operations::locks(&history, &model);
            let Some(Operations { operations, .. }) = all.first() else {
                continue;
            };
            let legal = oracle(&history, &model) == Some(true);
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
            let counter = Counter(permits);
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

struct Counter(u64);

impl Spec for Counter {
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
            assert_eq!(
                order.is_some(),
                fast(&history, &model) == Some(true),
                "seed {seed} under {model}"
            );
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
