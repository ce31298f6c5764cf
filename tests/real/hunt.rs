//! Hunts on real servers: a broken lock is found and a right one is not, an interrupted hunt goes on, and a violation is cut
//! down to the window that matters.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::command::{Harness, again, processes_of};

/// The only folder of a hunt in the results.
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
    // its release is a GET, a comparison, and a DEL that may come late
    let words = "hunt --json --backend redis --runtime local --recipe redis-setnx --fault drop-reply=SET,kill-holder \
                 --for 60s --seed 3";
    let (exit, record, stderr) = harness.printed(words);
    assert_eq!(exit, 1, "{stderr}");
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
    let (exit, ..) = harness.printed(&format!("check --json {}", run.display()));
    assert_eq!(exit, 1, "the stored run is decided in the same way");
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

/// A hunt on a lock that is right makes `experiments` or more, and finds nothing: above all not what an earlier experiment left on
/// the same servers.
fn nothing_is_found(words: &str, experiments: u64) {
    let harness = Harness::new();
    let (exit, record, stderr) = harness.printed(&format!("hunt --json --runtime local --seed 3 {words}"));
    assert_eq!(exit, 0, "{stderr}\n{record:#}");
    assert!(record["counts"]["held"].as_u64() >= Some(1), "{record:#}");
    assert!(
        record["counts"]["experiments"].as_u64() >= Some(experiments),
        "{record:#}"
    );
    assert_eq!(record["counts"]["failed"], 0, "{stderr}");
    assert_eq!(runs_in(&folder_of(&harness)), 0, "nothing is kept of what held");
}

#[test]
fn a_hunt_that_is_interrupted_ends_and_goes_on_where_it_was() {
    let harness = Harness::new();
    let words = "hunt --backend redis --runtime local --fault reset --for 300s --seed 5";
    let mut command = harness.command(words);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("harness can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("its stderr is a pipe")).lines();
    // the line of the first experiment: the second one goes on
    let first = lines.next().expect("it says something").expect("it is text");
    assert!(first.starts_with("[  1] "), "{first}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("it goes on");
    for line in lines {
        drop(line);
    }
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout);
    let folder = folder_of(&harness);
    let name = folder.file_name().unwrap().to_string_lossy();
    assert!(
        said.contains(&format!("harness hunt --continue results/{name}")),
        "{said}"
    );
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());

    let record: Value = serde_json::from_slice(&std::fs::read(folder.join("hunt.json")).unwrap()).unwrap();
    assert_eq!(record["counts"]["experiments"], 1, "{record:#}");
    assert_eq!(record["open"], serde_json::json!([1]), "the second one is made again");
    let (exit, on, stderr) = harness.printed(&format!("hunt --json --continue results/{name} --for 1s"));
    assert_eq!(exit, 0, "{stderr}");
    assert_eq!(
        (&on["counts"]["experiments"], &on["next"]),
        (&Value::from(2), &Value::from(2)),
        "{on:#}"
    );
    assert_eq!(on["open"], serde_json::json!([]));
    assert!(stderr.contains("[  2] "), "{stderr}");
    assert_eq!(on["options"], record["options"]);
}

mod nightly {
    use super::*;

    #[test]
    fn a_violation_is_cut_down_to_the_window_that_matters() {
        let harness = Harness::new();
        // of five windows one is on a holder that is naive
        let words = "--backend redis --runtime local --recipe redis-set-px-del --holder naive --lease 500ms --time 14s --clients 4 \
                     --fault partition=holder,latency=5ms --hold 50ms --seed 6";
        let run = harness.run(words);
        run.assert_exit(1);
        let planned = run.windows();
        assert!(planned.len() >= 4, "{planned:#?}");
        let (exit, cut, stderr) = harness.printed("shrink latest --json --runs 8 --confirm 1");
        assert_eq!(exit, 1, "{stderr}");
        let left = cut["windows"].as_array().expect("windows are left");
        assert_eq!(left.len(), 1, "{stderr}\n{cut:#}");
        let number = left[0].as_u64().expect("it is a number");
        let kept = planned.iter().find(|window| window["number"] == number).unwrap();
        assert_eq!(kept["fault"], "partition", "{cut:#}");
        assert_eq!(cut["hit_rate"], serde_json::json!({ "hits": 1, "runs": 1 }));
        assert!(cut["length_ms"].as_u64() < cut["length_before_ms"].as_u64(), "{cut:#}");
        let again = again(&cut);
        let names_it = format!("{again} ").contains(&format!(" --windows {number} "));
        assert!(names_it, "the words name the window: {again}");
        let dry = harness.output(&format!("{again} --dry-run"));
        let plan = String::from_utf8_lossy(&dry.stdout).into_owned();
        assert!(
            plan.contains(&format!("window {number} ")) && plan.matches("  window ").count() == 1,
            "{plan}"
        );
    }

    #[test]
    fn a_right_lock_on_zookeeper_holds_on_servers_that_are_kept() {
        nothing_is_found("--backend zk --fault reset,partition=leader --for 22s", 2);
    }

    #[test]
    fn a_right_lock_on_etcd_holds_on_servers_that_are_kept() {
        nothing_is_found("--backend etcd --fault reset,drop-reply=Txn --for 27s", 2);
    }

    #[test]
    fn a_right_lock_on_redis_holds_in_two_jobs_with_servers_of_their_own() {
        nothing_is_found(
            "--backend redis --fault reset,drop-reply=SET,kill-holder --for 12s --jobs 2",
            4,
        );
    }
}
