//! The fuzz target: no input panics. Each history that can be read is judged by every model, exported, and read again.
//!
//! `cargo +nightly fuzz run check` in `checkers/`. `tests/corpus.rs` replays the corpus as well.
#![no_main]

#[path = "../../tests/every_way.rs"]
mod every_way;

libfuzzer_sys::fuzz_target!(|data: &[u8]| every_way::every_way(data));
