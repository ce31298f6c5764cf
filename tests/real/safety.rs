//! Safety: the effects of other users, hosts and pages on a run, and those of a run on the rest of the machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::proxies::ProxyProcess;
use crate::command::{Answer, Harness, assert_has, assert_lacks};
use crate::machine::{http, names_in, of_process, pids, until};

/// Returns the status of a request with these header lines that creates a proxy.
fn makes_a_proxy(api: SocketAddr, headers: &[&str]) -> u16 {
    let body = r#"{"name":"p","listen":"127.0.0.1:0","upstream":"127.0.0.1:1"}"#;
    let head = [&["POST /proxies HTTP/1.1"][..], headers].concat().join("\r\n");
    let answer = http(("127.0.0.1", api.port()), &head, body).unwrap();
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_web_page_cannot_use_the_api_of_the_proxy() {
    let harness = Harness::new();
    let proxy = ProxyProcess::start_with(&harness, "--listen 127.0.0.1:0");
    let api = proxy.api;
    let host = format!("Host: {api}");
    assert_eq!(makes_a_proxy(api, &[&host]), 201);
    // a page by DNS rebinding, and one of another site
    assert_eq!(makes_a_proxy(api, &["Host: evil.example"]), 403);
    assert_eq!(makes_a_proxy(api, &[&host, "Origin: http://evil.example"]), 403);
    assert_lacks(&proxy.end(), &["warning"]);
}

#[test]
fn an_api_with_a_token_wants_it_and_one_without_is_warned_of_where_others_reach_it() {
    let harness = Harness::new();
    let file = harness.folder.path().join("token");
    std::fs::write(&file, "5f1d0c2b9a8e7f6d\n").unwrap();
    let proxy = ProxyProcess::start_with(&harness, "--listen 0.0.0.0:0 --token-file token");
    let api = proxy.api;
    let host = "Host: harness.internal:8474";
    assert_eq!(makes_a_proxy(api, &["Host: 127.0.0.1"]), 401);
    assert_eq!(
        makes_a_proxy(api, &[host, "Authorization: Bearer 5f1d0c2b9a8e7f6d"]),
        201
    );
    assert_lacks(&proxy.end(), &["warning"]);
    let said = ProxyProcess::start_with(&harness, "--listen 0.0.0.0:0").end();
    assert_has(&said, &["warning", "--token-file"]);
    std::fs::write(&file, "short").unwrap();
    harness.assert_says("proxy --listen 127.0.0.1:0 --token-file token", 2, &["has no token"]);
}

#[test]
fn a_run_warns_of_an_api_that_others_reach() {
    let harness = Harness::new();
    let run = |at: &str| {
        let words = format!("run --runtime local --backend redis --fault none --lease 1s --time 7s --proxy-api {at}");
        harness.answer(&words).said()
    };
    let (said, quiet) = std::thread::scope(|scope| {
        let others_reach = scope.spawn(|| run("0.0.0.0:0"));
        let own = run("127.0.0.1:0");
        (others_reach.join().expect("a run is told"), own)
    });
    assert_has(&said, &["warning: ", "hint: --proxy-api-token-file"]);
    assert_lacks(&said, &["\\nhint"]);
    // a machine with far too much to do makes a run unsure
    assert_has(&quiet, &["mutual exclusion   holds"]);
    assert_lacks(&quiet, &["warning"]);
}

/// A lock that every client always gets, whose client starts two processes in their own sessions, one without its environment.
const PARENT: &str = r#"
import json, subprocess, sys
for words, length in zip([[], ["env", "-i"]], sys.argv[1:]):
    subprocess.Popen([*words, "setsid", "sleep", length], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"type": "ok", "id": request["id"]}), flush=True)
"#;

/// Returns the processes with this command line.
fn alive(command: &str) -> Vec<u32> {
    let is_it = |pid: &u32| of_process(*pid, "cmdline").replace('\0', " ").trim() == command;
    pids().filter(is_it).collect()
}

/// Starts a run with such clients, and returns the command lines of the processes that they start.
fn parents(harness: &Harness, time: &str, sleeps: &[u32]) -> (Child, Vec<String>) {
    let client = harness.python("parent.py", PARENT);
    // a length that no other test has
    let length = |sleep: &u32| format!("{sleep}.{}", std::process::id());
    let lengths: Vec<String> = sleeps.iter().map(length).collect();
    let words = format!("run --quiet --runtime local --backend redis --lease 1s --time {time} --clients 2");
    let mut command = harness.command(&format!("{words} --client '{client} {}'", lengths.join(" ")));
    command.env("TMPDIR", harness.folder.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let sleeps = lengths.iter().map(|length| format!("sleep {length}"));
    (child, sleeps.collect())
}

#[test]
fn what_clients_start_with_and_without_their_environment_ends_with_the_run() {
    let harness = Harness::new();
    let (mut child, sleeps) = parents(&harness, "7s", &[901, 903]);
    until("the start", || sleeps.iter().all(|sleep| !alive(sleep).is_empty()));
    child.wait().unwrap();
    for sleep in sleeps {
        assert_eq!(alive(&sleep), Vec::<u32>::new(), "{sleep}");
    }
}

#[test]
fn what_clients_of_a_killed_run_started_is_found_and_removed() {
    let harness = Harness::new();
    let (mut child, sleeps) = parents(&harness, "60s", &[902]);
    let sleeps = sleeps.concat();
    until("the start", || alive(&sleeps).len() > 1);
    child.kill().unwrap();
    child.wait().unwrap();
    // another test may clean at the same time, and remove it
    let found = harness.answer("doctor").stdout;
    assert!(found.contains(&sleeps) || alive(&sleeps).is_empty(), "{found}");
    harness.answer("doctor --clean");
    until("the end of what was left", || alive(&sleeps).is_empty());
    assert_lacks(&harness.answer("doctor").stdout, &[&sleeps]);
}

/// Asserts that `harness doctor` with these variables reports what it cannot examine, and not that nothing is left.
fn does_not_know(harness: &Harness, variables: &[(&str, &Path)], unknown: &str) {
    let mut command = harness.command("doctor");
    let said = Answer::to(command.envs(variables.iter().copied())).stdout;
    assert_has(&said, &[unknown]);
    assert_lacks(&said, &["earlier runs left nothing\n"]);
}

#[test]
fn where_the_engine_does_not_answer_nothing_is_said_of_containers() {
    let harness = Harness::new();
    let nowhere = ("DOCKER_HOST", Path::new("unix:///nowhere/docker.sock"));
    let variables = [nowhere, ("TMPDIR", harness.folder.path())];
    does_not_know(&harness, &variables, "unknown  containers and networks");
}

#[test]
fn where_the_temporary_folder_cannot_be_read_nothing_is_said_of_runs() {
    let unknown = "unknown  processes and folders of runs: /nonexistent";
    does_not_know(&Harness::new(), &[("TMPDIR", Path::new("/nonexistent"))], unknown);
}

#[test]
fn a_limit_of_processes_is_a_sentence_and_no_panic() {
    // root has no such limit
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: becoming another user takes root");
        return;
    }
    // a user with no other process
    const USER: u32 = 61234;
    let folder = tempfile::tempdir().unwrap();
    let open =
        |path: &Path| std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    open(folder.path());
    let program = folder.path().join("harness");
    std::fs::copy(env!("CARGO_BIN_EXE_harness"), &program).unwrap();
    open(&program);
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::os::unix::fs::chown(&work, Some(USER), Some(USER)).unwrap();
    let limited = |limit: u32, words: &str| {
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
        command.arg("prlimit").arg(format!("--nproc={limit}:{limit}"));
        command.arg(&program).args(words.split(' '));
        Answer::to(command.env("TMPDIR", &work).current_dir(&work))
    };
    let is_told = |answer: &Answer| {
        answer.assert_exit(4);
        assert_has(&answer.stderr, &["ulimit -u"]);
        assert_lacks(&answer.stderr, &["panicked"]);
    };
    is_told(&limited(3, "doctor"));

    // for limits that are met before the proxy, the recorder, the clients and the server, up to one that suffices
    let run = "run --runtime local --backend redis --time 8s --lease 1s --quiet";
    let refused: Vec<Answer> = (3..60)
        .map(|limit| limited(limit, run))
        .take_while(|answer| ![0, 3].contains(&answer.exit))
        .collect();
    refused.iter().for_each(is_told);
    for words in ["threads", "for the proxy", "history.jsonl", "could not start"] {
        let met = refused.iter().any(|answer| answer.stderr.contains(words));
        assert!(met, "no limit that is met at `{words}`");
    }
    assert!(refused.len() < 57, "a run starts with some limit");
    let mut left = names_in(&work);
    left.retain(|name| name.starts_with("harness-run"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_run_with_too_few_open_files_says_so_and_leaves_no_claim() {
    let harness = Harness::new();
    let temporary = harness.folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    // inherited files count, too
    let without_inherited =
        r#"for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done; exec "$@""#;
    // before the first write, before the claim, and after it
    for limit in 6..=20 {
        let mut command = Command::new("bash");
        command
            .args(["-c", without_inherited, "bash", "prlimit"])
            .arg(format!("--nofile={limit}:{limit}"))
            .arg(env!("CARGO_BIN_EXE_harness"));
        let words = "run --runtime local --backend redis --time 10s --lease 1s --quiet";
        command.args(words.split(' ')).env("TMPDIR", &temporary);
        let refused = Answer::to(command.current_dir(harness.folder.path()));
        refused.assert_exit(4);
        assert_has(&refused.stderr, &["open file"]);
        assert_lacks(&refused.stderr, &["panicked"]);
        let left = names_in(&temporary);
        assert!(left.is_empty(), "{limit}: {left:?}");
    }
}

mod docker {
    use nix::sys::signal::Signal;

    use super::*;
    use crate::command::started;
    use crate::machine::{docker, send};

    #[test]
    fn containers_have_few_capabilities_and_limits() {
        let harness = Harness::new();
        let mut command = harness.command("run --quiet --runtime docker --backend redis --lease 1s --time 7s");
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let latest = harness.results().join("latest");
        let mut id = String::new();
        until("the container's start", || {
            let Ok(run) = std::fs::read_link(&latest) else {
                return false;
            };
            id = docker(&format!("ps --quiet --filter label=harness.run={}", run.display()));
            !id.is_empty()
        });
        let format = "{{.HostConfig.CapDrop}},{{.HostConfig.CapAdd}},{{.HostConfig.SecurityOpt}},{{.HostConfig.Memory}},{{.HostConfig.PidsLimit}},{{.HostConfig.Privileged}}";
        let host = docker(&format!("inspect --format {format} {id}"));
        assert_eq!(child.wait().unwrap().code(), Some(0), "the server serves");
        assert_eq!(
            host,
            "[ALL],[CHOWN DAC_OVERRIDE FOWNER SETGID SETUID],[no-new-privileges],2147483648,2048,false"
        );
    }

    #[test]
    fn what_is_of_a_machine_that_cannot_be_seen_is_left_alone_and_said() {
        let harness = Harness::new();
        let name = format!("harness-elsewhere-{}", std::process::id());
        let labels = "--label harness.run=elsewhere --label harness.owner=1-1-1-1";
        let network = docker(&format!("network create {labels} {name}"));
        assert!(!network.is_empty());
        let cleaned = harness.answer("doctor --clean").stdout;
        let listed = || docker(&format!("network ls --quiet --filter name={name}"));
        let there = listed();
        let all = harness.answer("doctor --clean --all").stdout;
        let after = listed();
        docker(&format!("network rm {name}"));
        assert_has(&cleaned, &["cannot be seen from here"]);
        assert_lacks(&cleaned, &["earlier runs left nothing\n"]);
        assert!(!there.is_empty() && after.is_empty(), "{all}");
    }

    #[test]
    fn two_that_clean_at_the_same_time_are_not_in_each_others_way() {
        use std::os::unix::fs::MetadataExt;

        let image = docker("image ls --quiet harness-redis:debian");
        if image.is_empty() {
            eprintln!("skipped: harness-redis:debian is not here (make images)");
            return;
        }
        let harness = Harness::new();
        let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        // the owner is a harness that has ended
        let owner = format!("harness.owner={}-1-{namespace}-0", u32::MAX);
        let run = format!("harness.run=cleaned-twice-{}", std::process::id());
        let labels = format!("--label {owner} --label {run}");
        for number in 0..3 {
            let network = format!("harness-cleaned-twice-{}-{number}", std::process::id());
            docker(&format!("network create {labels} {network}"));
            docker(&format!("run --detach --network {network} {labels} {image}"));
        }
        let listed = |what: &str| docker(&format!("{what} --quiet --filter label={run}"));
        let containers = listed("ps --all");
        let cleaning: Vec<Child> = (0..3).map(|_| harness.start("doctor --clean")).collect();
        for one in cleaning {
            let answer = Answer::of_child(one);
            assert_eq!(answer.exit, 0, "{containers}: {}", answer.said());
        }
        assert_eq!(listed("ps --all"), "");
        assert_eq!(listed("network ls"), "");
    }

    #[test]
    fn a_run_that_is_killed_in_another_process_namespace_is_not_denied_elsewhere_and_is_removed() {
        let namespace = ["--pid", "--fork", "--mount-proc"];
        let possible = Command::new("unshare").args(namespace).arg("true").status();
        if !possible.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a process namespace takes root");
            return;
        }
        let harness = Harness::new();
        let within = |words: &str| {
            let mut command = Command::new("unshare");
            command
                .args(namespace)
                .arg(env!("CARGO_BIN_EXE_harness"))
                .args(words.split_whitespace());
            command
                .current_dir(harness.folder.path())
                .env("TMPDIR", harness.folder.path());
            command.stdin(Stdio::null());
            command
        };
        let words = "run --quiet --runtime docker --backend redis --lease 1s --time 60s --results results";
        let mut child = started(&mut within(words));
        let latest = harness.results().join("latest");
        let there = || {
            let run = std::fs::read_link(&latest).unwrap_or_default();
            docker(&format!(
                "ps --all --quiet --filter label=harness.run={}",
                run.display()
            ))
        };
        until("the container's start", || latest.exists() && !there().is_empty());
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let killed = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        send(killed, Signal::SIGKILL);
        child.wait().unwrap();
        // another test may clean at the same time, and remove it
        let told = Answer::to(&mut within("doctor")).stdout;
        assert!(
            told.contains("cannot be seen from here") || there().is_empty(),
            "{told}"
        );
        let mut clean = harness.command("doctor --clean");
        let cleaned = Answer::to(clean.env("TMPDIR", harness.folder.path())).stdout;
        if cleaned.contains("cannot be seen from here") {
            // and this is not the first namespace of a machine
            harness.answer("doctor --clean --all");
        }
        until("the end of what was left", || there().is_empty());
        assert!(
            !cleaned.contains("earlier runs left nothing\n") || cleaned.contains("removed"),
            "{cleaned}"
        );
    }
}
