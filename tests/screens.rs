//! The terminal's screen of stored histories, letter by letter. `HARNESS_BLESS=1 cargo nextest run screens` writes them anew;
//! look at the difference before you commit it.

use std::path::Path;

use harness::report::diagnosis::Known;
use harness::report::terminal::{Look, render};
use harness::report::{Diagnosis, diagnose};
use harness::store::{RUN_SCHEMA, RunInfo, Status};
use harness_checkers::{Clock, History, Options, ReadOptions, check};

const HISTORIES: [&str; 12] = [
    "hl001_granted_twice",
    "hl001_holds",
    "hl001_stale_holder",
    "hl003_token_goes_back",
    "hl004_herd",
    "hl004_polls",
    "hl005_free",
    "hl005_ghost",
    "hl005_too_short",
    "hl007_foreign_release",
    "hl008_holds_after_loss",
    "hl009_silent_loss",
];

fn info() -> RunInfo {
    let words = "harness run --backend zk --holder naive --fault partition --seed 8f3a21c4";
    RunInfo {
        schema: RUN_SCHEMA.into(),
        run: "20261121-0652-zk-partition-8f3a".into(),
        status: Status::Complete,
        harness: "0.1.0".into(),
        started: "20261121-0652".into(),
        backend: "zk".into(),
        product: "ZooKeeper".into(),
        version: Some("3.9.3".into()),
        nodes: 3,
        runtime: "docker".into(),
        runtime_why: "an engine answers and the image is there".into(),
        image: Some("zookeeper:3.9".into()),
        image_digest: Some("sha256:0e1f".into()),
        machine: "linux x86_64, 2 cores".into(),
        recipe: "zk-predecessor-watch".into(),
        attitude: Some("naive".into()),
        fault: "partition".into(),
        seed: "8f3a21c4".into(),
        clients: 2,
        locks: 1,
        lease_ms: 2000,
        time_ms: 60_000,
        windows: 0,
        each: None,
        again: words.split(' ').map(str::to_owned).collect(),
        argv: words.split(' ').map(str::to_owned).collect(),
        error: None,
    }
}

fn diagnosis(name: &str, info: Option<RunInfo>) -> Diagnosis {
    let path = format!("checkers/tests/golden/{name}.jsonl");
    let history = History::open(Path::new(&path), &ReadOptions::default()).unwrap();
    let findings = check(
        &history,
        &Options {
            clock: Clock::still(),
            ..Options::default()
        },
    );
    diagnose(
        &history,
        findings,
        Known {
            info,
            path: format!("results/{name}"),
            page: None,
            check_ns: 4_000_000,
        },
    )
}

fn compare(name: &str, screen: &str) -> Option<String> {
    let path = format!("tests/screens/{name}.txt");
    if std::env::var_os("HARNESS_BLESS").is_some() {
        std::fs::write(&path, screen).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    (expected != screen).then(|| format!("{path} differs; now it is\n{screen}"))
}

#[test]
fn the_screens_of_the_golden_histories_are_as_they_were() {
    let plain = Look { color: false };
    let changed: Vec<String> = HISTORIES
        .iter()
        .filter_map(|name| compare(name, &render(&diagnosis(name, None), plain)))
        .collect();
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn the_screen_of_a_run_ends_with_what_to_type() {
    let plain = Look { color: false };
    let screen = render(&diagnosis("hl001_stale_holder", Some(info())), plain);
    assert!(
        screen.contains("--seed 8f3a21c4 --repeat 20 --until fail") || screen.contains("--repeat 20"),
        "{screen}"
    );
    let changed = compare("run_that_failed", &screen);
    assert!(changed.is_none(), "{}", changed.unwrap_or_default());
}

#[test]
fn colour_is_all_that_colour_changes() {
    let diagnosis = diagnosis("hl001_stale_holder", None);
    let (plain, painted) = (
        render(&diagnosis, Look { color: false }),
        render(&diagnosis, Look { color: true }),
    );
    let mut bare = String::new();
    let mut rest = painted.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare += before;
        rest = after.split_once('m').unwrap().1;
    }
    bare += rest;
    assert_eq!(plain, bare);
    assert_ne!(plain, painted);
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    for name in HISTORIES {
        let screen = render(&diagnosis(name, Some(info())), Look { color: false });
        let wide: Vec<&str> = screen.lines().filter(|line| line.chars().count() > 112).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
    }
}
