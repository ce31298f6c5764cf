//! Tests of the decisions about sets, queues and stacks with distinct values, against the general search, which is independent of them.

use std::collections::{BTreeSet, VecDeque};

use super::dice::dice;
use super::done;
use super::independent::chance::asked;
use harness_checkers::linearizability::{
    Collected, CollectionOp, Operation, Searched, SequentialSpec, decide_queue, decide_set, decide_stack, search,
};
use harness_checkers::{Budget, Clock};

type Op = CollectionOp<u8>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Collection {
    Set,
    Queue,
    Stack,
}

/// The sequential definition of each collection.
struct Definition(Collection);

impl SequentialSpec for Definition {
    type Op = Op;
    type State = VecDeque<u8>;

    fn initial(&self) -> Self::State {
        VecDeque::new()
    }

    fn step(&self, mut state: Self::State, op: &Op) -> Option<Self::State> {
        let legal = match (*op, self.0) {
            (CollectionOp::Add(value), Collection::Set) => {
                let new = !state.contains(&value);
                state.push_back(value);
                state.make_contiguous().sort_unstable();
                new
            }
            (CollectionOp::Add(value), _) => {
                state.push_back(value);
                true
            }
            (CollectionOp::Take(Some(value)), Collection::Set) => {
                let there = state.iter().position(|other| *other == value);
                there.map(|at| state.remove(at)).is_some()
            }
            (CollectionOp::Take(taken), Collection::Queue) => state.pop_front() == taken,
            (CollectionOp::Take(taken), _) => state.pop_back() == taken,
            (CollectionOp::Contains(value, there), _) => state.contains(&value) == there,
        };
        legal.then_some(state)
    }
}

/// Returns a few operations that were executed one after the other, each with a span around its moment; then some answers and times are
/// changed, and some answers are removed.
fn operations(kind: Collection, seed: u64) -> Vec<Operation<Op>> {
    let mut chance = dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..5 {
        chance(2);
    }
    let (mut inside, mut next, mut all) = (VecDeque::new(), 0u8, Vec::new());
    let (wide, changes) = (chance(40) + 1, chance(5));
    let unit = [1, 1, 10][chance(3) as usize];
    for turn in 0..4 + chance(7) {
        let op = match chance(5) {
            0 | 1 => {
                inside.push_back(next);
                next += 1;
                CollectionOp::Add(next - 1)
            }
            2 | 3 if kind == Collection::Set && !inside.is_empty() => {
                let at = chance(inside.len() as u64) as usize;
                CollectionOp::Take(inside.remove(at))
            }
            _ if kind == Collection::Set => {
                let value = chance(u64::from(next) + 1) as u8;
                CollectionOp::Contains(value, inside.contains(&value))
            }
            _ if kind == Collection::Queue => CollectionOp::Take(inside.pop_front()),
            _ => CollectionOp::Take(inside.pop_back()),
        };
        let at = 100 + turn * 10;
        let (call, reply) = (at - chance(wide), at + chance(wide));
        all.push(Operation {
            op,
            call: call / unit,
            reply: Some(reply / unit).filter(|_| chance(12) > 0),
        });
    }
    for _ in 0..changes {
        let (a, b) = (chance(all.len() as u64) as usize, chance(all.len() as u64) as usize);
        match chance(3) {
            0 => (all[a].op, all[b].op) = (all[b].op, all[a].op),
            1 => {
                let later = chance(30);
                all[a].call += later;
                all[a].reply = all[a].reply.map(|reply| reply + later);
            }
            _ => {
                if let CollectionOp::Contains(_, there) = &mut all[a].op {
                    *there = !*there;
                }
            }
        }
    }
    all
}

fn decide(kind: Collection, operations: &[Operation<Op>]) -> Collected {
    match kind {
        Collection::Set => decide_set(operations),
        Collection::Queue => decide_queue(operations),
        Collection::Stack => decide_stack(operations),
    }
}

fn is_legal(kind: Collection, operations: &[Operation<Op>]) -> bool {
    match search(&Definition(kind), operations, Budget::default(), Clock::still()) {
        Searched::Order(_) => true,
        Searched::NoOrder { .. } => false,
        unknown => panic!("{unknown:?}"),
    }
}

/// Returns the seeds; `COLLECTIONS=1000000` sets a million of each.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=asked("COLLECTIONS", 20_000)
}

#[test]
fn verdicts_are_those_of_the_search() {
    for kind in [Collection::Set, Collection::Queue, Collection::Stack] {
        let (mut legal, mut illegal, mut others) = (0, 0, 0);
        for seed in seeds() {
            let operations = operations(kind, seed);
            let told = || format!("{kind:?}, seed {seed}: {operations:#?}");
            match decide(kind, &operations) {
                Collected::Legal => {
                    legal += 1;
                    assert!(is_legal(kind, &operations), "{}", told());
                }
                Collected::Illegal(places) => {
                    illegal += 1;
                    assert!(!is_legal(kind, &operations), "{}", told());
                    let those: Vec<Operation<Op>> = places.iter().map(|place| operations[*place]).collect();
                    assert!(!is_legal(kind, &those), "{places:?} of {}", told());
                    assert!(places.is_sorted() && !places.is_empty(), "{places:?}");
                }
                Collected::NotApplicable => others += 1,
                other => panic!("{other:?}"),
            }
        }
        let all = legal + illegal + others;
        assert!(
            legal > all / 8 && illegal > all / 8,
            "{kind:?}: {legal} legal, {illegal} illegal, {others} others"
        );
        println!("{kind:?}: {legal} legal, {illegal} illegal, {others} not applicable");
    }
}

#[test]
fn what_cannot_be_told_is_not_applicable() {
    let done = |op| done(op, 1, 2);
    let lost = |op| Operation {
        op,
        call: 1,
        reply: None,
    };
    let twice = [done(CollectionOp::Add(1)), done(CollectionOp::Add(1))];
    for kind in [Collection::Set, Collection::Queue, Collection::Stack] {
        assert_eq!(decide(kind, &twice), Collected::NotApplicable);
        assert_eq!(decide(kind, &[]), Collected::Legal);
    }
    assert_eq!(
        decide_queue(&[lost(CollectionOp::Take(Some(1)))]),
        Collected::NotApplicable
    );
    assert_eq!(
        decide_stack(&[done(CollectionOp::Contains(1, false))]),
        Collected::NotApplicable
    );
    assert_eq!(decide_set(&[done(CollectionOp::Take(None))]), Collected::NotApplicable);
    assert_eq!(decide_set(&[lost(CollectionOp::Take(Some(1)))]), Collected::Legal);
}

#[test]
fn a_long_history_is_decided() {
    let values: BTreeSet<u32> = (0..100_000).collect();
    let queue = values.iter().flat_map(|value| {
        let at = u64::from(*value) * 10;
        [
            done(CollectionOp::Add(*value), at, at + 15),
            done(CollectionOp::Take(Some(*value)), at + 500, at + 515),
        ]
    });
    let mut queue: Vec<Operation<CollectionOp<u32>>> = queue.collect();
    assert_eq!(decide_queue(&queue), Collected::Legal);
    assert!(matches!(decide_stack(&queue), Collected::Illegal(_)));
    // the last two are removed in the wrong order
    let last = queue.len() - 1;
    (queue[last].call, queue[last].reply) = (queue[last - 2].call - 100, Some(queue[last - 2].call - 50));
    let Collected::Illegal(places) = decide_queue(&queue) else {
        panic!("a value is overtaken");
    };
    assert!(places.len() == 4 && places.contains(&last), "{places:?}");
}

#[test]
fn a_deep_stack_is_decided() {
    let all = 100_000u64;
    let op = |op, call| done(op, call, call + 5);
    let pushes = (0..all).map(|value| op(CollectionOp::Add(value), value * 10));
    let pops = (0..all).map(|value| op(CollectionOp::Take(Some(value)), (2 * all - value) * 10));
    let mut stack: Vec<Operation<CollectionOp<u64>>> = pushes.chain(pops).collect();
    assert_eq!(decide_stack(&stack), Collected::Legal);
    // the innermost but one is popped as the very last
    let late = stack.len() - 2;
    (stack[late].call, stack[late].reply) = (all * 30, Some(all * 30 + 5));
    let Collected::Illegal(places) = decide_stack(&stack) else {
        panic!("a value that lies on others is popped after them");
    };
    assert!(places.contains(&late), "{}", places.len());
}
