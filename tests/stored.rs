//! Stored runs, without any server: reported in every format, compared, listed, kept or removed.

use std::path::{Path, PathBuf};

use harness::store::RunInfo;
use serde_json::{Value, json};

use crate::command::{Harness, assert_has, assert_lacks, golden, texts};
use crate::screens::info;

impl Harness {
    /// Adds a run with a stored history of the checkers.
    fn add(&self, name: &str, history: &str) -> PathBuf {
        let folder = self.results().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let info = RunInfo {
            run: name.into(),
            started: name[..13].into(),
            ..info()
        };
        std::fs::write(folder.join("run.json"), json!(info).to_string()).unwrap();
        std::fs::copy(golden(history), folder.join("history.jsonl")).unwrap();
        folder
    }

    /// Returns the output of a command that must succeed.
    fn shown(&self, words: &str) -> String {
        let answer = self.answer(words);
        answer.assert_exit(0);
        answer.stdout
    }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const FIRST: &str = "20261121-0645-zk-partition-8f3a";
const SECOND: &str = "20261122-0645-zk-partition-8f3a";

#[test]
fn a_report_writes_every_file_into_the_folder_of_its_run_and_then_the_screen_points_to_its_page() {
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl001_stale_holder");
    let screen = || harness.answer("check 20261121").stdout;
    assert_has(&screen(), &[&format!("history       results/{FIRST}/history.jsonl")]);
    let written = harness.shown("report 20261121");
    for file in ["report.html", "junit.xml", "summary.md", "verdict.json"] {
        assert_has(&written, &[&format!("results/{FIRST}/{file}\n")]);
        assert!(!read(&folder, file).is_empty());
    }
    assert_has(&written, &["results/index.html\n"]);
    assert_has(&read(&harness.results(), "index.html"), &[FIRST]);
    // lines of the history are quoted with their numbers
    let parts = ["HL001-1", "harness run --backend zk", "line 14"];
    assert_has(&read(&folder, "report.html"), &parts);
    let verdict: Value = serde_json::from_str(&read(&folder, "verdict.json")).unwrap();
    assert_eq!(verdict["page"], format!("results/{FIRST}/report.html"));
    let page = format!("report        results/{FIRST}/report.html#HL001-1");
    assert_has(&screen(), &[&page]);
}

#[test]
fn a_single_format_goes_to_stdout_or_to_a_file_and_changes_nothing_else() {
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl001_stale_holder");
    for (format, start) in [
        ("html", "<!DOCTYPE html>"),
        ("junit", "<?xml "),
        ("markdown", "## ❌ FAIL: zk / "),
        ("terminal", "FAIL  zk / "),
    ] {
        let shown = harness.shown(&format!("report {FIRST} --format {format}"));
        assert!(shown.starts_with(start), "{format}: {shown}");
    }
    let verdict = harness.printed(&format!("report {FIRST} --format json"), 0);
    assert_eq!(verdict["outcome"], "FAIL");
    assert_eq!(harness.shown(&format!("report {FIRST} --format markdown -o s.md")), "");
    assert!(read(harness.folder.path(), "s.md").starts_with("## ❌"));
    let device = harness.shown(&format!("report {FIRST} --format markdown -o /dev/stdout"));
    assert!(device.starts_with("## ❌"), "{device}");
    assert!(!folder.join("report.html").exists());
}

#[test]
fn the_damage_of_a_run_with_two_locks_is_not_told_as_that_of_one_violation() {
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl001_stale_holder");
    let summary = || harness.shown(&format!("report {FIRST} --format markdown"));
    assert_has(&summary(), &["damage: 1 update lost of 2 increments"]);
    let history = read(&folder, "history.jsonl").replace(r#""locks":["l0"]"#, r#""locks":["l0","l1"]"#);
    let (before, end) = history.trim_end().rsplit_once('\n').unwrap();
    let of_another = [
        r#"{"index":33,"time":19000000000,"process":9,"client":9,"type":"invoke","f":"acquire","lock":"l1"}"#,
        r#"{"index":34,"time":19100000000,"process":9,"client":9,"type":"ok","f":"acquire","lock":"l1","token":60}"#,
    ];
    let end = end.replace(r#""index":33"#, r#""index":35"#);
    let lines = [before, of_another[0], of_another[1], end.as_str()];
    std::fs::write(folder.join("history.jsonl"), lines.join("\n")).unwrap();
    assert_has(&summary(), &["damage: in the whole run: 1 update lost of 2 increments"]);
}

#[test]
fn a_history_of_another_program_is_reported_as_well() {
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl004_herd");
    std::fs::remove_file(folder.join("run.json")).unwrap();
    let path = format!("results/{FIRST}/history.jsonl");
    let page = harness.shown(&format!("report {path} --format html"));
    assert_has(&page, &["one release woke"]);
    let words = format!("report {path}");
    harness.assert_says(&words, 2, &["hint: name a --format"]);
}

#[test]
fn the_schema_is_printed_and_the_formats_are_listed() {
    let harness = Harness::new();
    let schema = harness.printed("report --schema", 0);
    assert_eq!(schema["properties"]["schema"]["const"], "harness-diagnosis/1");
    let formats = harness.printed("list reports --json", 0);
    assert_eq!(
        texts(&formats, "name"),
        ["html", "junit", "markdown", "json", "terminal"]
    );
}

#[test]
fn what_is_new_still_there_and_gone_is_told_and_ends_as_a_violation_does() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_holds");
    harness.add(SECOND, "hl001_stale_holder");
    let worse = harness.answer("compare 20261121 20261122");
    worse.assert_exit(1);
    assert_has(&worse.stdout, &["new     HL001 stale-holder"]);
    let better = harness.shown("compare 20261122 20261121");
    assert_has(&better, &["gone    HL001 stale-holder"]);
    let same = harness.printed("compare 20261122 20261122 --json", 0);
    assert_eq!(same["new"], json!([]));
    assert_eq!(same["still"][0]["property"], "HL001");
    assert_eq!(same["after"], SECOND);
}

#[test]
fn a_run_that_proves_nothing_does_not_show_that_a_violation_is_gone() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_stale_holder");
    harness.add(SECOND, "hl005_too_short");
    let compared = harness.printed("compare 20261121 20261122 --json", 3);
    assert_eq!(compared["before_outcome"], "FAIL");
    assert_eq!(compared["after_outcome"], "UNSURE");
    let compared = harness.answer("compare 20261121 20261122").stdout;
    let lines = ["gone    HL001 stale-holder", "note    the later run proves nothing"];
    assert_has(&compared, &lines);
    harness.shown("report 20261121");
    harness.shown("report 20261122");
    let index = read(&harness.results(), "index.html");
    assert_has(&index, &["? UNSURE", "No class of violation is new or gone"]);
    assert_lacks(&index, &["gone</b>"]);
}

#[test]
fn the_index_says_what_is_new_since_the_time_before() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_holds");
    harness.add(SECOND, "hl001_stale_holder");
    harness.shown("report 20261121");
    harness.shown("report 20261122");
    let index = read(&harness.results(), "index.html");
    let (news, rows) = index.split_once("<form").unwrap();
    assert_has(news, &["HL001 stale-holder", SECOND]);
    let newest = rows.find(SECOND).unwrap();
    assert!(newest < rows.find(FIRST).unwrap(), "newest first");
    assert_has(rows, &[&format!("href=\"{SECOND}/report.html\"")]);
}

#[test]
fn an_index_of_another_program_is_left_alone() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_holds");
    std::fs::write(harness.results().join("index.html"), "mine").unwrap();
    assert!(!harness.shown("report 20261121").contains("index.html"));
    assert_eq!(read(&harness.results(), "index.html"), "mine");
}

#[test]
fn runs_are_listed_with_what_came_out() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_stale_holder");
    harness.shown("report 20261121");
    assert_has(&harness.shown("list runs"), &[FIRST, "FAIL", "two clients held"]);
}

/// The facts of Jepsen's nemesis are known from its lines, but not their effects.
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
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl001_holds");
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
            harness.assert_says(&words, 2, &[said]);
        }
    }
}

#[test]
fn a_lock_history_of_jepsens_that_holds_is_a_pass_whatever_its_nemesis_did() {
    let harness = Harness::new();
    std::fs::write(harness.folder.path().join("history.edn"), JEPSEN).unwrap();
    assert_has(&harness.shown("check history.edn"), &["PASS", "of another recorder"]);
    let page = harness.shown("report history.edn --format html");
    assert_has(&page, &["<h1>every property that applies holds</h1>", "– not counted"]);
}

/// Progress is not judged without the servers that it needs, and the missing ones are named first.
#[test]
fn a_run_whose_server_ended_by_itself_is_unsure_and_no_lock_is_blamed() {
    let harness = Harness::new();
    let folder = harness.add(FIRST, "hl005_free");
    assert_has(&harness.answer("check 20261121").stdout, &["HL005"]);
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
    let checked = harness.answer("check 20261121");
    checked.assert_exit(3);
    assert_has(&checked.stdout, &["n1 ended by itself at", "hint"]);
    assert_lacks(&checked.stdout, &["FAIL"]);
}

#[test]
fn a_check_online_ends_as_the_check_of_the_whole_history_does() {
    let harness = Harness::new();
    harness.add(FIRST, "hl001_granted_twice");
    harness.add(SECOND, "hl001_holds");
    for (run, code, outcome) in [(FIRST, 1, "FAIL"), (SECOND, 0, "PASS")] {
        let verdict = harness.printed(&format!("check --online --json {run}"), code);
        assert_eq!(verdict["outcome"], outcome);
        assert_eq!(verdict["exit"], code);
        assert_eq!(verdict["violation"].is_null(), code == 0);
        let text = harness.answer(&format!("check --online {run}")).stdout;
        assert!(text.starts_with(outcome), "{text}");
    }
    let words = format!("check --online --model mutex {SECOND}");
    harness.assert_says(&words, 2, &["check the finished history"]);

    let folder = harness.add(SECOND, "hl001_holds");
    let history = read(&folder, "history.jsonl");
    std::fs::write(folder.join("history.jsonl"), &history[..history.len() - 9]).unwrap();
    let checked = harness.answer(&format!("check --online {SECOND}"));
    checked.assert_exit(3);
    assert_has(&checked.stdout, &["UNSURE", "the last line, 61, is torn"]);

    std::fs::write(
        folder.join("history.jsonl"),
        history.replacen("\"mutex\"", "\"readers\"", 1),
    )
    .unwrap();
    for words in ["", "--online "] {
        let unknown = ["history.jsonl: no model is called `readers`", "owner-mutex"];
        harness.assert_says(&format!("check {words}{SECOND}"), 2, &unknown);
        let answer = harness.answer(&format!("check {words}--model owner-mutex {SECOND}"));
        answer.assert_exit(0);
    }

    // no line of it names the model
    harness.add(FIRST, "hl002_reentrant_by_its_promise");
    let verdict = harness.printed(&format!("check --online --json {FIRST}"), 0);
    assert_eq!(verdict["model"], "reentrant");
}

/// Asserts that a text is no command to a terminal, nor to a GitHub runner, which trims a line before it looks for `::`.
fn assert_is_no_command(text: &str) {
    let control = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!text.contains(control), "{text:?}");
    let is_command = |line: &&str| line.trim_start().starts_with("::") || line.contains("##[");
    assert_eq!(text.lines().find(is_command), None, "{text}");
}

#[test]
fn what_foreign_text_says_reaches_no_terminal_and_no_runner_as_a_command() {
    let hostile = r"x\n::error::pwned ::stop-commands::t ##[add-mask]y \u001b[2J\u0007\u202e`";
    let harness = Harness::new();
    for run in [FIRST, SECOND] {
        let folder = harness.add(run, "hl001_stale_holder");
        let history = read(&folder, "history.jsonl").replace("\"l0\"", &format!("\"{hostile}\""));
        let history = history.replace("\"expired\"", &format!("\"{hostile}\""));
        std::fs::write(folder.join("history.jsonl"), history).unwrap();
        let mut info: Value = serde_json::from_str(&read(&folder, "run.json")).unwrap();
        for field in ["seed", "recipe", "fault", "product", "runtime", "error"] {
            info[field] = serde_json::from_str(&format!("\"{hostile}\"")).unwrap();
        }
        info["status"] = "failed".into();
        std::fs::write(folder.join("run.json"), info.to_string()).unwrap();
        harness.shown(&format!("report {run}"));
    }
    std::fs::write(
        harness.folder.path().join("unreadable.jsonl"),
        format!("{{\"type\":\"{hostile}\"}}\n"),
    )
    .unwrap();
    let history = format!("results/{FIRST}/history.jsonl");
    for words in [
        format!("check {FIRST}"),
        format!("check --online {history}"),
        format!("compare {FIRST} {SECOND}"),
        format!("check {FIRST} --json"),
        format!("compare {FIRST} {SECOND} --json"),
        format!("report {FIRST} --format json"),
        format!("report {FIRST} --format junit"),
        format!("report {FIRST} --format markdown"),
        "list runs".to_owned(),
        "check unreadable.jsonl".to_owned(),
    ] {
        let told = harness.answer(&words).said();
        assert!(told.len() > 20, "{words}: {told}");
        assert_is_no_command(&told);
    }
    let screen = harness.answer(&format!("check {FIRST}")).stdout;
    assert_has(&screen, &["FAIL", "\\u{1b}[2J"]);
}
