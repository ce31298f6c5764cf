//! Deaths of servers: a server that ends by itself ends the run at once, is named, and no lock is blamed.

use std::process::{Child, Command};

use crate::command::{Answer, Harness, assert_has, assert_lacks, on_runtimes, run_on, tests};
use crate::machine::succeeds;

/// Starts a run of 18 seconds and waits until it is in this phase.
fn in_phase(phase: &str, harness: &Harness, words: &str) -> Child {
    let child = harness.start(&format!("run --lease 2s --time 18s --results results {words}"));
    harness.until_history_has(&format!(r#""phase":"{phase}""#));
    child
}

/// Returns the children of a run with the name of this program.
fn servers_of(run: &Child, program: &str) -> Vec<String> {
    let text = succeeds(Command::new("ps").args(["-o", "pid=,comm=", "--ppid", &run.id().to_string()]));
    let children = text.lines().filter_map(|line| line.trim().split_once(' '));
    let servers = children.filter(|(_, name)| name.trim() == program);
    servers.map(|(pid, _)| pid.to_owned()).collect()
}

/// Asserts that the run ended with `server ended by itself at …s (how)`, with one of these, and that its stored verdict blames no lock.
fn ended_by_itself(harness: &Harness, run: Child, server: &str, how: &[&str]) {
    let answer = Answer::of_child(run);
    answer.assert_exit(4);
    let stderr = &answer.stderr;
    let mut sentences = stderr.lines().filter(|line| line.contains("ended by itself"));
    let sentence = sentences.next().unwrap_or_else(|| panic!("{stderr}"));
    assert_has(sentence, &[&format!("{server} ended by itself at ")]);
    let mut how = how.iter();
    assert!(
        how.any(|how| sentence.contains(&format!("s ({how}); its log: "))),
        "{stderr}"
    );
    let (_, log) = sentence.rsplit_once("its log: ").unwrap();
    assert!(harness.folder.path().join(log).is_file(), "{log}");

    let checked = harness.answer("check latest --json");
    checked.assert_exit(3);
    let reason = checked.diagnosis["unsure"][0].as_str().unwrap();
    assert!(sentence.ends_with(reason), "{reason}");
    assert!(checked.diagnosis["effect"]["hint"].is_string());
    assert_ne!(checked.verdict("HL005"), "violated");
    assert_has(&harness.answer("check latest").stdout, &["UNSURE", "hint"]);
}

/// Kills the server of this number, of so many, in a phase of a run.
fn a_kill_ends_the_run(phase: &str, words: &str, program: &str, (number, of): (usize, usize)) {
    let harness = Harness::new();
    let run = in_phase(phase, &harness, &format!("--runtime local {words}"));
    let servers = servers_of(&run, program);
    assert_eq!(servers.len(), of, "{servers:?}");
    succeeds(Command::new("kill").args(["-9", &servers[number - 1]]));
    ended_by_itself(&harness, run, &format!("n{number}"), &["signal 9"]);
}

tests! {
    a_kill_ends_the_run:
        the_only_server_that_is_killed_ends_the_run("warm-up", "--backend redis --fault none", "redis-server", (1, 1))
        // the plan kills a server after the warm-up, of which a busy machine may see only the end
        one_of_three_servers_that_is_killed_ends_the_run_under_faults(
            "control", "--backend etcd --fault server-kill=leader,latency", "etcd", (2, 3))
}

fn servers_that_the_plan_kills_and_restarts_do_not_end_the_run(runtime: &str) {
    let words = "--backend etcd --fault server-kill,server-restart --lease 2s --time 24s --seed 1";
    let answer = run_on(runtime, words);
    answer.assert_exit(0);
    assert!(answer.windows().len() >= 2, "{}", answer.stderr);
    assert_lacks(&answer.stderr, &["by itself"]);
}

on_runtimes! {
    models:
        servers_that_the_plan_kills_and_restarts_do_not_end_the_run;
}

mod docker {
    use super::*;

    /// Starts a run on docker, and changes its only container with this command.
    fn ends_without_its_container(words: &[&str], how: &[&str]) {
        let harness = Harness::new();
        let run = in_phase("warm-up", &harness, "--runtime docker --backend redis --fault none");
        let name = std::fs::read_link(harness.results().join("latest")).unwrap();
        let name = name.file_name().unwrap().to_str().unwrap();
        // runs of one minute have the same name: the process id distinguishes them
        let label = format!("label=harness.run={name}");
        let process = format!("name=-{}-n1", run.id());
        let found = ["ps", "--filter", &label, "--filter", &process, "--format", "{{.Names}}"];
        let containers = succeeds(Command::new("docker").args(found));
        assert_eq!(containers.lines().count(), 1, "{containers}");
        succeeds(Command::new("docker").args(words).arg(containers.trim()));
        ended_by_itself(&harness, run, "n1", how);
    }

    tests! {
        ends_without_its_container:
            a_container_that_is_killed_ends_the_run(&["kill"], &["exit status 137"])
            // its main process ends first, and the container may be seen in between
            a_container_that_is_removed_ends_the_run(
                &["rm", "-f", "--volumes"], &["its container was removed", "exit status 137"])
    }
}
