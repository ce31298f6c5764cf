//! What the checkers must answer: one program, so that one is linked.

mod clock_error;
mod collections;
mod corpus;
mod drawing;
mod every_way;
mod golden;
mod independent;
mod monitor;
mod properties;
mod reading;
mod readme;
mod search;

use harness_checkers::{Entry, F, Kind, Process};

/// Chance that comes from a number which is not 0: of so many sides, the one that is up. Xorshift, by G. Marsaglia (2003),
/// <https://doi.org/10.18637/jss.v008.i14>.
fn dice(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % sides
    }
}

/// What every event has, as it was written.
fn essentials(entry: &Entry<'_>) -> (u64, u64, Process, Kind, F, Option<u64>) {
    let Entry {
        index,
        time_ns,
        process,
        kind,
        f,
        token,
        ..
    } = *entry;
    let f = if entry.extends { F::Extend } else { f };
    (index, time_ns, process, kind, f, token)
}
