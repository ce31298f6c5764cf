//! Foreign clients, in other languages: heard as the project's own are, and never trusted.

use crate::command::Harness;

/// A lock that everybody always gets. It speaks the protocol in a dozen lines of Python.
const EVERYBODY: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"type": "ok", "id": request["id"]}), flush=True)
"#;

#[test]
fn a_lock_that_everybody_gets_is_caught_without_its_help() {
    let harness = Harness::new();
    let script = harness.folder.path().join("everybody.py");
    std::fs::write(&script, EVERYBODY).unwrap();
    let mut command = harness.command("run --json --runtime local --backend redis --lease 1s --time 7s --client");
    let output = command.arg(format!("python3 {}", script.display())).output().unwrap();
    let answer = crate::command::Answer::of(output);
    answer.assert_exit(1);
    assert_eq!(answer.verdict("HL001"), "violated");
    assert_eq!(answer.verdict("HL008"), "violated");
}

#[test]
fn the_client_of_the_protocol_page_is_a_lock() {
    let page = include_str!("../../docs/client-protocol.md");
    let (_, program) = page.rsplit_once("```python\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let harness = Harness::new();
    let script = harness.folder.path().join("my_lock.py");
    std::fs::write(&script, program).unwrap();
    let words = "run --json --runtime local --backend redis --fault partition=holder --lease 1s --time 12s --client";
    let mut command = harness.command(words);
    let output = command.arg(format!("python3 {}", script.display())).output().unwrap();
    let answer = crate::command::Answer::of(output);
    answer.assert_exit(0);
    assert_eq!(answer.verdict("HL007"), "holds", "its owners are found on the server");
}

#[test]
fn a_client_that_prints_garbage_is_named_with_its_line() {
    let harness = Harness::new();
    let mut command = harness.command("run --runtime local --backend redis --time 10s --client");
    let output = command.arg("echo 'connecting to redis ...'; cat").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.contains("not of the client protocol: `connecting to redis ...`"),
        "{stderr}"
    );
}

#[test]
fn a_client_that_cannot_be_started_says_why() {
    let harness = Harness::new();
    let mut command = harness.command("run --runtime local --backend redis --time 10s --client");
    let output = command.arg("no-such-program-anywhere").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("not found"), "{stderr}");
}

/// A lock that ends its process 200 ms before its lease does, because it never renews: correct, and rude. Its memory takes
/// a while to be freed, so its pipes close long after it executed its last instruction.
const EXITS_IN_TIME: &str = r#"
import json, os, signal, socket, sys, threading, time, uuid
memory = b"x" * (300 << 20)

def ask(*words):
    redis.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in map(str.encode, words)))
    return replies.readline()

for line in sys.stdin:
    request = json.loads(line)
    answer = {"type": "ok", "id": request["id"]}
    if request["op"] == "open":
        lease = request["lease_ms"]
        host, port = request["endpoints"][0].rsplit(":", 1)
        redis = socket.create_connection((host, int(port)))
        replies = redis.makefile("rb")
    elif request["op"] == "acquire":
        key, end = "harness:" + request["lock"], time.monotonic() + request["wait_ms"] / 1000
        while True:
            asked, owner = time.monotonic(), uuid.uuid4().hex
            if ask("SET", key, owner, "NX", "PX", str(lease)).startswith(b"+OK"):
                doubt = threading.Timer(asked + lease / 1000 - 0.2 - time.monotonic(), os.kill, (os.getpid(), signal.SIGKILL))
                doubt.daemon = True
                doubt.start()
                answer["owner"] = owner
                break
            if time.monotonic() > end:
                answer = {"type": "fail", "id": request["id"], "error": "timeout"}
                break
            time.sleep(0.01)
    elif request["op"] == "release":
        doubt.cancel()
        ask("EVAL", "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end return 0", "1", key, owner)
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn a_lock_that_ends_its_process_before_its_lease_ends_is_never_held_twice() {
    let harness = Harness::new();
    let script = harness.folder.path().join("exits.py");
    std::fs::write(&script, EXITS_IN_TIME).unwrap();
    let words = "run --json --runtime local --backend redis --clients 3 --lease 1s --hold 1500ms --time 14s --client";
    let output = harness
        .command(words)
        .arg(format!("python3 {}", script.display()))
        .output()
        .unwrap();
    let answer = crate::command::Answer::of(output);
    for property in ["HL001", "HL002", "HL008"] {
        assert_eq!(answer.verdict(property), "holds", "{:#}", answer.diagnosis);
    }
    let history = std::fs::read_to_string(harness.results().join("latest/history.jsonl")).unwrap();
    let died = history.lines().filter(|line| line.contains(r#""f":"died""#)).count();
    assert!(died > 3, "{died} processes ended by themselves");
}
