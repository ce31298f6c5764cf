//! Seeds of experiments: as they are typed, fresh ones, and those that are drawn from another.

use std::hash::{BuildHasher, Hasher};
use std::iter;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub fn parse_seed(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "expected up to 16 hexadecimal digits".to_owned())
}

/// Returns a random seed, short enough to type.
pub fn fresh_seed() -> u64 {
    u64::from(std::hash::RandomState::new().build_hasher().finish() as u32)
}

/// `count` seeds: the first, and others drawn from it.
pub fn seeds(first: u64, count: u32) -> impl Iterator<Item = u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(first);
    let drawn = iter::repeat_with(move || u64::from(rng.random::<u32>()));
    iter::once(first).chain(drawn).take(count as usize)
}
