//! Settings from the command line, files and variables: they reach a run, the command that repeats it needs no file,
//! and errors have their place.

use std::fs;
use std::process::Command;

use crate::command::{Answer, Harness, again, assert_has, assert_lacks, assert_says, give_away, golden};

fn with_file(text: &str) -> Harness {
    let harness = Harness::new();
    fs::write(harness.folder.path().join("harness.toml"), text).expect("a file can be written");
    harness
}

const TOML: &str =
    "backend = \"redis\"\nruntime = \"simulated\"\nlease = \"1s\"\n\n[profile.short]\ntime = \"7s\"\nclients = 3\n";

#[test]
fn every_value_is_shown_with_where_it_comes_from() {
    let harness = with_file(TOML);
    let mut command = harness.command("run --show-config --json --profile short --clients 4");
    let options = Answer::to(command.env("HARNESS_HOLD", "25ms")).diagnosis;
    let of = |name: &str| {
        let mut options = options.as_array().expect("a list").iter();
        let option = options.find(|option| option["option"] == name);
        let option = option.expect("every option is shown");
        format!("{} {}", option["value"], option["from"])
    };
    assert_eq!(of("clients"), "\"4\" \"flag\"");
    assert_eq!(of("time"), "\"7s\" \"profile\"");
    assert_eq!(of("backend"), "\"redis\" \"file\"");
    assert_eq!(of("hold"), "\"25ms\" \"environment\"");
    assert_eq!(of("locks"), "\"1\" \"default\"");
}

#[test]
fn a_hunt_and_a_suite_say_that_a_variable_sets_nothing_for_them() {
    let harness = Harness::new();
    let suite = "[[row]]\nbackend = \"redis\"\nruntime = \"simulated\"\ntime = \"8s\"\nlease = \"1s\"\n";
    fs::write(harness.folder.path().join("suite.toml"), suite).expect("a file can be written");
    for words in [
        "hunt --runtime simulated --backend redis --experiments 1 --seed 1",
        "suite suite.toml --dry-run",
    ] {
        let said = |variable: &str| Answer::to(harness.command(words).env(variable, "3s")).stderr;
        let warning = "warning: only `harness run` reads HARNESS_LEASE";
        assert_has(&said("HARNESS_LEASE"), &[warning, "hint: --set lease=VALUE"]);
        assert_lacks(&said("HARNESS_CHROMIUM"), &["warning"]);
    }
}

#[test]
fn a_hunt_and_a_check_of_a_client_say_that_they_read_no_file() {
    let words = "hunt --runtime simulated --backend redis --experiments 1 --seed 1";
    let said = with_file(TOML).answer(words).stderr;
    assert_has(&said, &["harness.toml; `harness hunt` ignores it"]);
    let harness = with_file(TOML);
    let mut command = harness.command("client-check ./my-lock --backend nowhere");
    let said = Answer::to(command.env("HARNESS_LEASE", "3s")).stderr;
    let ignored = [
        "reads HARNESS_LEASE;",
        "harness.toml; `harness client-check` ignores it",
    ];
    assert_has(&said, &ignored);
    assert_lacks(&said, &["--set"]);
}

#[test]
fn a_run_takes_what_the_file_says_and_its_words_make_it_again_without_the_file() {
    let harness = with_file(TOML);
    let answer = harness.run("--profile short");
    answer.assert_exit(0);
    let run = &answer.diagnosis["run"];
    assert_eq!(
        (&run["clients"], &run["time_ms"], &run["lease_ms"]),
        (&3.into(), &7000.into(), &1000.into())
    );
    let again = again(run);
    assert_has(&again, &["--no-config"]);
    let again = Harness::new().answer(&format!("{again} --dry-run --json"));
    let seed = run["seed"].as_str().unwrap();
    let first = harness.run(&format!("--profile short --dry-run --seed {seed}"));
    assert_eq!(again.diagnosis, first.diagnosis, "the same plan");
}

#[test]
fn a_file_of_another_user_is_obeyed_only_if_it_is_named() {
    let harness = with_file(TOML);
    if !give_away(&harness.folder.path().join("harness.toml")) {
        return;
    }
    harness.assert_says("run --dry-run", 2, &["is not used because it belongs to user 65534"]);
    harness.run("--dry-run --config harness.toml").assert_exit(0);
}

#[test]
fn a_file_above_is_found_in_a_repository_and_not_elsewhere() {
    let harness = with_file(TOML);
    let below = harness.folder.path().join("below");
    fs::create_dir(&below).expect("a folder can be made");
    let lease = || {
        let mut command = harness.command("run --backend redis --show-config");
        let shown = Answer::to(command.current_dir(&below)).stdout;
        let line = shown.lines().find(|line| line.starts_with("lease "));
        line.unwrap().to_owned()
    };
    assert_has(&lease(), &["default"]);
    fs::create_dir(harness.folder.path().join(".git")).expect("a folder can be made");
    assert_has(&lease(), &["harness.toml:3"]);
}

#[test]
fn a_word_typed_wrong_in_the_file_is_refused_with_the_nearest() {
    let harness = with_file("backend = \"redis\"\nleese = \"1s\"\n");
    let sentence = "harness.toml: line 2: there is no key `leese`\nhint: did you mean `lease`?";
    harness.assert_says("run", 2, &[sentence]);
    harness.assert_says("run --no-config --backend redis --dry-run", 0, &[]);
}

#[test]
fn a_variable_that_is_misspelt_or_invalid_is_refused_with_its_name() {
    for (variable, value, words) in [
        ("HARNESS_LEESE", "1s", "hint: did you mean `HARNESS_LEASE`?"),
        (
            "HARNESS_TIME",
            "soon",
            "hint: --time comes from: environment, HARNESS_TIME",
        ),
    ] {
        let harness = Harness::new();
        let mut command = harness.command("run --backend redis --dry-run");
        assert_says(command.env(variable, value), 2, &[words]);
    }
}

#[test]
fn a_history_is_checked_on_stdin_compressed_and_through_a_pipe_as_a_file_is() {
    let path = golden("hl001_stale_holder");
    let harness = Harness::new();
    let mut command = harness.command("check - --json");
    let stdin = Answer::to(command.stdin(fs::File::open(&path).expect("the sample is there")));
    let file = harness.answer(&format!("check {path} --json"));
    stdin.assert_exit(1);
    let gzip = Command::new("gzip")
        .args(["--stdout", &path])
        .output()
        .expect("gzip is here");
    let compressed = harness.folder.path().join("history.jsonl.gz");
    fs::write(&compressed, gzip.stdout).expect("it can be written");
    let compressed = harness.answer("check history.jsonl.gz --json");
    let pipe = harness.folder.path().join("history.pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is here");
    assert!(made.success());
    let writer = std::thread::spawn(move || fs::write(&pipe, fs::read(path).expect("the sample is there")));
    let piped = harness.answer("check history.pipe --json");
    writer
        .join()
        .expect("it does not panic")
        .expect("harness reads all of it");
    for property in ["HL001", "HL002", "HL003", "HL005"] {
        let of = |answer: &Answer| {
            (
                answer.verdict(property).to_owned(),
                answer.finding(property)["violations"].clone(),
            )
        };
        for other in [&stdin, &compressed, &piped] {
            assert_eq!(of(other), of(&file));
        }
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_suite_or_a_configuration() {
    let marked = |text: &str| format!("\u{feff}{text}");
    let harness = with_file(&marked(TOML));
    let options = harness.run("--show-config --profile short").diagnosis;
    assert_has(&options.to_string(), &[r#""value":"7s""#]);
    let suite = marked("[[row]]\nname = \"one\"\nbackend = \"redis\"\nruntime = \"simulated\"\n");
    fs::write(harness.folder.path().join("two.toml"), suite).expect("it can be written");
    harness.assert_says("suite two.toml --dry-run", 0, &[]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let harness = Harness::new();
    for words in ["list faults", "run --help", "run --backend zk --dry-run"] {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        assert_says(harness.command(words).stdout(writer), 0, &[]);
    }
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    assert_says(harness.command("explain HL999").stderr(writer), 2, &[]);
}

#[test]
fn plans_alone_have_no_hit_rate() {
    let plans = Harness::new().answer("run --backend redis --repeat 3 --until pass --dry-run");
    plans.assert_exit(0);
    assert_lacks(&plans.stderr, &["hit rate", "run 1 of"]);
    assert_eq!(plans.stdout.matches("plan  ").count(), 3, "{}", plans.stdout);
}

#[test]
fn completions_are_made_for_every_shell() {
    let harness = Harness::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = harness.answer(&format!("completions {shell}"));
        assert!(script.stdout.contains("herd-limit"), "{shell}");
    }
}
