//! Adapters: clients that are run by name. Their libraries come from PyPI and Debian, so that only what needs neither is here;
//! `tests/suites/libraries.toml` runs them all.

use crate::command::Harness;

/// A word and its exit code and what it says on stderr, where nothing is installed.
fn refused(words: &str) -> (Option<i32>, String) {
    let harness = Harness::new();
    let output = harness
        .command(words)
        .env("XDG_CACHE_HOME", harness.folder.path())
        .output()
        .unwrap();
    assert!(!harness.results().exists(), "no run was made");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn an_adapter_that_is_not_installed_says_how_it_is() {
    let (exit, said) = refused("run --runtime local --backend zk --client kazoo-lock --time 10s");
    assert_eq!(exit, Some(4), "{said}");
    assert!(
        said.contains("kazoo 2.11.0") && said.contains("`harness adapters kazoo-lock`"),
        "{said}"
    );
}

#[test]
fn an_adapter_of_another_backend_is_refused_with_its_own() {
    let (exit, said) = refused("run --runtime local --backend redis --client kazoo-lock --time 10s");
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("--backend zk"), "{said}");
}

#[test]
fn a_name_that_is_nearly_one_is_suggested() {
    let (exit, said) = refused("adapters kazo-lock");
    assert_eq!(exit, Some(2), "{said}");
    assert!(said.contains("did you mean `kazoo-lock`"), "{said}");
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
        command.env("PIP_RETRIES", "0");
        command.output().unwrap()
    };
    let output = command("adapters redis-py");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let listed = command("list clients --json").stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    let adapter = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|adapter| adapter["name"] == "redis-py");
    assert_eq!(adapter.unwrap()["installed"], false);
}
