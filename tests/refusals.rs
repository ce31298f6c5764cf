//! Refusals: command lines that are refused with a hint, a row each in `refusals.txt`. None of them needs a server.

use crate::command::Harness;

/// Maximum number of rows that run at once.
const AT_ONCE: usize = 4;

/// Asserts a row: `2 run --backend redis --fault parttion => a sentence => another one`.
fn is_refused(row: &str) {
    let harness = Harness::new();
    let row = row.replace("ROOT", env!("CARGO_MANIFEST_DIR"));
    let (exit, line) = row.split_once(' ').expect("an exit code");
    let (words, said) = line.split_once(" => ").expect("a sentence");
    let sentences: Vec<&str> = said.split(" => ").collect();
    harness.assert_says(words, exit.parse().expect("a number"), &sentences);
    if exit == "2" && words.starts_with("run ") {
        assert!(!harness.results().exists(), "a run has begun: {words}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_what_can() {
    let lines = include_str!("refusals.txt").lines();
    let is_row = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let rows: Vec<&str> = lines.filter(is_row).collect();
    std::thread::scope(|scope| {
        for part in rows.chunks(rows.len().div_ceil(AT_ONCE)) {
            scope.spawn(move || part.iter().for_each(|row| is_refused(row)));
        }
    });
}
