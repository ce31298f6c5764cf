//! Placements of `harness hunt --exhaustive`: every placement of faults on single messages, in one scenario.

use serde_json::Value;

use crate::command::{Harness, again, assert_has};
use crate::simulated::hunted;
use crate::virtual_time::harness_on;

/// Makes a search for every placement, in a scenario with a seed.
fn searched(harness: &Harness, words: &str, exit: i32) -> Value {
    hunted(harness, &format!("--seed 7 {words}"), exit)
}

#[test]
fn every_placement_of_a_fault_on_a_message_is_tried_and_a_careful_lock_stands_them() {
    // on Redis and Valkey no server is killed: it would lose its locks
    for (backend, recipe, kinds) in [
        ("redis", "redis-set-px-lua", 12),
        ("valkey", "valkey-ifeq", 12),
        ("zk", "zk-predecessor-watch", 14),
        ("etcd", "etcd-mutex", 14),
        ("nats", "nats-key-revision", 14),
    ] {
        let harness = Harness::new();
        let words = format!("--backend {backend} --recipe {recipe} --exhaustive 1 --set grants=4 --until end --jobs 2");
        let record = searched(&harness, &words, 0);
        // the same scenario, made by hand without a fault: its history has the number of messages to act on;
        // etcd grants no lease below 2 s
        let scenario = match backend {
            "etcd" => "--lease 2s --hold 200ms --wait 600ms --time 20s",
            _ => "--lease 1s --hold 100ms --wait 300ms --time 10s",
        };
        let scenario = format!("{scenario} --clients 3 --grants 4 --progress-bound 5s --fault none");
        let run = harness.run(&format!(
            "--runtime simulated --backend {backend} --recipe {recipe} {scenario} --seed 7"
        ));
        run.assert_exit(0);
        let sent = requests_of(&harness);
        let tried = record["exhaustive"]["tried"].as_array().unwrap();
        let placed = record["exhaustive"]["kinds"].as_array().unwrap().len() as u64;
        assert_eq!(placed, kinds);
        assert_eq!(tried[0]["tried"], 1);
        let of_one = tried[1]["tried"].as_u64().unwrap();
        assert!(of_one.is_multiple_of(kinds), "{of_one} placements");
        let messages = sent / 2 + 1..=sent;
        assert!(
            messages.contains(&(of_one / kinds)),
            "{of_one} placements, {sent} messages"
        );
    }
}

/// Returns the number of requests that clients sent in the last run, as counted at the end of its history.
fn requests_of(harness: &Harness) -> u64 {
    let history = harness.latest_history();
    let last: Value = serde_json::from_str(history.lines().last().unwrap()).unwrap();
    let requests = last["wire"]["requests"].as_array().expect("it counts them").iter();
    requests.map(|request| request["count"].as_u64().unwrap()).sum()
}

#[test]
fn the_smallest_placement_that_breaks_a_lock_is_found_first_and_is_the_same_run_again() {
    let long_waits = "--set clients=2 --set grants=4 --set wait=3s";
    for (recipe, scenario, kind, property) in [
        ("redis-setnx", "", "drop-reply=", "HL005"),
        ("redis-setnx", "--fault kill", "kill=", "HL005"),
        // the server that executed a create is killed before its reply, and no GUID finds the node again
        (
            "zk-predecessor-watch",
            "--set guid=off --fault server-kill",
            "server-kill=",
            "HL005",
        ),
        ("redis-setnx-expire", "", "drop-reply=", "HL005"),
        // a late release meets another holder if clients wait long
        ("redis-set-px-del", long_waits, "delay-request=", "HL001"),
        // a client that is cut off after the reply to its acquire works on past its lease
        (
            "redis-set-px-lua",
            "--set holder=naive --fault partition",
            "partition=",
            "HL001",
        ),
        ("redis-watchdog", "--set holder=naive", "partition=", "HL001"),
        ("valkey-ifeq", "--set holder=naive", "partition=", "HL001"),
        ("nats-key-revision", "--set holder=naive", "partition=", "HL001"),
    ] {
        let harness = Harness::new();
        let backend = recipe.split('-').next().unwrap();
        let words = format!("--backend {backend} --recipe {recipe} --exhaustive 1 {scenario}");
        let record = searched(&harness, words.trim(), 1);
        let find = &record["finds"][0];
        let fault = find["fault"].as_str().unwrap();
        assert_eq!(find["property"], property, "{record:#}");
        assert!(fault.starts_with(kind) && !fault.contains(','), "{recipe}: {fault}");
        let answer = harness.answer(&format!("{} --json --quiet", again(find)));
        answer.assert_verdict(property, "violated");
    }
}

#[test]
fn a_search_that_does_not_reach_its_end_is_no_pass_and_shards_reach_it_together() {
    let harness = Harness::new();
    let words =
        "--backend redis --recipe redis-set-px-lua --exhaustive 1 --fault drop-reply --set clients=2 --set grants=4";
    searched(&harness, &format!("{words} --experiments 30"), 3);
    let folder = harness.hunts()[0].display().to_string();
    let whole = harness.printed(&format!("hunt --continue {folder} --json --quiet"), 0);

    let parts = Harness::new();
    for part in 1..=2 {
        searched(&parts, &format!("{words} --shard {part}/2"), 0);
    }
    let folders: Vec<String> = parts.hunts().iter().map(|hunt| hunt.display().to_string()).collect();
    let merged =
        |folders: &[String], exit| parts.printed(&format!("hunt --merge {} --json --quiet", folders.join(" ")), exit);
    merged(&folders[..1], 3);
    let both = merged(&folders, 0);
    assert_eq!(both["exhaustive"]["tried"], whole["exhaustive"]["tried"]);
}

/// Acts on successive messages strike these messages: no act changes the number of another's message.
#[test]
fn acts_on_messages_in_a_row_meet_messages_in_a_row() {
    let harness = Harness::new();
    let scenario = "--lease 1s --hold 100ms --wait 300ms --time 10s --clients 2 --grants 4 --seed 7";
    // the times at which the struck messages were sent
    let met = |faults: &str| -> Vec<u64> {
        let words =
            format!("--runtime simulated --backend redis --recipe redis-set-px-lua {scenario} --fault {faults}");
        harness.run(&words);
        let history = harness.latest_history();
        let lines = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line["matched"]["time"].as_u64()).collect()
    };
    let alone: Vec<u64> = (4..=7)
        .flat_map(|number| met(&format!("delay-reply=any:{number}:1ms")))
        .collect();
    let together = met("delay-reply=any:4:1ms,delay-reply=any:5:1ms,delay-reply=any:6:1ms,delay-reply=any:7:1ms");
    assert_eq!((alone.len(), together.len()), (4, 4));
    // each is up to 3 ms later by the delays before it; the next message would be 15 ms later
    let is_same = |(alone, together): (&u64, &u64)| (0..8_000_000).contains(&(together - alone));
    assert!(alone.iter().zip(&together).all(is_same), "{alone:?} {together:?}");
}

/// Each search is made with and without the reduction: both find the same violations, the second in at least as many experiments.
#[test]
fn a_search_finds_the_same_without_its_reduction() {
    let scenario = "--set clients=2 --until end";
    for (lock, faults, exit) in [
        ("redis-set-px-lua --set holder=naive --set grants=2", "partition", 1),
        ("redis-set-px-lua --set grants=1", "drop-reply", 0),
    ] {
        let words = format!("--backend redis --recipe {lock} --exhaustive 2 --fault {faults} {scenario}");
        // with the reduction, and without it
        let [(causes, tried), (all_causes, all_tried)] = ["", " --without-reduction"].map(|more| {
            let record = searched(&Harness::new(), &format!("{words}{more}"), exit);
            let finds = record["finds"].as_array().unwrap().iter();
            let causes = finds.map(|find| format!("{} {}", find["property"], find["class"]));
            let mut causes: Vec<String> = causes.collect();
            causes.sort();
            (causes, record["exhaustive"]["tried"][2]["tried"].as_u64().unwrap())
        });
        assert_eq!(causes, all_causes, "{lock}");
        assert!(tried <= all_tried, "{lock}");
        assert!(exit == 0 || tried < all_tried, "{lock}: there was nothing to reduce");
    }
}

#[test]
fn a_search_leaves_a_page_and_a_junit_file_that_say_whether_it_is_complete() {
    let harness = Harness::new();
    let words =
        "--backend redis --recipe redis-set-px-lua --exhaustive 1 --fault drop-reply --set clients=2 --set grants=3";
    let written = |words: &str, exit: i32| {
        searched(&harness, words, exit);
        let folder = harness.hunts().pop().unwrap();
        ["index.html", "junit.xml"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
    };
    let [page, junit] = written(words, 0);
    assert_has(&page, &["PASS", "complete: all"]);
    assert_has(&junit, &["every placement was tried", "errors=\"0\""]);
    let [page, junit] = written(&format!("{words} --experiments 5 --set lease=3s"), 3);
    assert_has(&page, &["UNSURE", "not complete: 5 of"]);
    assert_has(&junit, &["errors=\"1\""]);
}

mod virtual_time {
    use super::*;

    #[test]
    fn every_placement_is_tried_on_a_real_server_too() {
        let Some(harness) = harness_on("redis") else { return };
        for (recipe, exit) in [
            ("redis-set-px-lua --fault drop-reply", 0),
            ("redis-setnx --fault drop-reply", 1),
            ("redis-set-px-lua --fault partition", 0),
            ("redis-set-px-lua --fault partition --set holder=naive", 1),
        ] {
            let words = format!(
                "--runtime virtual --backend redis --recipe {recipe} --exhaustive 1 --set clients=2 --set grants=2 --seed 7"
            );
            let record = harness.printed(&format!("hunt --quiet --json {words}"), exit);
            let tried = record["exhaustive"]["tried"][1]["tried"].as_u64().unwrap();
            assert!(
                exit == 1 || tried >= 7,
                "{tried}: two grants, with what was asked in vain"
            );
        }
    }
}

#[test]
fn an_act_on_a_message_that_never_comes_ends_with_the_faults() {
    let harness = Harness::new();
    let acts = "pause=any:100000,kill=any:100000,partition=any:100000,server-kill=any:100000";
    let run = harness.run(&format!(
        "--runtime simulated --backend zk --fault {acts} --time 20s --seed 7"
    ));
    run.assert_exit(3);
    let history = harness.latest_history();
    let missed = history.matches("the faults were over before its message came").count();
    assert_eq!(missed, 4, "{}", run.stderr);
}
