//! Adapters: clients that are run by name. Their libraries come from PyPI and Debian, so that only what needs neither is here;
//! `tests/suites/libraries.toml` runs them all.

use crate::command::{Answer, Harness, assert_says};

/// Where nothing is installed, these words end with this code and say all of this.
fn refused(words: &str, exit: i32, sentences: &[&str]) {
    let harness = Harness::new();
    let mut command = harness.command(words);
    assert_says(command.env("XDG_CACHE_HOME", harness.folder.path()), exit, sentences);
    assert!(!harness.results().exists(), "no run was made");
}

#[test]
fn an_adapter_that_is_not_installed_says_how_it_is() {
    let words = "run --runtime local --backend zk --client kazoo-lock --time 10s";
    refused(words, 4, &["kazoo 2.11.0", "`harness adapters kazoo-lock`"]);
}

#[test]
fn an_adapter_of_another_backend_is_refused_with_its_own() {
    let words = "run --runtime local --backend redis --client kazoo-lock --time 10s";
    refused(words, 2, &["--backend zk"]);
}

#[test]
fn a_name_that_is_nearly_one_is_suggested() {
    refused("adapters kazo-lock", 2, &["did you mean `kazoo-lock`"]);
}

#[test]
fn an_install_that_fails_leaves_nothing_that_looks_installed() {
    let harness = Harness::new();
    let command = |words: &str| {
        let mut command = harness.command(words);
        // no network: the index of packages is nowhere
        command
            .env("XDG_CACHE_HOME", harness.folder.path())
            .env("PIP_INDEX_URL", "http://127.0.0.1:1/simple");
        Answer::to(command.env("PIP_RETRIES", "0"))
    };
    command("adapters redis-py").assert_exit(4);
    let listed = command("list clients --json").diagnosis;
    let mut adapters = listed.as_array().unwrap().iter();
    let adapter = adapters.find(|adapter| adapter["name"] == "redis-py");
    assert_eq!(adapter.unwrap()["installed"], false);
}
