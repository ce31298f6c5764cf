//! Random numbers for tests, of this folder and within the crate.

/// Returns a generator from a seed that is not 0: it returns a number below its parameter. Xorshift, by G. Marsaglia (2003),
/// <https://doi.org/10.18637/jss.v008.i14>.
pub fn dice(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % sides
    }
}
