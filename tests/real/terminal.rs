//! A run at a terminal: its progress is shown in a block of lines, which is removed before the verdict.

use std::process::{Command, Stdio};

use crate::command::{Harness, golden};

const COLUMNS: usize = 80;

/// Returns a program that opens a terminal, with the folder and the environment of a run at a desk.
fn opener(program: &str, run: &Command, harness: &Harness) -> Command {
    let mut opener = Command::new(program);
    for (removed, _) in run.get_envs() {
        opener.env_remove(removed);
    }
    opener
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .env("TERM", "xterm-256color")
        .current_dir(harness.folder.path());
    opener
}

/// Returns all the output of `harness <words>` at a terminal of this kind, with 80 columns.
fn at_a_terminal(kind: &str, harness: &Harness, words: &str) -> String {
    let run = harness.command(words);
    let words: Vec<_> = run.get_args().map(|word| word.to_string_lossy()).collect();
    let typed = format!(
        "stty cols {COLUMNS} rows 40; {} {}",
        run.get_program().to_string_lossy(),
        words.join(" ")
    );
    let mut script = opener("script", &run, harness);
    script.args(["--quiet", "--return", "--command", &typed, "/dev/null"]);
    let output = script
        .env("TERM", kind)
        .stdin(Stdio::null())
        .output()
        .expect("script (util-linux) is here");
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    // a machine with far too much to do makes a run unsure
    assert!(matches!(output.status.code(), Some(0 | 3)), "{written}");
    written
}

/// Returns the output without the sequences that colour it and move the cursor.
fn plain(written: &str) -> String {
    let mut plain = String::new();
    let mut rest = written.chars();
    while let Some(next) = rest.next() {
        match next {
            '\u{1b}' if rest.next() == Some('[') => {
                rest.by_ref().find(|last| last.is_ascii_alphabetic());
            }
            '\u{1b}' => {}
            _ => plain.push(next),
        }
    }
    plain
}

#[test]
fn a_run_says_what_is_under_way_and_its_block_vanishes_before_the_verdict() {
    let harness = Harness::new();
    let words = "run --backend redis --runtime local --fault latency --lease 1s --time 12s";
    let written = at_a_terminal("xterm-256color", &harness, words);
    let plain = plain(&written);
    // before the servers serve, while the clients run, while a fault is active
    for said in [
        "no server was asked yet",
        "the verdict comes at the end",
        "no overlap seen",
        "active ",
    ] {
        assert!(plain.contains(said), "{said}: {plain}");
    }
    // the block is cleared before the verdict is printed: the cursor moves up over its lines
    let verdict = written.rfind("PASS").max(written.rfind("UNSURE"));
    let verdict = verdict.expect("it has a verdict");
    let last_block = written.rfind("the verdict comes at the end").expect("it was drawn");
    assert!(last_block < verdict);
    assert!(written[last_block..verdict].contains("\u{1b}[2K"), "{written:?}");
}

#[test]
fn a_terminal_that_has_no_colours_is_sent_none() {
    let harness = Harness::new();
    let words = format!("check {}", golden("hl001_holds"));
    let is_coloured = |kind| at_a_terminal(kind, &harness, &words).contains('\u{1b}');
    assert!(is_coloured("xterm-256color") && !is_coloured("dumb"));
}

/// Runs a command at a terminal that is not read for some seconds. Ends with its exit code.
const UNREAD: &str = r#"
import os, pty, select, sys, time
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
begun = time.monotonic()
while True:
    if 3 < time.monotonic() - begun < 9:
        time.sleep(0.1)
    elif select.select([terminal], [], [], 0.1)[0]:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:
            break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"#;

#[test]
fn a_terminal_that_nobody_reads_does_not_stop_a_run() {
    let harness = Harness::new();
    let run = harness.command("run --backend redis --runtime local --fault latency --lease 1s --time 12s");
    let mut unread = opener("python3", &run, &harness);
    unread.args(["-c", UNREAD]).arg(run.get_program()).args(run.get_args());
    let ended = unread.status().expect("python3 is here").code();
    // a machine with far too much to do makes a run unsure
    assert!(matches!(ended, Some(0 | 3)), "exit code {ended:?}");
    // a write that waits for the terminal takes seconds; a busy machine stalls a run for less
    let stalls = harness.latest_lines().into_iter().filter(|line| line["f"] == "stall");
    let long: Vec<_> = stalls.filter(|line| line["lasted_ms"].as_u64() > Some(2500)).collect();
    assert!(long.is_empty(), "{long:?}");
}
