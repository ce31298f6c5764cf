//! The tests of the checkers: one program, so that one is linked.

mod clock_error;
mod collections;
mod corpus;
mod dice;
mod drawing;
mod every_way;
mod golden;
mod independent;
mod monitor;
mod reading;
mod search;

use harness_checkers::linearizability::Operation;
use harness_checkers::{Entry, F, History, Kind, Options, Process, Property, ReadOptions, Verdict, check};

/// Returns the fields that every event has.
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

fn read(text: &str) -> Result<History, String> {
    read_bytes(text.as_bytes())
}

fn read_bytes(bytes: &[u8]) -> Result<History, String> {
    History::read(bytes, &ReadOptions::default()).map_err(|error| error.to_string())
}

/// Returns the verdict of a property, by the model of the header.
fn verdict(history: &History, property: Property) -> Verdict {
    check(history, &Options::default()).of(property).verdict
}

/// An operation that was answered.
fn done<O>(op: O, call: u64, reply: u64) -> Operation<O> {
    Operation {
        op,
        call,
        reply: Some(reply),
    }
}
