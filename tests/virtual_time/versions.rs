//! `--server-version` and `server-upgrade` in virtual time: fetched servers run, have the requested version, and repeat.

use super::come_out;
use crate::command::Harness;
use crate::machine::has_no_valkey;

#[test]
fn a_redis_of_another_version_is_fetched_runs_and_is_the_same_again() {
    // Valkey is here where PyPI could be reached
    if has_no_valkey() {
        return;
    }
    let harness = Harness::new();
    let words = "--runtime virtual --backend redis --clients 3 --grants 30 --time 15s --seed 1 --server-version 6.2";
    let right = harness.run(&format!("{words} --fault partition=holder"));
    right.assert_exit(0);
    let run = &right.diagnosis["run"];
    assert_eq!(run["version"], "6.2.14");
    let again = run["again"].as_array().unwrap();
    let place = again.iter().position(|word| word == "--server-version").unwrap();
    assert_eq!(again[place + 1], "6.2");
    harness.assert_replayed();

    let listed = harness.printed("list versions --json", 0);
    let is_it = |row: &&serde_json::Value| row["name"] == "redis 6.2.14";
    let row = listed.as_array().unwrap().iter().find(is_it).unwrap();
    assert_eq!((&row["fetched"], &row["image"]), (&true.into(), &"redis:6.2.14".into()));
}

/// The folder of this machine's packages has a newer version.
#[test]
fn a_redis_is_upgraded_on_its_files() {
    if has_no_valkey() {
        return;
    }
    let words = "--clients 3 --lease 1s --time 15s --seed 1 --server-version 6.2 --fault server-upgrade=/";
    come_out(
        "redis",
        words,
        &[("", "0, servers_upgraded = 1, servers_back = 1, again")],
    );
}

mod nightly {
    use super::*;

    #[test]
    fn servers_of_nats_are_upgraded_one_after_the_other() {
        if has_no_valkey() {
            return;
        }
        let words =
            "--locks 4 --lease 1s --window 3s --time 24s --seed 1 --server-version 2.14 --fault server-upgrade=2.15";
        come_out(
            "nats",
            words,
            &[("", "0, servers_upgraded = 3, servers_back = 3, again")],
        );
    }
}
