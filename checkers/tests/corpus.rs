//! Replays the corpus of the fuzz target, and a few thousand mutations of it: no input panics.

use super::dice::dice;
use super::every_way::every_way;
use super::independent::chance::asked;

fn corpus() -> Vec<(String, Vec<u8>)> {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("fuzz/corpus/check"), root.join("tests/golden")];
    // The published crate comes without its fuzzer.
    let there = folders.iter().filter(|folder| folder.exists());
    let entries = there.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: std::path::PathBuf| (path.display().to_string(), std::fs::read(&path).unwrap());
    files.into_iter().map(read).collect()
}

#[test]
fn the_corpus_is_replayed_without_a_panic() {
    let corpus = corpus();
    assert!(corpus.len() > 30, "the corpus is there");
    for (name, data) in corpus {
        println!("{name}");
        every_way(&data);
    }
}

#[test]
fn twisted_histories_are_refused_or_judged() {
    twist(10);
}

mod nightly {
    #[test]
    fn twisted_histories_are_refused_or_judged() {
        super::twist(200);
    }
}

/// Mutates each file as often as usual, or as `TWISTS` says: lines swapped, removed and repeated, bytes flipped, the end cut off. Most are
/// refused, the others are judged.
fn twist(usual: u64) {
    let rounds = asked("TWISTS", usual);
    let mut dice = dice(0x2545_f491_4f6c_dd1d);
    let mut next = |below: usize| dice(below.max(1) as u64) as usize;
    for (name, data) in corpus() {
        for _ in 0..rounds {
            let mut lines: Vec<Vec<u8>> = data
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            for _ in 0..1 + next(4) {
                let (a, b) = (next(lines.len()), next(lines.len()));
                match next(5) {
                    0 => lines.swap(a, b),
                    1 if lines.len() > 1 => drop(lines.remove(a)),
                    2 => lines.insert(a, lines[b].clone()),
                    3 if !lines[a].is_empty() => {
                        let at = next(lines[a].len());
                        lines[a][at] = b"0123456789\"{}[]:,ae-"[next(20)];
                    }
                    _ => {
                        let keep = next(lines[a].len());
                        lines[a].truncate(keep);
                    }
                }
            }
            println!("{name}");
            every_way(&lines.concat());
        }
    }
}
