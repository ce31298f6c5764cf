//! Clients that promise `forks`: their program starts once for a hunt, and each client is a fork that behaves like a started one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{CLIENT, harness_on};
use crate::command::Harness;

const EXPERIMENTS: usize = 3;
/// A program with an open file cannot be forked, and is started instead.
const BEGINS: &str = "import os, subprocess, random, socket
open('begun', 'a').write('.')
kept = open('begun') if os.path.exists('started') else None
";

/// Returns a client that logs its start, starts a program when it opens, and has an owner of its process id and a random number.
fn program(begins: &str) -> String {
    let owner = "value, end = f\"{os.getpid()}:{random.random()}\", time.monotonic() + wait_ms / 1000";
    let text = CLIENT.replace(
        "value, end = str(uuid.uuid1()), time.monotonic() + wait_ms / 1000",
        owner,
    );
    assert!(text.contains(owner));
    let text = text.replace("import random, socket,", &format!("{BEGINS}{begins}\nimport"));
    let open = "def open(self, endpoints, lease_ms):\n";
    text.replace(
        open,
        &format!(
            "contract = {{'lease': True, 'renews': False, 'owner': 'server', 'token': 'none', 'keys': 'harness:{{lock}}', \
             'value': 'string', 'forks': True}}\n\n    {open}        subprocess.run(['sleep', '0.01'], check=True)\n"
        ),
    )
}

impl Harness {
    /// Hunts with such a client, and returns the kept runs.
    fn hunted(&self, begins: &str, options: &str) -> Vec<PathBuf> {
        let client = self.client(&program(begins));
        let words = format!(
            "hunt --runtime virtual --backend redis {client} --fault pause-holder,kill --set clients=3 --set grants=40 --until end \
             --experiments {EXPERIMENTS} --seed 1 {options}"
        );
        let hunted = self.answer(&words);
        hunted.assert_exit(1);
        let kept = fs::read_dir(self.hunts()[0].join("runs")).unwrap();
        let kept: Vec<_> = kept.map(|entry| entry.unwrap().path()).collect();
        assert!(!kept.is_empty(), "{}", hunted.said());
        kept
    }

    /// Returns the number of starts of the client's program since the last call.
    fn begun(&self) -> usize {
        let file = self.folder.path().join("begun");
        let begun = fs::read(&file).unwrap().len();
        fs::remove_file(file).unwrap();
        begun
    }
}

/// Returns the owners of a history, as its clients made them: a process id and a random number.
fn owners(run: &Path) -> Vec<(String, String)> {
    let history = fs::read_to_string(run.join("history.jsonl")).unwrap();
    let grants = history
        .lines()
        .filter(|line| line.contains(r#""acquire""#) && line.contains(r#""ok""#));
    let owners = grants.filter_map(|line| line.split(r#""owner":""#).nth(1)?.split('"').next()?.split_once(':'));
    owners
        .map(|(process, random)| (process.to_owned(), random.to_owned()))
        .collect()
}

#[test]
fn a_fork_is_the_same_client_as_one_that_was_started() {
    let Some(harness) = harness_on("redis") else { return };
    let kept = harness.hunted("", "");
    // the fork server, and in each experiment the client that is asked for its contract
    assert_eq!(harness.begun(), 1 + EXPERIMENTS);
    for run in &kept {
        let owners = owners(run);
        let numbers: BTreeSet<_> = owners.iter().map(|(process, _)| process).collect();
        let random: BTreeSet<_> = owners.iter().map(|(_, random)| random).collect();
        assert!(numbers.len() > 3, "{numbers:?}");
        assert_eq!(random.len(), owners.len());
        harness.assert_same_again(&run.display().to_string());
    }
    // the fork server of each, and the client that is asked for its contract
    assert_eq!(harness.begun(), 2 * kept.len());
    fs::write(harness.folder.path().join("started"), "").unwrap();
    for run in &kept {
        harness.assert_same_again(&run.display().to_string());
    }
    // a process for each client, and the failed fork server
    assert!(harness.begun() > 4 * kept.len());
}

#[test]
fn a_client_that_cannot_be_forked_is_started() {
    let Some(harness) = harness_on("redis") else { return };
    let thread = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()";
    // the order of a fork's threads is that of the fork server, and not a drawn one
    for (begins, options) in [(thread, ""), ("", "--set threads-by-seed=true")] {
        let kept = harness.hunted(begins, options);
        assert!(harness.begun() > 4 * EXPERIMENTS, "{options}");
        harness.assert_same_again(&kept[0].display().to_string());
        assert!(harness.begun() > 1);
    }
}
