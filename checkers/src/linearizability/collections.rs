//! Linearizability of sets, queues and stacks to which each value is added once: decided in the time of a sort, without a search.
//!
//! A value is certainly inside between the answer of its addition and the call of its removal; a removal that found no value needs an
//! instant at which none is certainly inside. The other rules are:
//!
//! - A set is one object for each value.
//! - A queue has an order exactly when no value is removed before it is added, and no value is overtaken: T. Henzinger, A. Sezgin and
//!   V. Vafeiadis, "Aspect-Oriented Linearizability Proofs" (2013), <https://doi.org/10.1007/978-3-642-40184-8_18>.
//! - A stack is decided in [`super::stack`].

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use super::spec::Operation;
use super::stack::{FOREVER, NEVER, Stay, without_a_bottom};

/// One operation on a set, a queue or a stack with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectionOp<V> {
    /// A value was added.
    Add(V),
    /// A value was removed: the oldest one of a queue, the latest one of a stack, the named one of a set. `None` if there was none; a set
    /// names that value by [`Self::Contains`].
    Take(Option<V>),
    /// Whether a set has a value. Queues and stacks have no such operation.
    Contains(V, bool),
}

/// The decision about operations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Collected {
    /// They have an order.
    Legal,
    /// They have no order. The places of operations that suffice for that, sorted; the others may have none, either.
    Illegal(Vec<usize>),
    /// A value is added or removed twice, the removed value is unknown, or the object has no such operation: the general
    /// [`search`](super::search()) may decide it.
    NotApplicable,
}

/// The operations of a queue or a stack by value, and the removals that found no value.
struct Stays {
    stays: Vec<Stay>,
    empty: Vec<usize>,
}

/// Groups the operations by value; the error is the decision, if there is one already.
fn read<V: Eq + Hash + Copy>(operations: &[Operation<CollectionOp<V>>]) -> Result<Stays, Collected> {
    let mut added: HashMap<V, usize> = HashMap::new();
    let mut taken: HashMap<V, usize> = HashMap::new();
    let mut empty = Vec::new();
    for (place, operation) in operations.iter().enumerate() {
        let unfit = match operation.op {
            CollectionOp::Add(value) => added.insert(value, place).is_some(),
            CollectionOp::Take(Some(value)) if operation.reply.is_some() => taken.insert(value, place).is_some(),
            CollectionOp::Take(None) if operation.reply.is_some() => {
                empty.push(place);
                false
            }
            CollectionOp::Take(_) | CollectionOp::Contains(..) => true,
        };
        if unfit {
            return Err(Collected::NotApplicable);
        }
    }
    let mut stays = Vec::with_capacity(added.len());
    for (value, place) in added {
        let add = &operations[place];
        match (taken.remove(&value), add.reply) {
            // No answer confirmed the value, and no removal returned it.
            (None, None) => {}
            (None, Some(reply)) => stays.push(Stay {
                added: (add.call, reply),
                taken: FOREVER,
                places: (place, NEVER),
            }),
            (Some(by), _) => {
                let take = &operations[by];
                let until = take.reply.unwrap_or(u64::MAX);
                if until < add.call {
                    return Err(illegal([place, by]));
                }
                stays.push(Stay {
                    added: (add.call, add.reply.unwrap_or(until).min(until)),
                    taken: (take.call.max(add.call), until),
                    places: (place, by),
                });
            }
        }
    }
    // Values that were removed and never added.
    if let Some(by) = taken.into_values().min() {
        return Err(illegal([by]));
    }
    stays.sort_unstable_by_key(|stay| stay.places);
    Ok(Stays { stays, empty })
}

fn illegal(places: impl IntoIterator<Item = usize>) -> Collected {
    let places: BTreeSet<usize> = places.into_iter().collect();
    Collected::Illegal(places.into_iter().collect())
}

/// Decides a queue: first in, first out.
pub fn decide_queue<V: Eq + Hash + Copy>(operations: &[Operation<CollectionOp<V>>]) -> Collected {
    let Stays { stays, empty } = match read(operations) {
        Ok(stays) => stays,
        Err(answer) => return answer,
    };
    // By the answer of their addition, the one so far that is removed the latest.
    let mut early: Vec<&Stay> = stays.iter().collect();
    early.sort_unstable_by_key(|stay| stay.added.1);
    let mut late: Vec<&Stay> = stays.iter().filter(|stay| stay.taken != FOREVER).collect();
    late.sort_unstable_by_key(|stay| stay.added.0);
    let (mut rest, mut latest) = (early.into_iter().peekable(), None::<&Stay>);
    for stay in late {
        while let Some(before) = rest.next_if(|before| before.added.1 < stay.added.0) {
            latest = latest.filter(|other| other.taken.0 >= before.taken.0).or(Some(before));
        }
        if let Some(before) = latest.filter(|before| before.taken.0 > stay.taken.1) {
            return illegal(before.places().chain(stay.places()));
        }
    }
    found_nothing(operations, &stays, &empty)
}

/// Decides a stack: last in, first out.
pub fn decide_stack<V: Eq + Hash + Copy>(operations: &[Operation<CollectionOp<V>>]) -> Collected {
    let Stays { stays, empty } = match read(operations) {
        Ok(stays) => stays,
        Err(answer) => return answer,
    };
    // The others can be pushed and popped at one instant.
    let certain = stays.iter().copied().filter(|stay| stay.is_certain()).collect();
    match without_a_bottom(certain) {
        Some(values) => illegal(values.iter().flat_map(|stay| stay.places())),
        None => found_nothing(operations, &stays, &empty),
    }
}

/// Decides whether each removal that found no value has an instant at which no value is certainly inside.
fn found_nothing<V>(operations: &[Operation<CollectionOp<V>>], stays: &[Stay], empty: &[usize]) -> Collected {
    let mut certain: Vec<&Stay> = stays.iter().filter(|stay| stay.is_certain()).collect();
    certain.sort_unstable_by_key(|stay| stay.added.1);
    // Spans in which some value is certainly inside, each with the first of its values.
    let mut full: Vec<(u64, u64, usize)> = Vec::new();
    for (at, stay) in certain.iter().enumerate() {
        let (from, to) = (stay.added.1, stay.taken.0);
        match full.last_mut() {
            Some((_, until, _)) if from < *until => *until = to.max(*until),
            _ => full.push((from, to, at)),
        }
    }
    for place in empty {
        let operation = &operations[*place];
        let (call, reply) = (operation.call, operation.reply.unwrap_or(u64::MAX));
        let next = full.partition_point(|(from, ..)| *from < call);
        let Some(&(_, until, first)) = next.checked_sub(1).map(|before| &full[before]) else {
            continue;
        };
        if reply < until {
            let end = full.get(next).map_or(certain.len(), |(_, _, first)| *first);
            let meets = |stay: &&&Stay| stay.taken.0 > call && stay.added.1 < reply;
            let those = certain[first..end].iter().filter(meets);
            return illegal(those.flat_map(|stay| stay.places()).chain([*place]));
        }
    }
    Collected::Legal
}

/// Decides a set: each value by itself.
pub fn decide_set<V: Eq + Hash + Copy>(operations: &[Operation<CollectionOp<V>>]) -> Collected {
    let mut by_value: HashMap<V, Vec<usize>> = HashMap::new();
    for (place, operation) in operations.iter().enumerate() {
        let value = match operation.op {
            CollectionOp::Add(value) | CollectionOp::Take(Some(value)) | CollectionOp::Contains(value, _) => value,
            CollectionOp::Take(None) => return Collected::NotApplicable,
        };
        by_value.entry(value).or_default().push(place);
    }
    let mut values: Vec<Vec<usize>> = by_value.into_values().collect();
    values.sort_unstable();
    let mut all = Collected::Legal;
    for places in values {
        match decide_value(operations, &places) {
            Collected::Legal => {}
            proven @ Collected::Illegal(_) => return proven,
            unknown @ Collected::NotApplicable => all = unknown,
        }
    }
    all
}

/// Decides one value of a set: absent, then present, then absent again. An operation that found it needs an early addition and a late
/// removal, an operation that did not the opposite.
fn decide_value<V>(operations: &[Operation<CollectionOp<V>>], places: &[usize]) -> Collected {
    let (mut add, mut take) = (None, None);
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    for place in places {
        let operation = &operations[*place];
        // An operation without a reply may take effect after all others.
        let span = (operation.call, operation.reply.unwrap_or(u64::MAX));
        let before = match operation.op {
            CollectionOp::Add(_) => add.replace(span),
            CollectionOp::Take(_) if operation.reply.is_none() && take.is_none() => {
                take = Some(span);
                None
            }
            CollectionOp::Take(_) => {
                seen.push(span);
                take.replace(span)
            }
            CollectionOp::Contains(..) if operation.reply.is_none() => None,
            CollectionOp::Contains(_, there) => {
                if there { &mut seen } else { &mut unseen }.push(span);
                None
            }
        };
        if before.is_some() {
            return Collected::NotApplicable;
        }
    }
    let Some(added) = add else {
        return match seen.is_empty() {
            true => Collected::Legal,
            false => illegal(places.iter().copied()),
        };
    };
    let taken = take.unwrap_or(FOREVER);
    let first_seen = seen.iter().map(|(_, reply)| *reply).min().unwrap_or(u64::MAX);
    let last_seen = seen.iter().map(|(call, _)| *call).max().unwrap_or(0);
    let latest_add = added.1.min(first_seen);
    let earliest_take = taken.0.max(last_seen).max(added.0);
    let fits = latest_add >= added.0 && earliest_take <= taken.1;
    let missed = |(call, reply): &(u64, u64)| *call > latest_add && *reply < earliest_take;
    if fits && !unseen.iter().any(missed) {
        Collected::Legal
    } else {
        illegal(places.iter().copied())
    }
}
