//! Chance for tests, of this folder and within the crate.

/// Chance that comes from a number which is not 0: of so many sides, the one that is up. Xorshift, by G. Marsaglia (2003),
/// <https://doi.org/10.18637/jss.v008.i14>.
pub fn dice(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % sides
    }
}
