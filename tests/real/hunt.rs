//! Hunts on real servers: they find a broken lock and no correct one, an interrupted hunt continues, and a violation is
//! cut down to the window that it needs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command::{Answer, Harness, again, assert_has, processes_of, tests};
use crate::machine::send;

/// Returns the only folder of a hunt in the results.
fn folder_of(harness: &Harness) -> PathBuf {
    let mut hunts = harness.hunts();
    assert_eq!(hunts.len(), 1, "one hunt has one folder");
    hunts.remove(0)
}

fn runs_in(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("runs")).map_or(0, |entries| entries.flatten().count())
}

#[test]
fn a_broken_lock_is_found_and_its_run_is_kept() {
    let harness = Harness::new();
    // the release of this lock is a GET, a comparison, and a DEL that may come late
    let words = "hunt --json --backend redis --runtime local --recipe redis-setnx --fault drop-reply=SET,kill-holder \
                 --for 4m --seed 3";
    let record = harness.printed(words, 1);
    let find = &record["finds"][0];
    assert_eq!(find["property"], "HL005", "{record:#}");
    let folder = folder_of(&harness);
    let run = folder.join(find["run"].as_str().expect("a find has a run"));
    for file in [
        "history.jsonl",
        "run.json",
        "verdict.json",
        "report.html",
        "nodes/n1/server.log",
    ] {
        assert!(run.join(file).is_file(), "{file} of {}", run.display());
    }
    assert_eq!(
        runs_in(&folder),
        record["finds"].as_array().map_or(0, Vec::len),
        "the others are removed"
    );
    assert!(!folder.join("servers").exists());
    // the stored run is decided in the same way
    harness.printed(&format!("check --json {}", run.display()), 1);
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

/// Asserts that a hunt on a correct lock finds nothing in this number of experiments: above all, no leftovers of an earlier
/// one on the same servers.
fn nothing_is_found(words: &str, experiments: u64) {
    let harness = Harness::new();
    let hunt = format!("hunt --json --runtime local --seed 3 --experiments {experiments} {words}");
    let record = harness.printed(&hunt, 0);
    let counts = &record["counts"];
    assert!(counts["held"].as_u64() >= Some(1), "{record:#}");
    assert_eq!(counts["experiments"], experiments, "{record:#}");
    assert_eq!(counts["failed"], 0, "{record:#}");
    assert_eq!(runs_in(&folder_of(&harness)), 0, "nothing is kept of what held");
}

#[test]
fn a_hunt_that_is_interrupted_ends_and_goes_on_where_it_was() {
    let harness = Harness::new();
    let mut child = harness.start("hunt --backend redis --runtime local --fault reset --for 300s --seed 5");
    let mut lines = BufReader::new(child.stderr.take().expect("its stderr is a pipe")).lines();
    // the line of the first experiment: the second one is running
    let first = lines.next().expect("it says something").expect("it is text");
    assert!(first.starts_with("[  1] "), "{first}");
    send(child.id(), Signal::SIGINT);
    lines.for_each(drop);
    let interrupted = Answer::of_child(child);
    interrupted.assert_exit(130);
    let folder = folder_of(&harness);
    let name = folder.file_name().unwrap().to_string_lossy();
    assert_has(
        &interrupted.stdout,
        &[&format!("harness hunt --continue results/{name}")],
    );
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());

    let record: Value = serde_json::from_slice(&std::fs::read(folder.join("hunt.json")).unwrap()).unwrap();
    assert_eq!(record["counts"]["experiments"], 1, "{record:#}");
    assert_eq!(record["open"], json!([1]), "the second one is made again");
    let goes_on = harness.answer(&format!("hunt --json --continue results/{name} --for 1s"));
    goes_on.assert_exit(0);
    assert_has(&goes_on.stderr, &["[  2] "]);
    let on = &goes_on.diagnosis;
    assert_eq!(
        json!([on["counts"]["experiments"], on["next"]]),
        json!([2, 2]),
        "{on:#}"
    );
    assert_eq!(on["open"], json!([]));
    assert_eq!(on["options"], record["options"]);
}

mod nightly {
    use super::*;

    #[test]
    fn a_violation_is_cut_down_to_the_window_that_matters() {
        let harness = Harness::new();
        // one of five windows strikes a naive holder
        let words = "--backend redis --runtime local --recipe redis-set-px-del --holder naive --lease 500ms --time 14s --clients 4 \
                     --fault partition=holder,latency=5ms --hold 50ms --seed 6";
        let run = harness.run(words);
        run.assert_exit(1);
        let planned = run.windows();
        assert!(planned.len() >= 4, "{planned:#?}");
        let cut = harness.printed("shrink latest --json --runs 8 --confirm 1", 1);
        let left = cut["windows"].as_array().expect("windows are left");
        assert_eq!(left.len(), 1, "{cut:#}");
        let number = left[0].as_u64().expect("it is a number");
        let kept = planned.iter().find(|window| window["number"] == number).unwrap();
        assert_eq!(kept["fault"], "partition", "{cut:#}");
        assert_eq!(cut["hit_rate"], json!({ "hits": 1, "runs": 1 }));
        assert!(cut["length_ms"].as_u64() < cut["length_before_ms"].as_u64(), "{cut:#}");
        let again = again(&cut);
        let names_it = format!("{again} ").contains(&format!(" --windows {number} "));
        assert!(names_it, "the words name the window: {again}");
        let plan = harness.answer(&format!("{again} --dry-run")).stdout;
        assert_has(&plan, &[&format!("window {number} ")]);
        assert_eq!(plan.matches("  window ").count(), 1, "{plan}");
    }

    tests! {
        nothing_is_found:
            a_right_lock_on_zookeeper_holds_on_servers_that_are_kept("--backend zk --fault reset,partition=leader", 2)
            a_right_lock_on_etcd_holds_on_servers_that_are_kept("--backend etcd --fault reset,drop-reply=Txn", 2)
            a_right_lock_on_redis_holds_in_two_jobs_with_servers_of_their_own(
                "--backend redis --fault reset,drop-reply=SET,kill-holder --jobs 2", 4)
    }
}
