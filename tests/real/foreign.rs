//! Foreign clients, in other languages: their events count as those of recipes do, and none of their claims is trusted.

use crate::command::{Harness, assert_has, assert_lacks, on_runtimes, tests};

/// A lock that every client always gets. It speaks the protocol in a dozen lines of Python.
pub const EVERYBODY: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"type": "ok", "id": request["id"]}), flush=True)
"#;

#[test]
fn a_lock_that_everybody_gets_is_caught_without_its_help() {
    let harness = Harness::new();
    let client = harness.python("everybody.py", EVERYBODY);
    let words = format!("--runtime local --backend redis --lease 1s --time 7s --client '{client}'");
    harness.run(&words).assert_is("1, HL001 violated, HL008 violated");
}

#[test]
fn the_client_of_the_protocol_page_is_a_lock() {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    // with a shorter lease, its timer may come too late on a busy machine, and the observer see less than half of shorter holds
    let words =
        "--runtime local --backend redis --fault partition=holder --hold 60ms --lease 3s --window 3500ms --time 14s";
    let answer = harness.run(&format!("{words} --client '{client}'"));
    // its owners are found on the server
    answer.assert_is("0, HL007 holds");
}

/// Writes the complete client of the protocol's page and its library, with some of their text replaced, to separate files.
pub fn page_client(harness: &Harness, replaced: &[(&str, &str)]) -> String {
    let program = include_str!("../../workloads/skeletons/python/my_lock.py");
    let library = include_str!("../../workloads/adapters/python/harness_client.py");
    let mut files = [
        ("my_lock.py", program.to_owned()),
        ("harness_client.py", library.to_owned()),
    ];
    for (from, to) in replaced {
        assert!(files.iter().any(|(_, text)| text.contains(from)), "{from}");
        files.iter_mut().for_each(|(_, text)| *text = text.replace(from, to));
    }
    let [client, _] = files.map(|(name, text)| harness.python(name, &text));
    client
}

/// The lock is the field of a hash, at a key of its own.
const HASH: [(&str, &str); 4] = [
    ("harness:{lock}", "locks/{lock}.mine"),
    (r#""value": "string""#, r#""value": "hash""#),
    (
        r#"self.call("SET", f"locks/{lock}.mine", value, "NX", "PX", int(self.lease * 1000)) == "OK""#,
        r#"self.call("EVAL", "if redis.call('exists',KEYS[1])==1 then return 0 end redis.call('hset',KEYS[1],ARGV[1],1) return redis.call('pexpire',KEYS[1],ARGV[2])", 1, f"locks/{lock}.mine", value, int(self.lease * 1000)) == 1"#,
    ),
    (
        "if redis.call('get',KEYS[1])==ARGV[1]",
        "if redis.call('hexists',KEYS[1],ARGV[1])==1",
    ),
];

fn a_lock_in_a_hash_of_its_own_name_is_watched_where_its_contract_says(runtime: &str) {
    let harness = Harness::new();
    let client = page_client(&harness, &HASH);
    let run = |promised: &str| {
        let words = format!("--runtime {runtime} --backend redis --lease 1s --time 7s --client '{client}' {promised}");
        Harness::new().run(&words)
    };
    let (watched, unwatched) = std::thread::scope(|scope| {
        let unwatched = scope.spawn(|| run("--promise value=none"));
        (run(""), unwatched.join().expect("a run is judged"))
    });
    // its owners are found on the server
    watched.assert_is("0, HL007 holds");
    unwatched.assert_verdict("HL007", "not-applicable");
}

fn a_lock_that_answers_what_its_server_never_granted_is_caught_in_a_hash_of_its_own_name(runtime: &str) {
    let harness = Harness::new();
    let mut replaced = HASH.to_vec();
    replaced.push((
        "return None, value",
        r#"return None, value if value > "8" else "x" + value"#,
    ));
    let client = page_client(&harness, &replaced);
    let words = format!("--runtime {runtime} --backend redis --lease 3s --hold 300ms --time 16s --client '{client}'");
    harness.run(&words).assert_violates("HL007");
}

/// Asserts that a run of the page's client, with `this` in place of `that`, ends with these sentences.
pub fn ends_the_run((that, this): (&str, &str), words: &str, sentences: &[&str]) {
    let harness = Harness::new();
    let client = page_client(&harness, &[(that, this)]);
    let words = format!("run --runtime local --backend redis {words} --client '{client}'");
    harness.assert_says(&words, 4, sentences);
}

tests! {
    ends_the_run:
        a_client_that_promises_another_thing_the_second_time_ends_the_run_with_both_answers(
            (r#""renews": False"#, r#""renews": bool(time.monotonic_ns() % 2)"#), "--clients 20 --time 8s",
            &[r#""renews":true"#, r#""renews":false"#, "promises something else"])
        a_client_whose_contract_has_a_field_that_is_none_is_refused_with_those_that_are(
            (r#""renews""#, r#""renew""#), "--time 8s", &["`renew`", "`renews`"])
}

/// A lock that ends its process 800 ms before its lease ends, because it never renews: correct, but abrupt. Its memory
/// takes time to be freed, so its pipes close long after its last instruction.
const EXITS_IN_TIME: [(&str, &str); 3] = [
    (r#""extends": True"#, r#""extends": False"#),
    ("self.lease * 0.85", "self.lease * 0.6"),
    (r#"self._signal("lost", lock, cause)"#, "os.kill(os.getpid(), 9)"),
];

fn a_lock_that_ends_its_process_before_its_lease_ends_is_never_held_twice(runtime: &str) {
    let harness = Harness::new();
    // a world waits for the end of a process without a limit
    let memory = if runtime == "virtual" { "30 << 20" } else { "300 << 20" };
    let memory = format!("import secrets\nMEMORY = b'x' * ({memory})");
    let mut replaced = EXITS_IN_TIME.to_vec();
    replaced.push(("import secrets", memory.as_str()));
    let client = page_client(&harness, &replaced);
    let words = format!("--runtime {runtime} --backend redis --clients 3 --lease 2s --hold 3s --time 16s");
    let answer = harness.run(&format!("{words} --client '{client}'"));
    answer.assert_is("HL001 holds, HL002 holds, HL008 holds");
    let history = harness.latest_history();
    let died = history.lines().filter(|line| line.contains(r#""f":"died""#)).count();
    assert!(died > 3, "{died} processes ended by themselves");
}

#[test]
fn a_client_that_does_not_answer_is_killed_before_the_recovery_and_left_alone_in_it() {
    let harness = Harness::new();
    let words = "--runtime local --backend redis --clients 2 --lease 1s --wait 100ms --answer-limit 400ms --time 8s";
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/strangers/stops_answering.py");
    harness.run(&format!("{words} --client 'python3 {client}'"));
    let history = harness.latest_history();
    let (before, recovery) = history.split_once(r#""phase":"recovery""#).expect("it recovers");
    let given_up = |lines: &str| lines.matches("the client did not answer").count();
    assert!(given_up(before) > 1, "it is killed each time: {history}");
    assert_eq!(given_up(recovery), 0, "{recovery}");
}

/// Writes a client that opens, and answers every acquire like this. `wait` is in seconds.
fn answering(harness: &Harness, answer: &str) -> String {
    let program = format!(
        r#"
import json, sys, time
for line in sys.stdin:
    request = json.loads(line)
    reply, wait = {{"type": "ok"}}, request.get("wait_ms", 0) / 1000
    if request["op"] == "acquire":
        {answer}
    print(json.dumps({{**reply, "id": request["id"]}}), flush=True)
"#
    );
    harness.python("answering.py", &program)
}

const NOBODY_ACQUIRES: &str = "--backend redis --clients 2 --lease 1s --wait 600ms --progress-bound 2s";

fn a_client_that_answers_every_acquire_with_an_error_ends_the_run_and_no_lock_is_blamed(runtime: &str) {
    let ends_without_blame = |error: &str| {
        let harness = Harness::new();
        let answer = format!(r#"reply = {{"type": "{error}", "error": "FileNotFoundError: etcdctl"}}"#);
        let client = answering(&harness, &answer);
        let words = format!("--runtime {runtime} {NOBODY_ACQUIRES} --time 12s --fault latency --client '{client}'");
        let ended = harness.answer(&format!("run {words}"));
        ended.assert_exit(4);
        let last = "the last one: FileNotFoundError: etcdctl";
        assert_has(&ended.stderr, &[last, "client-check"]);
        assert_lacks(&ended.stdout, &["FAIL", "HL005"]);
        assert!(harness.results().join("latest/no-lock.jsonl").is_file());
    };
    std::thread::scope(|scope| {
        for error in ["fail", "info"] {
            scope.spawn(move || ends_without_blame(error));
        }
    });
}

fn a_lock_that_nobody_gets_is_blamed_in_whatever_words_it_says_so(runtime: &str) {
    let is_blamed = |answer: &str| {
        let harness = Harness::new();
        let client = answering(&harness, answer);
        let words = format!("--runtime {runtime} {NOBODY_ACQUIRES} --time 12s --fault latency --client '{client}'");
        harness.run(&words).assert_is("1, HL005 violated");
    };
    std::thread::scope(|scope| {
        for answer in [
            r#"time.sleep(wait); reply = {"type": "fail", "error": "LockUnavailable: gave up"}"#,
            r#"time.sleep(wait); reply = {"type": "fail", "error": "timeout"}"#,
        ] {
            scope.spawn(move || is_blamed(answer));
        }
    });
}

fn a_hunt_on_a_client_that_only_knows_errors_ends_with_the_last_of_them(runtime: &str) {
    let harness = Harness::new();
    let client = answering(
        &harness,
        r#"reply = {"type": "fail", "error": "ModuleNotFoundError: redis"}"#,
    );
    let words = "--backend redis --lease 1s --for 2m --set progress-bound=1s --set wait=500ms";
    let hunted = harness.answer(&format!("hunt --runtime {runtime} {words} --client '{client}'"));
    hunted.assert_exit(4);
    assert_has(&hunted.stdout, &["ModuleNotFoundError: redis", "3 failed"]);
}

on_runtimes! {
    virtual_time:
        a_lock_in_a_hash_of_its_own_name_is_watched_where_its_contract_says
        a_lock_that_answers_what_its_server_never_granted_is_caught_in_a_hash_of_its_own_name
        a_lock_that_ends_its_process_before_its_lease_ends_is_never_held_twice
        a_client_that_answers_every_acquire_with_an_error_ends_the_run_and_no_lock_is_blamed
        a_lock_that_nobody_gets_is_blamed_in_whatever_words_it_says_so
        a_hunt_on_a_client_that_only_knows_errors_ends_with_the_last_of_them;
}
