//! Runs the command `harness` in tests, and reads its diagnosis.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::machine::{of_process, pids, until};

/// Makes tests of functions that take a runtime, and of rows: a name, and such a function with its other arguments. `make test` runs those
/// of `real` on local servers, those of `docker` in containers, and those of `virtual_time`, whose outcome depends on delays, on local
/// servers in virtual time. The tests of `models` depend only on a recipe and a fault: `make test` runs them on models, which the
/// conformance tests compare with real servers. `make test-all` also runs both on local servers, with those of `nightly` and
/// `nightly_docker`.
macro_rules! on_runtimes {
    (
        $(real: $($real:ident $(= $real_of:ident $real_row:tt)?)*;)?
        $(docker: $($docker:ident $(= $docker_of:ident $docker_row:tt)?)*;)?
        $(virtual_time: $($virtual_time:ident $(= $virtual_of:ident $virtual_row:tt)?)*;)?
        $(models: $($model:ident $(= $model_of:ident $model_row:tt)?)*;)?
        $(nightly: $($nightly:ident $(= $nightly_of:ident $nightly_row:tt)?)*;)?
        $(nightly_docker: $($by_night:ident $(= $by_night_of:ident $by_night_row:tt)?)*;)?
    ) => {
        $(mod local { $($crate::command::on_runtime! { [super] "local" $real $(= $real_of $real_row)? })* })?
        $(mod docker { $($crate::command::on_runtime! { [super] "docker" $docker $(= $docker_of $docker_row)? })* })?
        $(mod virtual_time { $($crate::command::on_runtime! { [super] "virtual" $virtual_time $(= $virtual_of $virtual_row)? })* })?
        $(mod models { $($crate::command::on_runtime! { [super] "simulated" $model $(= $model_of $model_row)? })* })?
        mod nightly {
            $($($crate::command::on_runtime! { [super] "local" $virtual_time $(= $virtual_of $virtual_row)? })*)?
            $($($crate::command::on_runtime! { [super] "local" $model $(= $model_of $model_row)? })*)?
            $($($crate::command::on_runtime! { [super] "local" $nightly $(= $nightly_of $nightly_row)? })*)?
            $(mod docker {
                $($crate::command::on_runtime! { [super::super] "docker" $by_night $(= $by_night_of $by_night_row)? })*
            })?
        }
    };
}
pub(crate) use on_runtimes;

/// Makes the test of one runtime; the functions are in the module at a path.
macro_rules! on_runtime {
    ([$($above:tt)*] $runtime:literal $name:ident) => {
        #[test]
        fn $name() {
            $($above)*::$name($runtime);
        }
    };
    ([$($above:tt)*] $runtime:literal $name:ident = $function:ident($($argument:expr),*)) => {
        #[test]
        fn $name() {
            use $($above)*::*;
            $function($runtime, $($argument),*);
        }
    };
}
pub(crate) use on_runtime;

/// Makes a test of each row: a name, and the arguments of a function.
macro_rules! tests {
    ($function:ident: $($name:ident($($argument:expr),*))*) => {
        $(#[test] fn $name() { $function($($argument),*); })*
    };
}
pub(crate) use tests;

/// The command `harness` with a results folder of its own.
pub struct Harness {
    pub folder: TempDir,
}

/// The result of a command: its exit code and its output.
pub struct Answer {
    /// The command as typed; empty for a child.
    command: String,
    pub exit: i32,
    pub stdout: String,
    /// The JSON of its output, for a run its diagnosis; null if it printed none.
    pub diagnosis: Value,
    pub stderr: String,
}

impl Harness {
    pub fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    pub fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    /// Returns the folders in its results that have this file, the oldest first.
    pub fn folders_with(&self, file: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.results()).expect("there are results");
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        // `latest` is another name of one of them
        folders.retain(|path| path.join(file).is_file() && !path.is_symlink());
        folders.sort();
        folders
    }

    /// Returns the command `harness <words>`, whose runs are in its own folder.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        // variables of the tests, such as HARNESS_BLESS, set no option and would be refused
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HARNESS_")) {
            command.env_remove(name);
        }
        let mut words_of = divided(words);
        command
            .args(words_of.next())
            .args(seed_where_runs_repeat(words))
            .args(words_of)
            .current_dir(self.folder.path())
            .env_remove("CI")
            .env_remove("GITHUB_ACTIONS");
        command
    }

    pub fn answer(&self, words: &str) -> Answer {
        Answer::to(&mut self.command(words))
    }

    /// Starts `harness <words>`; [`Answer::of_child`] waits for its end.
    pub fn start(&self, words: &str) -> Child {
        started(&mut self.command(words))
    }

    pub fn latest_history(&self) -> String {
        std::fs::read_to_string(self.results().join("latest/history.jsonl")).expect("a run has a history")
    }

    /// Returns the lines of that history without its header, which has the name of the run.
    pub fn latest_lines(&self) -> Vec<Value> {
        let history = self.latest_history();
        let lines = history.lines().skip(1);
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits until the history of the latest run has this text.
    pub fn until_history_has(&self, text: &str) {
        let history = self.results().join("latest/history.jsonl");
        let has = || std::fs::read_to_string(&history).is_ok_and(|lines| lines.contains(text));
        until(text, has);
    }

    /// Asserts that `harness <words>` ends with this code and prints all of these sentences on stderr.
    pub fn assert_says(&self, words: &str, exit: i32, sentences: &[&str]) {
        assert_says(&mut self.command(words), exit, sentences);
    }

    /// Writes a program in Python, and returns the command that runs it.
    pub fn python(&self, name: &str, program: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, program).expect("a program can be written");
        format!("python3 {}", path.display())
    }

    /// Runs `harness run <words> --json`, and returns its diagnosis.
    pub fn run(&self, words: &str) -> Answer {
        self.answer(&format!("run --json {words}"))
    }

    /// Returns the JSON that `harness <words>` prints, and asserts its exit code.
    pub fn printed(&self, words: &str, exit: i32) -> Value {
        let answer = self.answer(words);
        answer.assert_exit(exit);
        answer.diagnosis
    }
}

/// Divides a line into words; text in single quotes is one.
fn divided(line: &str) -> impl Iterator<Item = &str> {
    line.split('\'').enumerate().flat_map(|(index, part)| {
        if index % 2 == 1 {
            vec![part]
        } else {
            part.split_whitespace().collect()
        }
    })
}

/// Returns options with a fixed seed for a run or a hunt that repeats with it: a result by chance would make a test fail by chance.
fn seed_where_runs_repeat(words: &str) -> &'static [&'static str] {
    let is_exact = ["--runtime virtual", "--runtime simulated"]
        .iter()
        .any(|exact| words.contains(exact));
    let draws = ["run ", "hunt "].iter().any(|command| words.starts_with(command));
    if is_exact && draws && !words.contains("seed") && !words.contains("--continue") {
        &["--seed", "5eed"]
    } else {
        &[]
    }
}

impl Answer {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            command: String::new(),
            exit: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            diagnosis: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            stderr: text(&output.stderr),
        }
    }

    pub fn to(command: &mut Command) -> Self {
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            command: format!("{command:?}"),
            ..Self::of(&output)
        }
    }

    /// Returns the result of a child with pipes when it has ended.
    pub fn of_child(child: Child) -> Self {
        Self::of(&child.wait_with_output().expect("it ends"))
    }

    /// Returns all of its output.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    pub fn finding(&self, property: &str) -> &Value {
        let findings = self.diagnosis["findings"]
            .as_array()
            .unwrap_or_else(|| panic!("no findings: {}", self.stderr));
        findings
            .iter()
            .find(|finding| finding["property"] == property)
            .expect("every property is decided")
    }

    pub fn verdict(&self, property: &str) -> &str {
        self.finding(property)["verdict"]
            .as_str()
            .expect("a finding has a verdict")
    }

    pub fn windows(&self) -> &[Value] {
        let windows = self.diagnosis["effect"]["windows"].as_array();
        windows.expect("a run has windows")
    }

    /// Returns the number of windows with an effect, and of all windows.
    pub fn windows_with_effect(&self) -> (usize, usize) {
        let with_effect = self.windows().iter().filter(|window| window["had_effect"] == true);
        (with_effect.count(), self.windows().len())
    }

    /// Asserts that at least one window had an effect.
    pub fn assert_a_window_had_effect(&self) {
        let (with_effect, _) = self.windows_with_effect();
        assert!(with_effect > 0, "{:#}", self.diagnosis["effect"]);
    }

    /// Asserts that there were windows, and that each had an effect.
    pub fn assert_all_windows_had_effect(&self) {
        let (with_effect, all) = self.windows_with_effect();
        assert!(
            with_effect == all && all > 0,
            "{with_effect} of {all} windows had an effect: {}\n{:#}",
            self.stderr,
            self.diagnosis
        );
    }

    pub fn window_sum(&self, counter: &str) -> u64 {
        let counts = self.windows().iter().map(|window| &window["evidence"][counter]);
        counts.map(|count| count.as_u64().unwrap_or(0)).sum()
    }

    /// Returns the number of acquires that succeeded while a fault was active.
    pub fn acquires_under_faults(&self) -> u64 {
        let windows = self.windows().iter();
        windows.filter_map(|window| window["acquires"].as_u64()).sum()
    }

    /// Asserts that the run ends with violations, one of them of this property.
    pub fn assert_violates(&self, property: &str) {
        self.assert_exit(1);
        self.assert_verdict(property, "violated");
    }

    pub fn assert_verdict(&self, property: &str, expected: &str) {
        let verdict = match self.verdict(property) {
            "inconclusive" if self.stood_still(&self.finding(property)["evidence"]) => "holds",
            verdict => verdict,
        };
        assert_eq!(verdict, expected, "{property}: {}\n{:#}", self.stderr, self.diagnosis);
    }

    /// Asserts the exit code, with all that is needed to understand a failure. A run that is unsure only because it stood still passes.
    pub fn assert_exit(&self, expected: i32) {
        let reasons = self.diagnosis["unsure"].as_array();
        let only_still = |reasons: &Vec<Value>| !reasons.is_empty() && reasons.iter().all(|why| self.stood_still(why));
        let exit = match (self.exit, expected) {
            (3, 0) if reasons.is_some_and(only_still) => 0,
            (exit, _) => exit,
        };
        assert_eq!(exit, expected, "{}\n{}\n{}", self.command, self.stderr, self.stdout);
    }

    /// Whether a run in real time says in this sentence that harness itself did not run for long, and judges no lock by that: the machine of
    /// the tests had far too much to do.
    fn stood_still(&self, sentence: &Value) -> bool {
        let is_real = !["virtual", "simulated"]
            .map(Value::from)
            .contains(&self.diagnosis["run"]["runtime"]);
        let said = ["harness did not run for ", "harness was stopped for a while"];
        is_real
            && said
                .iter()
                .any(|said| sentence.as_str().is_some_and(|sentence| sentence.contains(said)))
    }
}

/// Makes a run on this runtime, with results of its own.
pub fn run_on(runtime: &str, words: &str) -> Answer {
    Harness::new().run(&format!("--runtime {runtime} {words}"))
}

/// Starts a command with pipes for its output.
pub fn started(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Asserts that a text has each of these parts.
#[track_caller]
pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}

/// Asserts that a text has none of these parts.
#[track_caller]
pub fn assert_lacks(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(!text.contains(part), "`{part}` is in\n{text}");
    }
}

/// Returns the texts under this key in the items of a list.
pub fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    let items = list.as_array().unwrap_or_else(|| panic!("no list: {list:#}"));
    items.iter().filter_map(|item| item[key].as_str()).collect()
}

/// Returns the command in a record that repeats a run, without the name of the program.
pub fn again(record: &Value) -> String {
    let words: Vec<String> = serde_json::from_value(record["again"].clone()).expect("it has words");
    words[1..].join(" ")
}

/// Returns the path of a stored history of the checkers.
pub fn golden(name: &str) -> String {
    format!("{}/checkers/tests/golden/{name}.jsonl", env!("CARGO_MANIFEST_DIR"))
}

/// Asserts that a command ends with this code and prints all of these sentences on stderr.
pub fn assert_says(command: &mut Command, exit: i32, sentences: &[&str]) {
    let answer = Answer::to(command);
    assert_eq!(answer.exit, exit, "{command:?}: {}", answer.stderr);
    for sentence in sentences {
        assert!(
            answer.stderr.contains(sentence),
            "{command:?} does not say `{sentence}`: {}",
            answer.stderr
        );
    }
}

/// Gives a file to a user that is neither root nor the one who runs the tests. Returns `false`, with a line on stderr,
/// if the tests do not run as root.
pub fn give_away(path: &Path) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).is_ok();
    if !given {
        eprintln!("skipped: files of another user, which only root can make");
    }
    given
}

/// Returns the command lines of the processes that run in `folder`.
pub fn processes_of(folder: &Path) -> Vec<String> {
    let commands = pids().filter_map(|pid| {
        let own = std::fs::read_link(format!("/proc/{pid}/cwd")).ok()?.starts_with(folder);
        let line = of_process(pid, "cmdline").replace('\0', " ");
        (own && !line.is_empty()).then_some(line)
    });
    commands.collect()
}
