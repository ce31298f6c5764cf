//! Odd turns, with an unusual call of the application ([`OddTurn`]): a lock library is used in more ways than one.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::config::Demand;

/// The unusual call of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OddTurn {
    /// It does not release a lock that it lost.
    LeavesLosses,
    /// It releases a lock twice.
    ReleasesTwice,
    /// It closes its client while it holds, as a program does that is asked to end.
    ClosesHolding,
    /// It asks for its own lock, without a wait.
    AsksAgain,
    /// It lets a lease end, and extends it too late.
    ExtendsLate,
}

impl OddTurn {
    /// Draws the unusual call of a client's next turn, most often none. `alone`: it is the only one in its process. Draws
    /// no number if the demand has no odd turns.
    pub fn draw(demand: &Demand, alone: bool, rng: &mut ChaCha8Rng) -> Option<Self> {
        if demand.odd_turns == 0 || rng.random_range(0..100) >= demand.odd_turns {
            return None;
        }
        let possible = [
            (Self::LeavesLosses, demand.odd.leaves_losses),
            (Self::ReleasesTwice, demand.odd.releases_twice),
            (Self::ClosesHolding, alone),
            (Self::AsksAgain, demand.odd.asks_again),
            (Self::ExtendsLate, demand.odd.extends_late),
        ];
        let possible = possible.into_iter().filter_map(|(turn, may)| may.then_some(turn));
        let possible: Vec<Self> = possible.collect();
        possible.choose(rng).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;
    use crate::config::OddTurns;

    #[test]
    fn a_turn_is_odd_as_often_as_it_is_to_be_and_in_the_ways_that_the_contract_allows() {
        let drawn = |odd_turns: u32, asks_again: bool, alone: bool| {
            let odd = OddTurns {
                leaves_losses: true,
                releases_twice: true,
                asks_again,
                extends_late: asks_again,
            };
            let mut demand = Demand::default();
            (demand.odd_turns, demand.odd) = (odd_turns, odd);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let turns: Vec<OddTurn> = (0..1000)
                .filter_map(|_| OddTurn::draw(&demand, alone, &mut rng))
                .collect();
            let kinds: BTreeSet<String> = turns.iter().map(|turn| format!("{turn:?}")).collect();
            (turns.len(), kinds.len())
        };
        assert_eq!(drawn(0, true, true), (0, 0));
        assert_eq!(drawn(100, true, true), (1000, 5));
        assert_eq!(drawn(100, false, false), (1000, 2));
        let (some, kinds) = drawn(20, false, true);
        assert!((150..250).contains(&some) && kinds == 3, "{some} {kinds}");
    }
}
