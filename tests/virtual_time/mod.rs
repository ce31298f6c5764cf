//! The command in virtual time: real servers and clients, runs that repeat byte by byte, and its refusals.

mod clients;
mod debugger;
mod forks;
mod shrink;
mod stores;
mod survey;
mod threads;
mod versions;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Answer, Harness, assert_has, assert_says, processes_of};
use crate::machine::{has_no_valkey, succeeds, write_program};

/// A lock of a library that does not exist: SET NX PX over a socket, released by a script, with waiting threads.
const CLIENT: &str = include_str!("clients/tiny_lock.py");

/// Returns the same client, whose process may be a fork: hunts start it once.
fn forking_client() -> String {
    let class = "class Tiny(Lock):\n";
    assert!(CLIENT.contains(class));
    CLIENT.replace(class, &format!("{class}    contract = {{\"forks\": True}}\n"))
}

impl Harness {
    fn virtual_time(&self, words: &str) -> Answer {
        self.run(&format!("--runtime virtual --backend redis {words}"))
    }

    /// Writes a client program, and returns its option.
    fn client(&self, text: &str) -> String {
        format!("--client={}", self.program("client", text).display())
    }

    /// Writes a client program of this name.
    fn program(&self, name: &str, text: &str) -> PathBuf {
        let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/adapters/python");
        let path = self.folder.path().join(name).with_extension("py");
        fs::write(&path, text).unwrap();
        self.script(name, &format!("exec python3 {} {adapters}", path.display()))
    }

    /// Writes a shell script of this name.
    fn script(&self, name: &str, text: &str) -> PathBuf {
        let script = self.folder.path().join(name).with_extension("sh");
        write_program(&script, text);
        script
    }

    /// Compiles a program in C of these tests.
    fn compiled(&self, source: &str, options: &[&str]) -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtual_time");
        let source = tests.join(source);
        let program = self.folder.path().join(source.file_stem().unwrap());
        succeeds(Command::new("cc").args(options).arg("-o").arg(&program).arg(source));
        program
    }

    /// Whether an adapter is installed here.
    fn has_client(&self, adapter: &str) -> bool {
        let listed = self.printed("list clients --json", 0);
        let is_it = |listed: &serde_json::Value| listed["name"] == adapter && listed["installed"] == true;
        let is_there = listed.as_array().unwrap().iter().any(is_it);
        if !is_there {
            eprintln!("skipped: the client {adapter} is not installed");
        }
        is_there
    }

    /// Asserts that the last run repeats.
    pub fn assert_replayed(&self) {
        self.assert_same_again("latest");
    }

    /// Asserts that a run repeats.
    pub fn assert_same_again(&self, run: &str) {
        let replayed = self.answer(&format!("replay {run}"));
        replayed.assert_exit(0);
        assert!(replayed.stdout.starts_with("the same history"), "{}", replayed.stdout);
    }
}

/// Returns a harness if this machine has the programs of a backend, by its list of packages; otherwise `None`, with a line on stderr.
pub fn harness_on(backend: &str) -> Option<Harness> {
    if backend == "valkey" {
        return (!has_no_valkey()).then(Harness::new);
    }
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/backends/{backend}/packages"));
    let lacks = Command::new(packages).output().unwrap();
    let is_here = lacks.stdout.is_empty();
    if !is_here {
        eprintln!("skipped: the servers of {backend} are not here");
    }
    is_here.then(Harness::new)
}

/// Asserts the outcomes of runs of one backend, each with its own words behind those of all. An outcome that ends with
/// `again` requires that the run repeats.
fn come_out(backend: &str, words: &str, runs: &[(&str, &str)]) {
    let Some(harness) = harness_on(backend) else { return };
    for (own, outcome) in runs {
        let words = format!("--runtime virtual --backend {backend} {words} {own}");
        let once = outcome.strip_suffix(", again");
        harness.run(&words).assert_is(once.unwrap_or(outcome));
        if once.is_some() {
            harness.assert_replayed();
        }
    }
}

#[test]
fn a_lock_that_is_right_is_right_and_one_that_outlives_its_lease_is_not() {
    let Some(harness) = harness_on("redis") else { return };
    let client = harness.client(CLIENT);
    let right = harness.virtual_time(&format!(
        "{client} --clients 3 --fault latency,reset --grants 60 --time 15s --seed 1"
    ));
    right.assert_is("0, all windows");
    let wrong = harness.virtual_time(&format!(
        "{client} --clients 3 --fault pause-holder --grants 60 --time 15s --seed 1"
    ));
    wrong.assert_violates("HL001");
    let left = harness.virtual_time("--recipe redis-setnx --clients 3 --fault kill-holder --time 15s --seed 1");
    left.assert_violates("HL005");
}

#[test]
fn a_replay_that_differs_says_where_and_has_an_exit_code_of_its_own() {
    let Some(harness) = harness_on("redis") else { return };
    let dice: PathBuf = harness.folder.path().join("dice");
    fs::write(&dice, "").unwrap();
    // a client that keeps state in a file differs in each run
    let text = CLIENT.replace(
        "serve(Tiny)",
        &format!(
            "open({:?}, 'a').write('x')\ntime.sleep(len(open({:?}).read()) / 1000)\nserve(Tiny)",
            dice, dice
        ),
    );
    let client = harness.client(&text);
    harness.virtual_time(&format!("{client} --fault none --grants 30 --time 10s --seed 1"));
    let replayed = harness.answer("replay latest");
    replayed.assert_exit(5);
    assert_has(&replayed.stdout, &["different history from line"]);
}

#[test]
fn a_temporary_folder_from_which_nothing_is_loaded_is_said() {
    let Some(harness) = harness_on("redis") else { return };
    let folder = harness.folder.path().join("noexec");
    fs::create_dir(&folder).unwrap();
    let mounted = format!(
        "mount -t tmpfs -o noexec,size=64m none {0} && TMPDIR={0}",
        folder.display()
    );
    let unshared = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", command]);
        unshare.current_dir(harness.folder.path());
        unshare
    };
    let may_mount = unshared(&format!("{mounted} true")).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no file system can be mounted here");
        return;
    }
    let run = format!(
        "{mounted} {} run --runtime virtual --backend redis --time 10s",
        env!("CARGO_BIN_EXE_harness")
    );
    assert_says(&mut unshared(&run), 4, &["noexec", "hint: TMPDIR"]);
}

#[test]
fn a_client_that_keeps_the_world_from_going_on_ends_the_run_with_its_name() {
    let Some(harness) = harness_on("redis") else { return };
    let client = harness.client("while True: pass\n");
    let answer = harness.virtual_time(&format!("{client} --time 20s"));
    answer.assert_exit(4);
    let named = ["client c0: thread ", "(`python3", "blocks the world"];
    assert_has(&answer.stderr, &named);
    let left = processes_of(harness.folder.path());
    assert!(left.is_empty(), "{left:?}");
}

mod nightly {
    use super::*;
    use crate::machine::KilledAtDrop;

    #[test]
    fn the_same_seed_is_the_same_history_also_on_a_busy_machine() {
        let Some(harness) = harness_on("redis") else { return };
        let client = harness.client(CLIENT);
        for words in [
            format!("{client} --fault partition,pause-waiter,kill-holder --time 25s --seed 5"),
            "--recipe redis-set-px-lua --fault reset,server-kill --time 15s --seed 6".to_owned(),
        ] {
            let one = harness.virtual_time(&words);
            assert!([0, 1, 3].contains(&one.exit), "{}", one.stderr);
            let history = harness.latest_lines();
            assert!(history.len() > 100, "{history:#?}");
            let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            let busy: Vec<_> = (0..8).map(|_| KilledAtDrop(busy().unwrap())).collect();
            harness.assert_replayed();
            drop(busy);
            let other = harness.virtual_time(&words.replace("--seed ", "--seed 1"));
            assert!([0, 1, 3].contains(&other.exit), "{}", other.stderr);
            assert!(harness.latest_lines() != history, "another seed has the same history");
        }
        let left = processes_of(harness.folder.path());
        assert!(left.is_empty(), "{left:?}");
    }
}
