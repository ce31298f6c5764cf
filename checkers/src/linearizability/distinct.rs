//! Linearizability of registers to which each value is written once: decided in the time of a sort, without a search.
//!
//! P. Gibbons and E. Korach, "Testing Shared Memories" (1997), <https://doi.org/10.1137/S0097539794279614>. A write and the reads of
//! its value are a cluster. One in which an answer comes before another call needs the register from the first answer to the last
//! call: its zone. The history has an order exactly when no read is answered before its value is written, and no such zone meets
//! the span between last call and first answer of another cluster.

use super::register::RegisterOp;
use super::spec::Operation;
use crate::history::names::FastMap;

/// The operations on one value.
#[derive(Debug, Clone, Copy, Default)]
struct ValueCluster {
    /// The time of the call of its write.
    written: u64,
    /// The times of the first answer and of the last call.
    first_reply: u64,
    last_call: u64,
}

impl ValueCluster {
    /// Returns whether every order has a time in which the register has its value.
    fn is_forward(&self) -> bool {
        self.first_reply < self.last_call
    }
}

/// Returns whether the operations of a register with this value at the start have an order, without regard to each process's own order at
/// one instant; `None` if a value is written twice, or an operation is neither a read nor a write.
pub(super) fn has_order(operations: &[Operation<RegisterOp>], start: Option<u64>) -> Option<bool> {
    let compares = |op: &RegisterOp| matches!(op, RegisterOp::Cas { .. } | RegisterOp::CasFailed { .. });
    if operations.iter().any(|operation| compares(&operation.op)) {
        return None;
    }
    let mut clusters: FastMap<Option<u64>, ValueCluster> = FastMap::default();
    // The start is before all times.
    let after_start = |time: u64| time.saturating_add(1);
    clusters.insert(start, ValueCluster::default());
    for operation in operations {
        let RegisterOp::Write(value) = operation.op else {
            continue;
        };
        let write = ValueCluster {
            written: after_start(operation.call),
            first_reply: operation.reply.map_or(u64::MAX, after_start),
            last_call: after_start(operation.call),
        };
        if clusters.insert(Some(value), write).is_some() {
            return None;
        }
    }
    for operation in operations {
        let RegisterOp::Read(value) = operation.op else {
            continue;
        };
        let Some(reply) = operation.reply.map(after_start) else {
            continue;
        };
        match clusters.get_mut(&value) {
            Some(cluster) if cluster.written <= reply => {
                cluster.first_reply = cluster.first_reply.min(reply);
                cluster.last_call = cluster.last_call.max(after_start(operation.call));
            }
            _ => return Some(false),
        }
    }
    let clusters = clusters.into_values();
    // At one time, calls come before answers: that allows most orders.
    let (mut forward, backward): (Vec<ValueCluster>, Vec<ValueCluster>) = clusters.partition(ValueCluster::is_forward);
    forward.sort_unstable_by_key(|cluster| cluster.first_reply);
    let apart = forward.windows(2).all(|both| both[0].last_call <= both[1].first_reply);
    let free = |cluster: &ValueCluster| {
        let before = forward.partition_point(|zone| zone.first_reply < cluster.last_call);
        let around = before.checked_sub(1).map(|last| forward[last]);
        around.is_none_or(|zone| zone.last_call <= cluster.first_reply)
    };
    Some(apart && backward.iter().all(free))
}

#[cfg(test)]
mod tests {
    use super::super::register::Register;
    use super::super::search::Searched;
    use super::super::search_run::search;
    use super::*;
    use crate::dice::dice;
    use crate::options::{Budget, Clock};

    /// Returns random reads and writes of a few clients, some of them with the value of a wrong moment; times in steps of `grain`.
    fn random(seed: u64, grain: u64) -> Vec<Operation<RegisterOp>> {
        let mut roll = dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let (mut operations, mut values) = (Vec::new(), vec![None]);
        for place in 0..3 + roll(9) {
            let at = 250 + place * 100;
            let (call, reply) = (at - roll(250), at + roll(250));
            let unknown = roll(6) == 0;
            let op = if roll(2) == 0 {
                values.push(Some(place));
                RegisterOp::Write(place)
            } else {
                let ago = roll(12).saturating_sub(8) as usize;
                RegisterOp::Read(values[(values.len() - 1).saturating_sub(ago)])
            };
            let rounded = |time: u64| time / grain * grain;
            operations.push(Operation {
                op,
                call: rounded(call),
                reply: Some(rounded(reply)).filter(|_| !unknown || matches!(op, RegisterOp::Read(_))),
            });
        }
        operations
    }

    #[test]
    fn the_clusters_and_the_search_say_the_same() {
        let (mut held, mut all) = (0, 0);
        for grain in [1, 100, 250] {
            for seed in 1..=20_000 {
                let operations = random(seed, grain);
                let found = has_order(&operations, None).expect("each value is written once");
                let searched = search(&Register::default(), &operations, Budget::default(), Clock::still());
                let expected = matches!(searched, Searched::Order(_));
                assert_eq!(found, expected, "seed {seed}, steps of {grain}: {operations:?}");
                (held, all) = (held + u32::from(found), all + 1);
            }
        }
        assert!((10..=90).contains(&(held * 100 / all)), "{held} of {all}");
    }

    #[test]
    fn other_histories_are_left_to_the_search() {
        let write = |value| Operation {
            op: RegisterOp::Write(value),
            call: 1,
            reply: Some(2),
        };
        assert_eq!(has_order(&[write(1), write(2)], None), Some(true));
        assert_eq!(has_order(&[write(1), write(1)], None), None);
        assert_eq!(has_order(&[write(1)], Some(1)), None);
        let cas = Operation {
            op: RegisterOp::Cas { expected: 1, new: 2 },
            ..write(0)
        };
        assert_eq!(has_order(&[cas], None), None);
    }
}
