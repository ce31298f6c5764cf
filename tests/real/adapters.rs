//! Adapters: clients that are run by name. Their libraries come from PyPI and Debian, so only tests without them are
//! here; `tests/suites/libraries.toml` runs all adapters.

use crate::command::{Answer, Harness, assert_has, assert_says, tests};
use crate::machine::write_program;

/// Asserts that without installed libraries these words end with this code and these sentences.
fn refused(words: &str, exit: i32, sentences: &[&str]) {
    let harness = Harness::new();
    let mut command = harness.command(words);
    assert_says(command.env("XDG_CACHE_HOME", harness.folder.path()), exit, sentences);
    assert!(!harness.results().exists(), "no run was made");
}

tests! {
    refused:
        an_adapter_that_is_not_installed_says_how_it_is(
            "run --runtime local --backend zk --client kazoo-lock --time 10s", 4, &["kazoo 2.11.0", "`harness adapters kazoo-lock`"])
        an_adapter_of_another_backend_is_refused_with_its_own(
            "run --runtime local --backend redis --client kazoo-lock --time 10s", 2, &["--backend zk"])
        a_name_that_is_nearly_one_is_suggested("adapters kazo-lock", 2, &["did you mean `kazoo-lock`"])
        a_backend_without_adapters_is_refused_with_those_that_have_some(
            "adapters --backend mariadb", 2, &["no adapter is for mariadb, only for", "valkey", "kube-lease"])
}

#[test]
fn an_install_that_fails_leaves_nothing_that_looks_installed() {
    let harness = Harness::new();
    let folder = harness.folder.path().display();
    // an environment without pip, since one with it takes ten seconds to make
    let without_pip = r#"exec env PATH="${PATH#*:}" python3 -m venv --without-pip "$3""#;
    write_program(&harness.folder.path().join("python3"), without_pip);
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let command = |words: &str| {
        let mut command = harness.command(words);
        Answer::to(command.env("XDG_CACHE_HOME", harness.folder.path()).env("PATH", &path))
    };
    let failed = command("adapters redis-py");
    failed.assert_exit(4);
    assert_has(&failed.stderr, &["No module named pip"]);
    let listed = command("list clients --json").diagnosis;
    let mut adapters = listed.as_array().unwrap().iter();
    let adapter = adapters.find(|adapter| adapter["name"] == "redis-py");
    assert_eq!(adapter.unwrap()["installed"], false);
}
