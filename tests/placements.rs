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
    let last = harness.latest_lines().pop().expect("a history has an end");
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
    let begun = searched(&harness, &format!("{words} --experiments 30"), 3);
    assert_eq!(begun["complete"], false);
    let folder = harness.hunts()[0].display().to_string();
    let whole = harness.printed(&format!("hunt --continue {folder} --json --quiet"), 0);
    let elsewhere = format!("hunt --continue {folder} --runtime local");
    harness.assert_says(
        &elsewhere,
        2,
        &["continues with the runtime that it began with, simulated"],
    );

    let path = harness.hunts()[0].join("hunt.json");
    let mut of_another: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    of_another["harness"] = "0.0.1".into();
    std::fs::write(&path, of_another.to_string()).unwrap();
    let on = format!("hunt --continue {folder}");
    harness.assert_says(&on, 2, &["harness 0.0.1 began", "begin it again with this version"]);

    let parts = Harness::new();
    for part in 1..=2 {
        searched(&parts, &format!("{words} --shard {part}/2"), 0);
    }
    let folders: Vec<String> = parts.hunts().iter().map(|hunt| hunt.display().to_string()).collect();
    let both = parts.printed(&format!("hunt --merge {} --json --quiet", folders.join(" ")), 0);
    assert_eq!(both["exhaustive"]["tried"], whole["exhaustive"]["tried"]);
    assert_eq!((&whole["complete"], &both["complete"]), (&true.into(), &true.into()));
}

#[test]
fn a_hunt_continues_to_the_end_that_it_began_with() {
    let harness = Harness::new();
    let lock = "--backend redis --recipe redis-setnx --fault drop-reply --set clients=2 --set grants=4";
    let words = format!("{lock} --exhaustive 1 --until end");
    searched(&harness, &format!("{words} --experiments 1"), 3);
    let folder = harness.hunts()[0].display().to_string();
    let later = harness.printed(&format!("hunt --continue {folder} --json --quiet"), 1);
    assert_eq!(later["until"], "end");
    // a hunt until its first find would end at it
    let at_once = searched(&Harness::new(), &words, 1);
    assert_eq!(later["exhaustive"]["tried"], at_once["exhaustive"]["tried"]);
}

/// Acts on successive messages strike these messages: no act changes the number of another's message.
#[test]
fn acts_on_messages_in_a_row_meet_messages_in_a_row() {
    let harness = Harness::new();
    let met = |faults: &str| -> Vec<u64> {
        let acted = acted_on(&lines_under(&harness, faults, 4));
        acted.into_iter().map(|(at, _)| at).collect()
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

/// The lines of a run of this lock with these faults, in a small scenario.
fn lines_under(harness: &Harness, faults: &str, grants: u32) -> Vec<Value> {
    let scenario = "--lease 1s --hold 100ms --wait 300ms --time 10s --clients 2 --progress-bound 5s --seed 7";
    let words = format!(
        "--runtime simulated --backend redis --recipe redis-set-px-lua {scenario} --grants {grants} --fault {faults}"
    );
    harness.run(&words);
    harness.latest_lines()
}

/// When the messages passed that were acted on, and whose they were, in their order.
fn acted_on(lines: &[Value]) -> Vec<(u64, String)> {
    let matched = lines.iter().filter_map(|line| {
        let matched = &line["matched"];
        Some((matched["time"].as_u64()?, matched["client"].as_str()?.to_owned()))
    });
    let mut matched: Vec<(u64, String)> = matched.collect();
    matched.sort();
    matched
}

/// The end of an act, on whichever client, lets go of no message that another act holds back.
#[test]
fn a_message_that_is_late_stays_late_when_another_act_is_over() {
    const LATE: u64 = 200_000_000;
    let harness = Harness::new();
    let mut seen = 0;
    for later in 5..=8 {
        let lines = lines_under(
            &harness,
            &format!("delay-reply=any:4:200ms,delay-request=any:{later}:1ms"),
            4,
        );
        let acted = acted_on(&lines);
        let [(at, client), (other_at, other)] = &acted[..] else {
            panic!("two messages are acted on: {acted:?}")
        };
        if client == other || *other_at > at + LATE / 2 {
            continue;
        }
        seen += 1;
        // who waits for the reply says nothing before it comes
        let is_its = |line: &&Value| format!("c{}", line["client"]) == *client && line["type"] == "ok";
        let said = lines.iter().filter(is_its).filter_map(|line| line["time"].as_u64());
        let early: Vec<u64> = said.filter(|time| (*at..at + LATE).contains(time)).collect();
        assert!(early.is_empty(), "message {later}: {early:?} after {at}");
    }
    assert!(seen > 0, "no message of the other client came meanwhile");
}

/// The search takes the messages of a run for those that one more act can be placed on.
#[test]
fn up_to_its_last_act_a_placement_is_the_run_without_that_act() {
    let harness = Harness::new();
    for first in [
        "drop-reply=any:3",
        "delay-request=any:3:200ms",
        "kill=any:3",
        "partition=any:3",
    ] {
        let without = lines_under(&harness, first, 4);
        let with = lines_under(&harness, &format!("{first},drop-request=any:6"), 4);
        let (at, _) = acted_on(&with).pop().expect("a message was acted on");
        let of_clients = |lines: &[Value]| -> Vec<Value> {
            let before = |line: &&Value| line["time"].as_u64().is_some_and(|time| time < at);
            let of_clients = lines.iter().filter(before).filter(|line| line["process"] != "nemesis");
            let mut of_clients: Vec<Value> = of_clients.cloned().collect();
            for line in &mut of_clients {
                // lines of the other act are counted, too
                line.as_object_mut().unwrap().remove("index");
            }
            of_clients
        };
        let (without, with) = (of_clients(&without), of_clients(&with));
        assert!(!with.is_empty());
        assert_eq!(without, with, "{first}");
    }
}

/// The messages after these that one more act meets, found by acting on one after the other; and whether the act had an effect.
fn met_after(harness: &Harness, before: &[u32]) -> Vec<(u32, bool)> {
    let mut met = Vec::new();
    for number in before.last().map_or(1, |last| last + 1).. {
        let numbers = before.iter().chain([&number]);
        let acts: Vec<String> = numbers.map(|number| format!("kill-after=any:{number}")).collect();
        let lines = lines_under(harness, &acts.join(","), 1);
        let is_last = |line: &&Value| line["phase"] == "heal" && line["window"] == acts.len();
        let healed = lines.iter().find(is_last).expect("every window heals");
        if healed["matched"].is_null() {
            break;
        }
        met.push((number, healed["matched"]["done"] == true));
    }
    met
}

/// The oracle knows nothing of the search: it goes through the numbers of messages until there are no more.
#[test]
fn a_search_tries_every_pair_that_can_be_found_by_hand() {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-lua --exhaustive 2 --fault kill-after --set clients=2 --set grants=1 --until end";
    let record = searched(&harness, words, 0);
    let with_effect = |acts: usize| {
        let counts = &record["exhaustive"]["tried"][acts];
        counts["tried"].as_u64().unwrap() - counts["without_effect"].as_u64().unwrap()
    };
    let by_hand = Harness::new();
    let effective = |before: &[u32]| -> Vec<u32> {
        let met = met_after(&by_hand, before).into_iter();
        met.filter(|(_, had_effect)| *had_effect)
            .map(|(number, _)| number)
            .collect()
    };
    let singles = effective(&[]);
    let pairs: usize = singles.iter().map(|first| effective(&[*first]).len()).sum();
    assert!(pairs > 0);
    assert_eq!([with_effect(1), with_effect(2)], [singles.len() as u64, pairs as u64]);
}

#[test]
fn a_search_ends_although_some_placements_cannot_be_run() {
    let harness = Harness::new();
    // a client that is killed needs more time than the run has
    let words = "--backend redis --recipe redis-set-px-lua --exhaustive 2 --fault drop-reply,kill";
    let scenario = "--set clients=2 --set grants=1 --set time=3s --until end";
    let record = searched(&harness, &format!("{words} {scenario}"), 3);
    assert!(record["counts"]["failed"].as_u64() > Some(0), "{record:#}");
    let open = record["open"].as_array().unwrap().len() as u64;
    assert_eq!(record["counts"]["failed"], open, "they are tried again when it goes on");
    let error = record["error"].as_str().unwrap();
    assert!(error.contains("too short"), "{error}");
}

/// Each run is made with the reduction and without it: the same violations are found in as many experiments or more.
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
