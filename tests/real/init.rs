//! `harness init`: its skeletons are locks, in every language of this machine.

use std::process::Command;

use crate::command::{Answer, Harness, assert_has, on_runtimes};
use crate::machine::{is_on_path, names_in, succeeds};

/// A language, the program that it needs, the command that builds the client, and the client.
type InitLanguage<'a> = (&'a str, &'a str, &'a [&'a str], &'a str);

const LANGUAGES: &[InitLanguage<'_>] = &[
    ("python", "python3", &[], "python3 my_lock.py"),
    (
        "java",
        "javac",
        &["javac", "MyLock.java"],
        "java -XX:TieredStopAtLevel=1 MyLock",
    ),
    ("go", "go", &["go", "build", "-o", "my-lock", "."], "./my-lock"),
    ("node", "node", &[], "node my_lock.mjs"),
    // its dependencies are dependencies of harness, too
    (
        "rust",
        "cargo",
        &["cargo", "build", "--release", "--offline"],
        "./target/release/my-lock",
    ),
];

/// Returns the folder of `harness init`, with the client built; `None`, with a line on stderr, without the language.
fn written(harness: &Harness, (language, program, build, _): &InitLanguage<'_>) -> Option<std::path::PathBuf> {
    harness.assert_says(&format!("init {language} my-lock"), 0, &[]);
    if !is_on_path(program) {
        return None;
    }
    let folder = harness.folder.path().join("my-lock");
    if let [program, words @ ..] = build {
        succeeds(Command::new(program).args(words).current_dir(&folder));
    }
    Some(folder)
}

fn checked(runtime: &str, language: &InitLanguage<'_>) {
    let harness = Harness::new();
    let Some(folder) = written(&harness, language) else {
        return;
    };
    // a JVM that loads its classes on a busy machine answers its first requests late, and the lock is held meanwhile
    let words = format!("client-check --json --runtime {runtime} --backend redis --lease 3s");
    let mut command = harness.command(&words);
    let checked = Answer::to(command.current_dir(&folder).arg(language.3));
    checked.assert_exit(0);
    let printed = &checked.diagnosis;
    assert_eq!(printed["wrong"], 0, "{}: {printed:#}", language.0);
    let remarks = printed["remarks"].as_array().unwrap().iter();
    let right = remarks.filter(|remark| remark["mark"] == "right");
    assert!(right.count() > 15, "{}: {printed:#}", language.0);
}

#[test]
fn the_suite_is_one_in_every_language_and_has_a_canary() {
    for (language, ..) in LANGUAGES {
        let harness = Harness::new();
        harness.assert_says(&format!("init {language}"), 0, &[]);
        let mut command = harness.command("suite suite.toml --dry-run --json");
        let planned = Answer::to(command.current_dir(harness.folder.path().join("my-lock")));
        planned.assert_exit(0);
        let rows = planned.diagnosis["rows"].as_array().unwrap();
        assert!(rows.len() > 4, "{rows:#?}");
        assert!(rows.iter().any(|row| row["canary"] == true), "{rows:#?}");
    }
}

#[test]
fn nothing_is_overwritten_and_then_nothing_is_written() {
    let harness = Harness::new();
    let folder = harness.folder.path().join("my-lock");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("suite.toml"), "mine").unwrap();
    harness.assert_says("init python my-lock/", 2, &["suite.toml exists already"]);
    assert_eq!(names_in(&folder), ["suite.toml"]);
    assert_eq!(std::fs::read_to_string(folder.join("suite.toml")).unwrap(), "mine");
}

#[test]
fn a_workflow_goes_to_the_root_of_the_repository_and_names_the_folder() {
    let harness = Harness::new();
    std::fs::create_dir(harness.folder.path().join(".git")).unwrap();
    harness.assert_says("init node locks/orders", 0, &[]);
    let folder = harness.folder.path().join("locks/orders");
    assert_eq!(names_in(&folder), [".gitignore", "my_lock.mjs", "suite.toml"]);
    let workflow = harness.folder.path().join(".github/workflows/orders.yml");
    assert_has(
        &std::fs::read_to_string(workflow).unwrap(),
        &["working-directory: \"locks/orders\"", "path: \"locks/orders/results\""],
    );
    // another client of the same name would have the same workflow
    harness.assert_says("init python other/orders", 2, &["orders.yml exists already"]);
    assert!(!harness.folder.path().join("other").exists());
}

fn a_client_in_java_stands_lost_replies_and_a_holder_that_is_cut_off(runtime: &str) {
    let harness = Harness::new();
    let Some(folder) = written(&harness, &LANGUAGES[1]) else {
        return;
    };
    let words = "--backend redis --fault drop-reply,partition=holder --lease 3s --time 26s";
    let mut command = harness.command(&format!("run --json --runtime {runtime} {words} --client"));
    Answer::to(command.current_dir(&folder).arg(LANGUAGES[1].3)).assert_exit(0);
}

on_runtimes! {
    real:
        the_client_in_java_is_right = checked(&LANGUAGES[1]);
    virtual_time:
        the_client_in_python_is_right = checked(&LANGUAGES[0]);
    nightly:
        the_client_in_go_is_right = checked(&LANGUAGES[2])
        the_client_in_node_is_right = checked(&LANGUAGES[3])
        the_client_in_rust_is_right = checked(&LANGUAGES[4])
        a_client_in_java_stands_lost_replies_and_a_holder_that_is_cut_off;
}
