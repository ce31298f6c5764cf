//! Roles of servers in a history: each change, and the server through which an acquire went.

use serde_json::Value;

use crate::command::{Harness, on_runtimes};

/// Nanoseconds after a kill in which a server may still live, and those after which it is certainly dead and not yet restarted.
const DYING: u64 = 300_000_000;
const DEAD: u64 = 1_000_000_000;

/// Returns the history of a run that passed.
fn history(words: &str) -> Vec<Value> {
    let harness = Harness::new();
    harness.run(words).assert_exit(0);
    harness.latest_lines()
}

fn time(line: &Value) -> u64 {
    line["time"].as_u64().unwrap()
}

/// Returns the leader in a line of roles.
fn leader(line: &Value) -> Option<&str> {
    let mut roles = line["roles"].as_object().unwrap().iter();
    roles.find(|(_, role)| *role == "leader").map(|(name, _)| name.as_str())
}

fn acquired(history: &[Value]) -> impl Iterator<Item = &Value> {
    history
        .iter()
        .filter(|line| line["f"] == "acquire" && line["type"] == "ok")
}

fn a_leader_that_is_killed_is_followed_by_another_and_nobody_acquires_through_it(runtime: &str) {
    let history = history(&format!(
        "--runtime {runtime} --backend zk --fault server-kill=leader --lease 1s --window 4s --time 10s --clients 12 --seed 5eed"
    ));
    let roles: Vec<&Value> = history.iter().filter(|line| line["f"] == "roles").collect();
    let warm_up = history.iter().find(|line| line["phase"] == "warm-up").unwrap();
    assert!(
        time(roles[0]) < time(warm_up),
        "the first ones are there from the beginning"
    );
    assert_eq!(roles[0]["roles"].as_object().unwrap().len(), 3);
    assert!(
        roles.windows(2).all(|pair| pair[0]["roles"] != pair[1]["roles"]),
        "{roles:#?}"
    );

    let kill = history
        .iter()
        .find(|line| line["f"] == "server-kill" && line["phase"] == "start")
        .unwrap();
    let killed = kill["targets"][0].as_str().unwrap();
    let before = roles.iter().rfind(|line| time(line) < time(kill)).unwrap();
    assert_eq!(leader(before), Some(killed));
    let after: Vec<&&Value> = roles.iter().filter(|line| time(line) > time(kill)).collect();
    assert_eq!(after[0]["roles"][killed], "not serving", "{after:#?}");
    let next = after.iter().find_map(|line| leader(line)).unwrap();
    assert_ne!(next, killed, "{after:#?}");

    let nodes: Vec<&str> = acquired(&history).filter_map(|line| line["node"].as_str()).collect();
    // a client that moves between two servers has none
    let (known, all) = (nodes.len(), acquired(&history).count());
    assert!(known * 10 > all * 9, "{known} of {all}");
    for server in ["n1", "n2", "n3"] {
        assert!(nodes.contains(&server), "nobody went through {server}");
    }
    let dead = time(kill) + DYING..time(kill) + DEAD;
    let ghosts: Vec<&Value> = acquired(&history)
        .filter(|line| dead.contains(&time(line)) && line["node"] == killed)
        .collect();
    assert!(ghosts.is_empty(), "{ghosts:#?}");
}

fn a_client_that_speaks_to_several_servers_at_once_is_at_none_of_them(runtime: &str) {
    let history = history(&format!(
        "--runtime {runtime} --backend redis --recipe redlock --fault none --lease 2s --time 8s --seed 5eed"
    ));
    assert!(acquired(&history).count() > 0);
    let named: Vec<&Value> = acquired(&history).filter(|line| line.get("node").is_some()).collect();
    assert!(named.is_empty(), "{named:#?}");
    let roles = history.iter().find(|line| line["f"] == "roles").unwrap();
    let all: Vec<&Value> = roles["roles"].as_object().unwrap().values().collect();
    assert_eq!(all, ["master"; 5]);
}

on_runtimes! {
    models:
        a_client_that_speaks_to_several_servers_at_once_is_at_none_of_them;
    nightly:
        a_leader_that_is_killed_is_followed_by_another_and_nobody_acquires_through_it;
}
