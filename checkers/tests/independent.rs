//! Tests verdicts against the definition, by an oracle that shares nothing with the crate: it reads the lines of random histories by itself
//! and tries every order. Also tests that verdicts do not depend on irrelevant changes, or on an export.
//!
//! `INDEPENDENT_HISTORIES=1000000 cargo test --release -p harness-checkers independent` tries a million a model, and
//! `INDEPENDENT_MODEL=election` one model only.

pub mod chance;
pub mod orders;

use chance::{Chance, Lines, asked, lines};
use harness_checkers::history::event::Kind;
use harness_checkers::linearizability::{DecisionCounts, decide};
use harness_checkers::{
    Budget, CertainHold, Clock, Entry, History, Model, Options, Property, ReadOptions, Verdict, check_property,
    write_edn,
};

pub const MODELS: [Model; 17] = [
    Model::OwnerMutex,
    Model::Mutex,
    Model::Reentrant { limit: 2 },
    Model::Reentrant { limit: u32::MAX },
    Model::Fenced,
    Model::ReentrantFenced { limit: 2 },
    Model::ReadWrite,
    Model::Semaphore { permits: 1 },
    Model::Semaphore { permits: 2 },
    Model::Semaphore { permits: 3 },
    Model::TryLock,
    Model::ExactTryLock,
    Model::Election,
    Model::Register { start: None },
    Model::CasRegister { start: None },
    Model::CasRegister { start: Some(1) },
    Model::ExactCasRegister { start: None },
];

/// Seeds, of random millions, of histories that the crate or the oracle once judged wrongly.
const ONCE_WRONG: [u64; 17] = [
    40_824, 45_479, 54_991, 87_111, 366_181, 504_754, 1_052_822, 3_163_977, 3_230_931, 3_352_405, 3_442_512, 3_522_217,
    3_538_492, 3_748_688, 3_825_520, 3_884_830, 20_874_921,
];

fn models() -> Vec<Model> {
    let only = std::env::var("INDEPENDENT_MODEL").ok();
    let wanted = |model: &Model| only.as_ref().is_none_or(|only| model.to_string() == *only);
    let models: Vec<Model> = MODELS.into_iter().filter(wanted).collect();
    assert!(!models.is_empty(), "no such model is tried: {only:?}");
    models
}

/// Returns the configured seeds, or a few.
pub fn some_seeds() -> impl Iterator<Item = u64> {
    let first = asked("INDEPENDENT_SEED", 1);
    first..=first + asked("INDEPENDENT_HISTORIES", 1_000)
}

fn seeds() -> impl Iterator<Item = u64> {
    some_seeds().chain(ONCE_WRONG)
}

/// Returns the random histories of each model that is tried, with their seeds.
fn histories() -> impl Iterator<Item = (Model, u64, Lines)> {
    let of = |model| seeds().map(move |seed| (model, seed, lines(seed, model)));
    models().into_iter().flat_map(of)
}

fn decided(lines: &Lines, model: Model) -> DecisionCounts {
    let history = lines.history().expect("a well-formed history");
    decided_of(&history, model)
}

fn decided_of(history: &History, model: Model) -> DecisionCounts {
    decide(history, &model, Budget::default(), Clock::still())
}

/// Returns the number of illegal locks, and panics without a verdict.
fn illegal(lines: &Lines, model: Model) -> usize {
    let counts = decided(lines, model);
    assert_eq!(counts.unknown, 0, "{model} decides nothing\n{}", show(lines));
    counts.illegal
}

fn show(lines: &Lines) -> String {
    let each = lines.lines.iter().enumerate();
    let text: Vec<String> = each.map(|(at, said)| format!("{at}: {said:?}")).collect();
    format!(
        "leased {}, by place {}\n{}",
        lines.leased,
        lines.by_place,
        text.join("\n")
    )
}

#[test]
fn verdicts_are_those_of_the_definition() {
    are_those_of_the_definition(|| seeds().chain(1_002..=3_000));
}

mod nightly {
    #[test]
    fn verdicts_are_those_of_the_definition() {
        super::are_those_of_the_definition(|| 1_002..=5_000_u64);
    }
}

fn are_those_of_the_definition<S: Iterator<Item = u64>>(seeds: impl Fn() -> S) {
    for model in models() {
        let (mut bad, mut all) = (0, 0);
        for seed in seeds() {
            let lines = lines(seed, model);
            let expected = (0..2).filter(|lock| !orders::is_legal(&lines, model, *lock)).count();
            let found = illegal(&lines, model);
            assert_eq!(found, expected, "seed {seed} under {model}\n{}", show(&lines));
            (bad, all) = (bad + u64::from(found > 0), all + 1);
        }
        println!("{model}: {all} histories, {bad} of them violated");
        assert!(
            (5..=95).contains(&(bad * 100 / all)),
            "{model}: {bad} of {all} are violated"
        );
    }
}

#[test]
fn a_coarser_clock_hides_violations_and_makes_none() {
    let mut hidden = 0;
    for (model, seed, fine) in histories() {
        for grain in [7, 20, 1_000] {
            let mut coarse = fine.clone();
            for said in &mut coarse.lines {
                said.time = said.time.div_ceil(grain) * grain;
            }
            // not all orders are tried of a try-lock whose events are all of one instant
            let (before, after) = (illegal(&fine, model), decided(&coarse, model).illegal);
            assert!(
                after <= before,
                "seed {seed} under {model}, rounded up to {grain}: {before} became {after}\n{}",
                show(&fine)
            );
            hidden += before - after;
        }
    }
    assert!(hidden > 100, "{hidden} violations were hidden");
}

#[test]
fn names_of_processes_and_locks_do_not_matter() {
    for (model, seed, lines) in histories() {
        let mut renamed = lines.clone();
        for said in &mut renamed.lines {
            said.process = 4_000_000_000 - said.process * 7;
            said.lock = said.lock.map(|lock| 5 - lock);
        }
        let (before, after) = (illegal(&lines, model), illegal(&renamed, model));
        assert_eq!(before, after, "seed {seed} under {model}\n{}", show(&lines));
    }
}

#[test]
fn the_order_of_lines_is_not_that_of_events_where_there_are_times() {
    let mut swapped = 0;
    for (model, seed, lines) in histories().filter(|(.., lines)| !lines.by_place) {
        let (mut chance, mut other) = (Chance(seed), lines.clone());
        for at in 1..other.lines.len() {
            let (a, b) = (other.lines[at - 1], other.lines[at]);
            // The crate must know a process before a signal of it counts, so signals do not move.
            let signal = a.kind == Kind::Signal || b.kind == Kind::Signal;
            if a.process != b.process && !signal && chance.percent(50) {
                other.lines.swap(at - 1, at);
                swapped += 1;
            }
        }
        let (before, after) = (illegal(&lines, model), illegal(&other, model));
        assert_eq!(
            before,
            after,
            "seed {seed} under {model}\n{}\n{}",
            show(&lines),
            show(&other)
        );
    }
    assert!(swapped > 1_000);
}

#[test]
fn mutual_exclusion_is_that_no_two_holds_overlap() {
    let options = Options {
        model: Some(Model::OwnerMutex),
        ..Options::still()
    };
    // an open hold lasts until after the last event
    let end = |hold: &CertainHold<'_>| hold.end_index.map_or(u64::MAX, |_| hold.to_ns);
    let overlap = |a: &CertainHold<'_>, b: &CertainHold<'_>| {
        a.lock == b.lock && a.process != b.process && a.from_ns.max(b.from_ns) < end(a).min(end(b))
    };
    let mut violated = 0;
    for seed in seeds() {
        let lines = Lines {
            by_place: false,
            ..lines(seed, Model::OwnerMutex)
        };
        let history = lines.history().expect("a well-formed history");
        let holds = history.certain_holds();
        let mut each = holds.iter().enumerate();
        let expected = each.any(|(at, a)| holds[at + 1..].iter().any(|b| overlap(a, b)));
        let verdict = check_property(&history, &options, Property::MUTUAL_EXCLUSION).verdict;
        let found = verdict == Verdict::Violated;
        assert_eq!(found, expected, "seed {seed}\n{}", show(&lines));
        violated += u64::from(expected);
    }
    assert!(violated > 10, "{violated}");
}

#[test]
fn a_history_goes_out_and_comes_back() {
    for (model, seed, lines) in histories() {
        // an export does not say whether there is a lease, and the order of its lines is that of the events
        let lines = Lines {
            leased: true,
            by_place: true,
            ..lines
        };
        let history = lines.history().expect("a well-formed history");
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).expect("memory can be written to");
        let again = History::read(edn.as_slice(), &ReadOptions::default()).expect("our own EDN");
        let plain = |entry: Entry<'_>| {
            let values = (entry.value, entry.expected);
            (entry.index, entry.process, entry.kind, entry.f, values, entry.mode)
        };
        let same = again.entries().map(plain).eq(history.entries().map(plain));
        assert!(same, "seed {seed} under {model}\n{}", show(&lines));
        let (before, after) = (decided_of(&history, model), decided_of(&again, model));
        assert_eq!(before, after, "seed {seed} under {model}\n{}", show(&lines));
    }
}
