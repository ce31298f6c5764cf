//! No input panics: whatever can be read is judged by every model, exported, and read again.
//!
//! `cargo +nightly fuzz run check` in `checkers/`. The corpus is replayed by `tests/corpus.rs` as well.
#![no_main]

#[path = "../../tests/every_way.rs"]
mod every_way;

libfuzzer_sys::fuzz_target!(|data: &[u8]| every_way::every_way(data));
