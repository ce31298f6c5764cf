//! What can be done with stored runs, without any server: reported in every format, compared, listed, kept or removed.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::command::Harness;

struct Results(Harness);

impl Results {
    fn new() -> Self {
        Self(Harness::new())
    }

    fn folder(&self) -> PathBuf {
        self.0.results()
    }

    /// A run with a stored history of the checkers.
    fn add(&self, name: &str, history: &str) -> PathBuf {
        let folder = self.folder().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let info = json!({
            "schema": "harness-run/1", "run": name, "status": "complete", "harness": "0.1.0", "started": &name[..13],
            "backend": "zk", "product": "ZooKeeper", "version": "3.9.3", "nodes": 3, "runtime": "local", "runtime_why": "",
            "image": null, "recipe": "zk-predecessor-watch", "attitude": null, "fault": "partition", "seed": "8f3a21c4",
            "clients": 2, "locks": 1, "lease_ms": 2000, "time_ms": 60000, "windows": 0, "each": null,
            "again": ["harness", "run", "--backend", "zk"], "error": null,
        });
        std::fs::write(folder.join("run.json"), info.to_string()).unwrap();
        let golden = format!("{}/checkers/tests/golden/{history}.jsonl", env!("CARGO_MANIFEST_DIR"));
        std::fs::copy(golden, folder.join("history.jsonl")).unwrap();
        folder
    }

    fn harness(&self, words: &str) -> Output {
        self.0.output(words)
    }

    /// What it printed; it must have ended well.
    fn shown(&self, words: &str) -> String {
        let output = self.harness(words);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const FIRST: &str = "20261121-0645-zk-partition-8f3a";
const SECOND: &str = "20261122-0645-zk-partition-8f3a";

#[test]
fn a_report_writes_every_file_into_the_folder_of_its_run() {
    let results = Results::new();
    let folder = results.add(FIRST, "hl001_stale_holder");
    let written = results.shown("report 20261121");
    for file in ["report.html", "junit.xml", "summary.md", "verdict.json"] {
        assert!(written.contains(&format!("results/{FIRST}/{file}\n")), "{written}");
        assert!(!read(&folder, file).is_empty());
    }
    assert!(written.contains("results/index.html\n"), "{written}");
    assert!(read(&results.folder(), "index.html").contains(FIRST));
    let page = read(&folder, "report.html");
    assert!(page.contains("HL001-1") && page.contains("harness run --backend zk"));
    assert!(
        page.contains("line 14"),
        "lines of the history are quoted with their numbers"
    );
    let verdict: Value = serde_json::from_str(&read(&folder, "verdict.json")).unwrap();
    assert_eq!(verdict["page"], format!("results/{FIRST}/report.html"));
}

#[test]
fn the_screen_points_to_the_page_once_there_is_one() {
    let results = Results::new();
    results.add(FIRST, "hl001_stale_holder");
    let screen = |results: &Results| String::from_utf8(results.harness("check 20261121").stdout).unwrap();
    assert!(screen(&results).contains(&format!("history       results/{FIRST}/history.jsonl")));
    results.shown("report 20261121");
    assert!(screen(&results).contains(&format!("report        results/{FIRST}/report.html#HL001-1")));
}

#[test]
fn a_single_format_goes_to_stdout_or_to_a_file_and_changes_nothing_else() {
    let results = Results::new();
    let folder = results.add(FIRST, "hl001_stale_holder");
    assert!(
        results
            .shown(&format!("report {FIRST} --format html"))
            .starts_with("<!DOCTYPE html>")
    );
    assert!(
        results
            .shown(&format!("report {FIRST} --format junit"))
            .starts_with("<?xml ")
    );
    assert!(
        results
            .shown(&format!("report {FIRST} --format markdown"))
            .starts_with("## ❌ FAIL: zk / ")
    );
    assert!(
        results
            .shown(&format!("report {FIRST} --format terminal"))
            .starts_with("FAIL  zk / ")
    );
    let verdict: Value = serde_json::from_str(&results.shown(&format!("report {FIRST} --format json"))).unwrap();
    assert_eq!(verdict["outcome"], "FAIL");
    assert_eq!(results.shown(&format!("report {FIRST} --format markdown -o s.md")), "");
    assert!(read(results.0.folder.path(), "s.md").starts_with("## ❌"));
    assert!(!folder.join("report.html").exists());
}

#[test]
fn a_history_of_another_program_is_reported_as_well() {
    let results = Results::new();
    let folder = results.add(FIRST, "hl004_herd");
    std::fs::remove_file(folder.join("run.json")).unwrap();
    let path = format!("results/{FIRST}/history.jsonl");
    assert!(
        results
            .shown(&format!("report {path} --format html"))
            .contains("one release woke")
    );
    let words = format!("report {path}");
    results.0.assert_says(&words, 2, &["hint: name a --format"]);
}

#[test]
fn the_schema_is_printed_and_the_formats_are_listed() {
    let results = Results::new();
    let schema: Value = serde_json::from_str(&results.shown("report --schema")).unwrap();
    assert_eq!(schema["properties"]["schema"]["const"], "harness-diagnosis/1");
    let formats: Value = serde_json::from_str(&results.shown("list reports --json")).unwrap();
    let names: Vec<&str> = formats
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|format| format["name"].as_str())
        .collect();
    assert_eq!(names, ["html", "junit", "markdown", "json", "terminal"]);
}

#[test]
fn what_is_new_still_there_and_gone_is_told_and_ends_as_a_violation_does() {
    let results = Results::new();
    results.add(FIRST, "hl001_holds");
    results.add(SECOND, "hl001_stale_holder");
    let worse = results.harness("compare 20261121 20261122");
    let text = String::from_utf8(worse.stdout).unwrap();
    assert_eq!(worse.status.code(), Some(1), "{text}");
    assert!(text.contains("new     HL001 stale-holder"), "{text}");
    let better = results.shown("compare 20261122 20261121");
    assert!(better.contains("gone    HL001 stale-holder"), "{better}");
    let same: Value = serde_json::from_str(&results.shown("compare 20261122 20261122 --json")).unwrap();
    assert_eq!(same["new"], json!([]));
    assert_eq!(same["still"][0]["property"], "HL001");
    assert_eq!(same["after"], SECOND);
}

#[test]
fn the_index_says_what_is_new_since_the_time_before() {
    let results = Results::new();
    results.add(FIRST, "hl001_holds");
    results.add(SECOND, "hl001_stale_holder");
    results.shown("report 20261121");
    results.shown("report 20261122");
    let index = read(&results.folder(), "index.html");
    let (news, rows) = index.split_once("<form").unwrap();
    assert!(news.contains("HL001 stale-holder") && news.contains(SECOND), "{news}");
    let newest = rows.find(SECOND).unwrap();
    assert!(newest < rows.find(FIRST).unwrap(), "newest first");
    assert!(rows.contains(&format!("href=\"{SECOND}/report.html\"")));
}

#[test]
fn an_index_of_another_program_is_left_alone() {
    let results = Results::new();
    results.add(FIRST, "hl001_holds");
    std::fs::write(results.folder().join("index.html"), "mine").unwrap();
    assert!(!results.shown("report 20261121").contains("index.html"));
    assert_eq!(read(&results.folder(), "index.html"), "mine");
}

#[test]
fn runs_are_listed_with_what_came_out() {
    let results = Results::new();
    results.add(FIRST, "hl001_stale_holder");
    results.shown("report 20261121");
    let list = results.shown("list runs");
    assert!(list.contains(FIRST) && list.contains("FAIL"), "{list}");
    assert!(list.contains("two clients held"), "{list}");
}

/// What Jepsen's nemesis did is known from its lines, and not what effect it had.
const JEPSEN: &str = r#"{:type :info, :f :start, :process :nemesis, :value nil, :time 1, :index 0}
{:type :invoke, :f :acquire, :process 0, :value nil, :time 5, :index 1}
{:type :ok, :f :acquire, :process 0, :value nil, :time 6, :index 2}
{:type :invoke, :f :release, :process 0, :value nil, :time 7, :index 3}
{:type :ok, :f :release, :process 0, :value nil, :time 8, :index 4}
{:type :info, :f :stop, :process :nemesis, :value nil, :time 9, :index 5}
{:type :invoke, :f :acquire, :process 1, :value nil, :time 10, :index 6}
{:type :ok, :f :acquire, :process 1, :value nil, :time 11, :index 7}
"#;

#[test]
fn a_run_that_ended_before_it_had_a_history_says_how() {
    let results = Results::new();
    let folder = results.add(FIRST, "hl001_holds");
    std::fs::remove_file(folder.join("history.jsonl")).unwrap();
    let info = read(&folder, "run.json");
    for (status, error, said) in [
        ("running", "null", "was killed before its history began"),
        ("interrupted", "null", "was interrupted before its history began"),
        ("failed", "\"no docker\"", "failed before its history began: no docker"),
    ] {
        let status = info.replace("\"complete\"", &format!("\"{status}\""));
        let status = status.replace("\"error\":null", &format!("\"error\":{error}"));
        std::fs::write(folder.join("run.json"), status).unwrap();
        for words in [
            format!("check {FIRST}"),
            format!("report {FIRST}"),
            format!("export {FIRST}"),
        ] {
            results.0.assert_says(&words, 2, &[said]);
        }
    }
}

#[test]
fn a_lock_history_of_jepsens_that_holds_is_a_pass_whatever_its_nemesis_did() {
    let results = Results::new();
    std::fs::write(results.0.folder.path().join("history.edn"), JEPSEN).unwrap();
    let screen = results.shown("check history.edn");
    assert!(
        screen.contains("PASS") && screen.contains("of another recorder"),
        "{screen}"
    );
}

/// Progress is not judged without the servers that it needs, and what is missing is said first.
#[test]
fn a_run_whose_server_ended_by_itself_is_unsure_and_no_lock_is_blamed() {
    let results = Results::new();
    let folder = results.add(FIRST, "hl005_free");
    let told = |words: &str| String::from_utf8(results.harness(words).stdout).unwrap();
    let before = told("check 20261121");
    assert!(before.contains("HL005"), "{before}");
    let text = read(&folder, "history.jsonl");
    let mut lines: Vec<&str> = text.lines().collect();
    let first: Value = serde_json::from_str(lines[1]).unwrap();
    let end = json!({
        "index": 0, "time": first["time"], "process": "nemesis", "type": "info", "f": "server", "phase": "ended",
        "server": "n1", "how": "signal 9", "log": "nodes/n1/server.log",
    });
    let end = end.to_string();
    lines.insert(1, &end);
    let mut numbered: Vec<String> = vec![lines[0].to_owned()];
    numbered.extend(lines[1..].iter().enumerate().map(|(place, line)| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        line["index"] = json!(place + 1);
        line.to_string()
    }));
    std::fs::write(folder.join("history.jsonl"), numbered.join("\n")).unwrap();
    let output = results.harness("check 20261121");
    let screen = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{screen}");
    assert!(screen.contains("n1 ended by itself at"), "{screen}");
    assert!(screen.contains("hint") && !screen.contains("FAIL"), "{screen}");
}

#[test]
fn a_check_online_ends_as_the_check_of_the_whole_history_does() {
    let results = Results::new();
    results.add(FIRST, "hl001_granted_twice");
    results.add(SECOND, "hl001_holds");
    for (run, code, outcome) in [(FIRST, 1, "FAIL"), (SECOND, 0, "PASS")] {
        let output = results.harness(&format!("check --online --json {run}"));
        assert_eq!(output.status.code(), Some(code), "{run}");
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(
            (verdict["outcome"].as_str(), verdict["exit"].as_i64()),
            (Some(outcome), Some(code.into()))
        );
        assert_eq!(verdict["violation"].is_null(), code == 0);
        let text = results.harness(&format!("check --online {run}"));
        assert!(String::from_utf8_lossy(&text.stdout).starts_with(outcome));
    }
    let words = format!("check --online --model mutex {SECOND}");
    results.0.assert_says(&words, 2, &["check the finished history"]);
}

#[test]
fn what_foreign_text_says_reaches_no_terminal_and_no_runner_as_a_command() {
    let hostile = r"x\n::error::pwned ##[add-mask]y \u001b[2J\u0007\u202e";
    let results = Results::new();
    for run in [FIRST, SECOND] {
        let folder = results.add(run, "hl001_stale_holder");
        let history = read(&folder, "history.jsonl").replace("\"l0\"", &format!("\"{hostile}\""));
        std::fs::write(folder.join("history.jsonl"), history).unwrap();
        let mut info: Value = serde_json::from_str(&read(&folder, "run.json")).unwrap();
        for field in ["recipe", "fault", "product", "runtime"] {
            info[field] = serde_json::from_str(&format!("\"{hostile}\"")).unwrap();
        }
        std::fs::write(folder.join("run.json"), info.to_string()).unwrap();
        results.shown(&format!("report {run}"));
    }
    std::fs::write(
        results.0.folder.path().join("unreadable.jsonl"),
        format!("{{\"type\":\"{hostile}\"}}\n"),
    )
    .unwrap();
    let history = format!("results/{FIRST}/history.jsonl");
    for words in [
        format!("check {FIRST}"),
        format!("check --online {history}"),
        format!("compare {FIRST} {SECOND}"),
        "list runs".to_owned(),
        "check unreadable.jsonl".to_owned(),
    ] {
        let output = results.harness(&words);
        let told = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .concat();
        assert!(told.len() > 20, "{words}: {told}");
        let control = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
        assert!(!told.contains(control), "{words}: {told:?}");
        let is_command = |line: &&str| line.trim_start().starts_with("::") || line.contains("##[");
        assert_eq!(told.lines().find(is_command), None, "{words}");
    }
}
