//! HL006, fairness: waiters that were passed over, and grants out of the promised order.
//!
//! Where the recipe promises the order of asking, its tokens are its tickets, and a grant out of ticket order is a
//! violation. Where it promises nothing, this is a statistic, unless a bound is set.
//!
//! Evenness is Jain's index: R. Jain, D. Chiu and W. Hawe, "A Quantitative Measure of Fairness and Discrimination for
//! Resource Allocation in Shared Computer Systems" (1984), <https://arxiv.org/abs/cs/9809099>. Counting is by a Fenwick
//! tree: P. Fenwick, "A New Data Structure for Cumulative Frequency Tables" (1994), <https://doi.org/10.1002/spe.4380240306>.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::context::Context;
use crate::finding::Verdict;
use crate::history::event::Kind;
use crate::history::{F, History};
use crate::starvation::{self, Starved};
use crate::tickets::{self, TokenBreak};

/// A waiter and the number of others that called later and were served before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passed {
    pub lock: usize,
    pub process: u32,
    /// The positions of its call and its reply.
    pub call: u32,
    pub reply: u32,
    pub times: u64,
}

/// The decision on HL006.
#[derive(Default)]
pub(crate) struct Fairness {
    /// Not applicable to a register, and where no order is promised and no bound is set; inconclusive without an acquire.
    pub verdict: Verdict,
    /// Acquires that were answered `ok`.
    pub total: u64,
    /// The largest number of times that one waiter was passed over.
    pub max: u64,
    /// Jain's index of acquires per client, from 1/clients to 1.
    pub jain: f64,
    /// Whether an order is promised and tokens show it.
    pub ordered: bool,
    /// Grants out of ticket order, each with its place among the breaks of HL003.
    pub breaks: Vec<(usize, TokenBreak)>,
    /// Waiters that were passed over more often than the bound, the worst first.
    pub over: Vec<Passed>,
    /// Clients that asked all the time and did not get the lock, the longest first.
    pub starved: Vec<Starved>,
}

impl Fairness {
    /// Returns the number of breaks, of waiters and of clients together.
    pub(crate) fn count(&self) -> u64 {
        (self.breaks.len() + self.over.len() + self.starved.len()) as u64
    }
}

pub(crate) fn decide(context: &Context<'_>) -> Fairness {
    let mut decided = Fairness {
        jain: 1.0,
        ..Fairness::default()
    };
    if !context.model.is_lock() {
        return decided;
    }
    let (served, jain) = served(context);
    decided.total = served.iter().map(|served| served.count).sum();
    if decided.total == 0 {
        decided.verdict = Verdict::Inconclusive;
        return decided;
    }
    let replies = replies_out_of_order(context.history, &served).into_iter().enumerate();
    let mut passed: Vec<Passed> = replies
        .flat_map(|(lock, replies)| passed_over(context.history, lock, replies))
        .collect();
    passed.sort_by_key(|passed| (Reverse(passed.times), passed.reply));
    decided.max = passed.first().map_or(0, |passed| passed.times);
    decided.jain = jain;
    let promises = &context.history.header.promises;
    decided.ordered = promises.fifo
        && promises.orders_tokens()
        && context.holds.iter().any(|hold| hold.token(context.history).is_some());
    let by_lock = decided.ordered.then(|| tickets::of_locks(context));
    let breaks = by_lock.into_iter().flatten().flat_map(|tokens| tokens.breaks);
    // two grants with one ticket have no order
    let is_out_of_order = |(_, broken): &(usize, TokenBreak)| broken.later.token < broken.earlier.token;
    decided.breaks.extend(breaks.enumerate().filter(is_out_of_order));
    // calls of clients with several clocks have no order
    let bound = context.bounds.passed_over.filter(|_| context.apart_ns() == 0);
    if let Some(bound) = bound {
        passed.retain(|passed| passed.times > u64::from(bound));
        decided.over = passed;
    }
    decided.starved = starvation::starved(context);
    let bounded = bound.is_some() || context.bounds.starvation_ms.is_some();
    if decided.count() > 0 {
        decided.verdict = Verdict::Violated;
    } else if decided.ordered || bounded {
        decided.verdict = Verdict::Holds;
    }
    decided
}

/// The order of the acquires of one lock that were answered `ok`.
#[derive(Debug, Clone, Copy, Default)]
struct LockService {
    count: u64,
    /// The instants of the latest call and the latest reply so far.
    latest: (u64, u64),
    /// Whether the order of calls or of replies differs from the order of the file.
    out_of_order: bool,
}

impl LockService {
    fn add(&mut self, (called, answered): (u64, u64)) {
        self.out_of_order |= called < self.latest.0 || answered < self.latest.1;
        self.latest = (called.max(self.latest.0), answered.max(self.latest.1));
        self.count += 1;
    }
}

/// Returns the acquires that were answered `ok`, by lock, and Jain's index of all clients that asked.
fn served(context: &Context<'_>) -> (Vec<LockService>, f64) {
    let history = context.history;
    let mut served = vec![LockService::default(); history.locks.len()];
    let mut by_process: Vec<Option<u64>> = vec![None; history.processes.len()];
    history.events.each_of(
        |f, _| f == F::Acquire,
        |position, event| {
            let count = by_process[event.process as usize].get_or_insert(0);
            if event.kind != Kind::Ok {
                return;
            }
            *count += 1;
            if let Some(lock) = history.lock_number(event) {
                let called = history.instant(event.mate);
                served[lock].add((called, history.instant_of(position, event)));
            }
        },
    );
    (served, jain(history, by_process))
}

/// Returns the positions of the replies to acquires, for the locks that did not serve in order.
fn replies_out_of_order(history: &History, served: &[LockService]) -> Vec<Vec<u32>> {
    if served.iter().all(|served| !served.out_of_order) {
        return Vec::new();
    }
    let mut replies = vec![Vec::new(); served.len()];
    let is_served = |f, kind| f == F::Acquire && kind == Kind::Ok;
    history.each_of_locks(is_served, |lock, position, _| {
        if served[lock].out_of_order {
            replies[lock].push(position);
        }
    });
    replies
}

/// Counts for each waiter the later calls that were served before it.
///
/// It goes from the latest call backwards; a Fenwick tree over the order of service has the later calls.
fn passed_over(history: &History, lock: usize, mut served: Vec<u32>) -> Vec<Passed> {
    if !served.is_sorted_by_key(|reply| history.instant(*reply)) {
        served.sort_by_key(|reply| history.instant(*reply));
    }
    let asked = served.iter().map(|reply| history.instant(history.events.mate(*reply)));
    let asked: Vec<u64> = asked.collect();
    let mut by_call: Vec<u32> = (0..served.len() as u32).collect();
    by_call.sort_by_key(|rank| asked[*rank as usize]);
    let mut tree = vec![0u32; served.len() + 1];
    let mut passed = Vec::new();
    for rank in by_call.into_iter().rev() {
        let times = below(&tree, rank as usize);
        if times > 0 {
            let reply = served[rank as usize];
            let event = history.event(reply);
            passed.push(Passed {
                lock,
                process: event.process,
                call: event.mate,
                reply,
                times,
            });
        }
        let mut node = rank as usize + 1;
        while node < tree.len() {
            tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }
    passed
}

fn below(tree: &[u32], mut node: usize) -> u64 {
    let mut sum = 0;
    while node > 0 {
        sum += u64::from(tree[node]);
        node &= node - 1;
    }
    sum
}

/// Returns Jain's index of acquires per client, of all processes that asked: 1 when all got the same, 1/n when one got all.
fn jain(history: &History, by_process: Vec<Option<u64>>) -> f64 {
    let mut acquired: BTreeMap<u32, f64> = BTreeMap::new();
    for (process, count) in by_process.into_iter().enumerate() {
        if let Some(count) = count {
            *acquired.entry(history.client_of(process as u32)).or_default() += count as f64;
        }
    }
    let sum: f64 = acquired.values().sum();
    let squares: f64 = acquired.values().map(|count| count * count).sum();
    if squares > 0.0 {
        sum * sum / (acquired.len() as f64 * squares)
    } else {
        1.0
    }
}
