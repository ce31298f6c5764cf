//! Suites: the truth table has the expected outcomes on models; shards merge to a whole, and unexpected outcomes fail a suite.

use serde_json::Value;

use crate::command::{Harness, assert_has, texts};

/// Asserts that the rows of the truth table that these words select are as expected. Returns their names.
fn come_out_as_written(words: &str) -> Vec<String> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suites/truth-table.toml");
    let record = Harness::new().printed(&format!("suite --json {table} {words}"), 0);
    texts(&record["rows"], "name").into_iter().map(str::to_owned).collect()
}

/// Writes a suite of a lock on Redis that holds, on models, and of one that does not, on `runtime`, which expects `expected`.
fn two_rows(harness: &Harness, runtime: &str, expected: &str) -> String {
    let path = harness.folder.path().join("two.toml");
    let text = format!(
        "[defaults]\nbackend = \"redis\"\nruntime = \"{runtime}\"\nlease = \"1s\"\ntime = \"7s\"\n\
         [[row]]\nname = \"holds\"\nruntime = \"simulated\"\n\
         [[row]]\nname = \"herd\"\nrecipe = \"redis-pubsub\"\n{expected}\n"
    );
    std::fs::write(&path, text).expect("a suite can be written");
    path.display().to_string()
}

/// Options for models, with two jobs for two processors.
const ON_MODELS: &str = "--set runtime=simulated --jobs 2";

#[test]
fn the_truth_table_of_locks_by_set_comes_out_as_written_on_models() {
    let ran = come_out_as_written(&format!("{ON_MODELS} --filter redis-set"));
    assert!(ran.len() >= 40, "{ran:?}");
}

#[test]
fn a_violation_that_is_not_expected_fails_the_suite_and_a_canary_that_sings_does_not() {
    let harness = Harness::new();
    let file = two_rows(&harness, "local", "expect = { HL004 = \"holds\" }\nretries = 3");
    let ended = harness.answer(&format!("suite --json {file} --jobs 2"));
    ended.assert_exit(1);
    let rows = &ended.diagnosis["rows"];
    assert_eq!(texts(rows, "judged"), ["as-expected", "unexpected"], "{}", ended.stderr);
    assert_eq!(
        rows[1]["attempts"].as_array().map(Vec::len),
        Some(1),
        "a violation is never tried away"
    );
    assert_has(&ended.stderr, &["HL004 is violated"]);

    let file = two_rows(&harness, "simulated", "expect = { HL004 = \"holds\" }\ncanary = true");
    harness.printed(&format!("suite --json {file} --filter herd"), 0);
}

#[test]
fn shards_run_apart_join_to_the_suite() {
    let harness = Harness::new();
    let file = two_rows(&harness, "simulated", "expect = { HL004 = \"violated\" }");
    for shard in ["1/2", "2/2"] {
        let results = format!("shard-{}", &shard[..1]);
        harness.printed(&format!("suite --json {file} --shard {shard} --results {results}"), 0);
    }
    let joined = harness.printed("suite --json --merge shard-1 shard-2", 0);
    let names = texts(&joined["rows"], "name");
    assert_eq!(names, ["holds", "herd"], "in the order of the file");
    let joint = harness.folders_with("suite.json").remove(0);
    let run = joined["rows"][1]["attempts"][0]["run"]
        .as_str()
        .expect("a row knows its run");
    assert!(
        run.starts_with("../../shard-"),
        "its folder can be moved with those of the shards: {run}"
    );
    assert!(joint.join(run).join("history.jsonl").is_file(), "{run}");
    let page = std::fs::read_to_string(joint.join("index.html")).unwrap();
    let links: Vec<&str> = page
        .split("<a href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(links.len(), 2, "a report for each row: {links:?}");
    for link in links {
        assert!(joint.join(link).is_file(), "{link}");
    }
    let index = std::fs::read_to_string(harness.results().join("index.html")).unwrap();
    let name = joint.file_name().unwrap().to_string_lossy();
    assert_has(&index, &[&format!("href=\"{name}/index.html\"")]);
}

#[test]
fn each_row_has_many_seeds_on_models_and_one_that_is_not_as_expected_is_kept() {
    let harness = Harness::new();
    let path = harness.folder.path().join("three.toml");
    let text = "[defaults]\nbackend = \"redis\"\nlease = \"1s\"\ntime = \"10s\"\n\
                [[row]]\nname = \"holds\"\nfault = \"partition=holder\"\n\
                [[row]]\nname = \"has its seed\"\nseed = \"7\"\n\
                [[row]]\nname = \"no expiry\"\nrecipe = \"redis-setnx\"\nfault = \"kill-holder\"\n";
    std::fs::write(&path, text).expect("a suite can be written");
    let file = path.display().to_string();
    let words = format!("suite --json {file} --seeds 5");
    let record = harness.printed(&format!("{words} --set runtime=simulated --set seed=5eed"), 1);
    let [holds, one, no_expiry] = record["rows"].as_array().expect("rows").as_slice() else {
        panic!("{record}")
    };
    assert_eq!(holds["judged"], "as-expected", "{holds}");
    assert_eq!(holds["seeds"]["first"], "00005eed");
    assert_eq!(holds["seeds"]["made"], 5);
    assert_eq!(holds["seeds"]["others"], Value::Null);
    assert_eq!(holds["attempts"][0]["run"], Value::Null, "it is in memory");
    assert_eq!((&one["judged"], &one["seeds"]), (&"as-expected".into(), &Value::Null));
    assert!(one["attempts"][0]["run"].is_string(), "{one}");

    assert_eq!(no_expiry["judged"], "unexpected");
    let others = no_expiry["seeds"]["others"].as_array().expect("seeds");
    assert_eq!((others.len(), &others[0]), (5, &"00005eed".into()), "{no_expiry}");
    let attempt = &no_expiry["attempts"][0];
    assert!(attempt["again"].to_string().contains("00005eed"), "{attempt}");
    let runs = harness.folders_with("suite.json").remove(0);
    let run = runs.join(attempt["run"].as_str().expect("it is kept"));
    assert!(run.join("history.jsonl").is_file(), "{}", run.display());

    harness.assert_says(&words, 2, &["--seeds needs models", "runtime=simulated"]);
}

mod nightly {
    use super::*;

    #[test]
    fn the_whole_truth_table_comes_out_as_written_on_models() {
        let ran = come_out_as_written(ON_MODELS);
        assert!(ran.len() >= 160, "{ran:?}");
    }
}
