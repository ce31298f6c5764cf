//! Streams of random numbers, each from the seed of its world and a name.
//!
//! Each actor draws from a stream of its own, so that an actor more or less changes no draw of the others.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Returns the stream `name` of the seed. Only integers should be drawn from it: functions such as `ln` differ from machine to
/// machine.
pub(crate) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let mut key = [0; 32];
    for (turn, part) in (0_u64..).zip(key.chunks_exact_mut(8)) {
        part.copy_from_slice(&word(seed, turn, name).to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// Hashes the seed, the number of the word and the name by FNV-1a, with its bits spread by the finalizer of SplitMix64.
fn word(seed: u64, turn: u64, name: &str) -> u64 {
    let head = seed.to_le_bytes().into_iter().chain(turn.to_le_bytes());
    let hash = head.chain(name.bytes()).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_name_and_nothing_else() {
        let first = |seed, name| stream(seed, name).next_u64();
        assert_eq!(first(1, "c0"), first(1, "c0"));
        let drawn = [
            first(1, "c0"),
            first(2, "c0"),
            first(1, "c1"),
            first(1, ""),
            first(1, "c00"),
        ];
        for (i, one) in drawn.iter().enumerate() {
            assert!(drawn[..i].iter().all(|other| other != one), "{drawn:?}");
        }
    }

    /// A change here changes every run of every seed: stored finds would not be found again.
    #[test]
    fn the_numbers_of_a_stream_stay_as_they_are() {
        let mut dice = stream(42, "latency c3->n1");
        assert_eq!([dice.next_u64(), dice.next_u64()], GOLDEN);
    }

    const GOLDEN: [u64; 2] = [5_749_697_446_290_096_760, 6_264_366_960_386_803_438];
}
