//! Linearizability of stacks: values are removed from below, in the time of a sort.
//!
//! While values are certainly inside without a gap, the stack is never empty, so one of them is below the others all the time. Any value
//! that can be there may be: pushed first and popped last, it changes nothing for the others, and they are decided without it. At a gap,
//! each value on the left can be moved to the left of it, and the same to the right, since orders stay legal without some of their values.
//! So each value is removed once, and the rest falls into parts; if no value of a part can be below, there is no order.
//!
//! The removal of values that make no difference is the method of Z. Lee and U. Mathur, "Efficient Decrease-and-Conquer Linearizability
//! Monitoring" (2025), <https://doi.org/10.1145/3763123>, where it is shown for more objects.

use std::ops::Range;

use crate::range_max::RangeMax;

/// One value from its addition to its removal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub added: (u64, u64),
    pub taken: (u64, u64),
    /// The places of both operations; the second is `NEVER` without a removal.
    pub places: (usize, usize),
}

pub(super) const NEVER: usize = usize::MAX;
pub(super) const FOREVER: (u64, u64) = (u64::MAX, u64::MAX);

impl Stay {
    /// Returns whether it is certainly inside for a while: between the answer of its addition and the call of its removal.
    pub(super) fn is_certain(&self) -> bool {
        self.added.1 < self.taken.0
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        [self.places.0, self.places.1]
            .into_iter()
            .filter(|place| *place != NEVER)
    }
}

/// Returns the values of a part of which none can be below the others, among values that are certainly inside for a while.
pub(super) fn without_a_bottom(mut values: Vec<Stay>) -> Option<Vec<Stay>> {
    values.sort_unstable_by_key(|stay| stay.added.1);
    let mut stack = StackParts::of(&values);
    let mut parts: Vec<Range<usize>> = std::iter::once(0..values.len()).collect();
    while let Some(part) = parts.pop() {
        let first = stack.left(part.start);
        let part = first..part.end;
        if part.is_empty() {
            continue;
        }
        let (from, until) = (values[first].added.1, stack.popped.within(part.clone()).0);
        if let Some(gap) = stack.gap(from, until) {
            let middle = values.partition_point(|stay| stay.added.1 < gap);
            parts.extend([middle..part.end, first..middle]);
            continue;
        }
        while let (early, at) = stack.early.within(part.clone())
            && early >= u64::MAX - from
        {
            stack.early.set(at, (0, at));
            stack.late.set(at, (values[at].taken.1, at));
        }
        let (late, bottom) = stack.late.within(part.clone());
        if late < until {
            let left = part.filter(|at| stack.left(*at) == *at);
            return Some(left.map(|at| values[at]).collect());
        }
        stack.remove(&values[bottom], bottom);
        parts.push(part);
    }
    None
}

/// The largest of a range of numbers, with its place.
type MostByPlace = RangeMax<(u64, usize)>;

fn most(values: &[Stay], number: impl Fn(&Stay) -> u64) -> MostByPlace {
    RangeMax::of(values.iter().enumerate().map(|(place, stay)| (number(stay), place)))
}

/// The remaining values of a stack, by their places.
struct StackParts {
    /// The times of calls of pops.
    popped: MostByPlace,
    /// For values that could not be below at the last try, the earliest time of a push: the largest number is the earliest.
    early: MostByPlace,
    /// For the others, the latest time of a pop.
    late: MostByPlace,
    /// The instants of answers to pushes and of calls of pops, and the number of values that are certainly inside at each and after each.
    instants: Vec<u64>,
    inside: InsideCounts,
    /// The first remaining place at or after each place.
    next: Vec<usize>,
}

impl StackParts {
    fn of(values: &[Stay]) -> Self {
        let mut instants: Vec<u64> = values.iter().flat_map(|stay| [stay.added.1, stay.taken.0]).collect();
        instants.sort_unstable();
        instants.dedup();
        let mut parts = Self {
            popped: most(values, |stay| stay.taken.0),
            early: most(values, |stay| u64::MAX - stay.added.0),
            late: most(values, |_| 0),
            inside: InsideCounts::new(instants.len() * 2),
            instants,
            next: (0..=values.len()).collect(),
        };
        for stay in values {
            let span = parts.span(stay.added.1, stay.taken.0);
            parts.inside.add(span, 1);
        }
        parts
    }

    /// Returns the places between two instants, without them: even numbers are instants, odd ones the time after them.
    fn span(&self, from: u64, until: u64) -> Range<usize> {
        let place = |instant: u64| self.instants.partition_point(|other| *other < instant);
        place(from) * 2 + 1..place(until) * 2
    }

    /// Returns an instant between two at which no value is certainly inside, if there is one.
    fn gap(&self, from: u64, until: u64) -> Option<u64> {
        let (count, at) = self.inside.least(self.span(from, until));
        (count == 0).then(|| self.instants[at.div_ceil(2)])
    }

    fn left(&mut self, place: usize) -> usize {
        let mut end = place;
        while self.next[end] != end {
            end = self.next[end];
        }
        let mut at = place;
        while at != end {
            at = std::mem::replace(&mut self.next[at], end);
        }
        end
    }

    fn remove(&mut self, stay: &Stay, place: usize) {
        for most in [&mut self.popped, &mut self.early, &mut self.late] {
            most.set(place, (0, place));
        }
        let span = self.span(stay.added.1, stay.taken.0);
        self.inside.add(span, -1);
        self.next[place] = place + 1;
    }
}

/// Counts by place that rise and fall over ranges, and the least in a range.
struct InsideCounts {
    /// The least below a node, with its place, and the sum that was added to all of it since.
    nodes: Vec<(i64, usize, i64)>,
    places: usize,
}

impl InsideCounts {
    fn new(places: usize) -> Self {
        let mut counts = Self {
            nodes: vec![(0, 0, 0); places.next_power_of_two() * 2],
            places: places.next_power_of_two(),
        };
        for node in (1..counts.nodes.len()).rev() {
            counts.nodes[node].1 = match node.checked_sub(counts.places) {
                Some(place) => place,
                None => counts.nodes[node * 2].1,
            };
        }
        counts
    }

    fn add(&mut self, range: Range<usize>, by: i64) {
        self.add_below(1, 0..self.places, &range, by);
    }

    fn add_below(&mut self, node: usize, own: Range<usize>, range: &Range<usize>, by: i64) {
        if range.end <= own.start || own.end <= range.start {
            return;
        }
        if range.start <= own.start && own.end <= range.end {
            self.nodes[node].0 += by;
            self.nodes[node].2 += by;
            return;
        }
        let middle = own.start.midpoint(own.end);
        self.add_below(node * 2, own.start..middle, range, by);
        self.add_below(node * 2 + 1, middle..own.end, range, by);
        let (left, right) = (self.nodes[node * 2], self.nodes[node * 2 + 1]);
        let (least, place) = (left.0, left.1).min((right.0, right.1));
        (self.nodes[node].0, self.nodes[node].1) = (least + self.nodes[node].2, place);
    }

    /// Returns the least count in a range and its first place.
    fn least(&self, range: Range<usize>) -> (i64, usize) {
        self.least_below(1, 0..self.places, &range)
    }

    fn least_below(&self, node: usize, own: Range<usize>, range: &Range<usize>) -> (i64, usize) {
        if range.end <= own.start || own.end <= range.start {
            return (i64::MAX, range.start);
        }
        let (least, place, added) = self.nodes[node];
        if range.start <= own.start && own.end <= range.end {
            return (least, place);
        }
        let middle = own.start.midpoint(own.end);
        let left = self.least_below(node * 2, own.start..middle, range);
        let right = self.least_below(node * 2 + 1, middle..own.end, range);
        let (least, place) = left.min(right);
        (least.saturating_add(added), place)
    }
}
