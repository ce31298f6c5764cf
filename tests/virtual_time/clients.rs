//! Clients in virtual time that are not threads of Python: loops that wake through sockets, Node, gRPC's core, C, Go, Ruby and PHP.

use std::path::Path;
use std::process::Command;

use super::harness_on;
use crate::command::{Harness, tests};
use crate::machine::{is_on_path, succeeds};

impl Harness {
    /// Returns the command of a client program among the tests.
    fn client_of(&self, program: &str, file: &str) -> String {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/virtual_time/clients");
        let adapters = concat!(env!("CARGO_MANIFEST_DIR"), "/workloads/adapters/python");
        let script = self.script(
            "client",
            &format!("exec {program} {} {adapters}", tests.join(file).display()),
        );
        format!("--client={}", script.display())
    }
}

/// Asserts that a correct lock passes under a fault, fails past its lease, and repeats.
fn is_judged(program: &str, file: &str) {
    let Some(harness) = harness_on("redis").filter(|_| is_on_path(program)) else {
        return;
    };
    judge(&harness, &harness.client_of(program, file));
}

const WORDS: &str = "--runtime virtual --backend redis --clients 3 --grants 30 --time 15s --seed 1";

fn judge(harness: &Harness, client: &str) {
    harness.run(&format!("{WORDS} {client} --fault reset")).assert_exit(0);
    let wrong = harness.run(&format!("{WORDS} {client} --fault pause-holder"));
    wrong.assert_violates("HL001");
    harness.assert_replayed();
}

/// Compiles a client of the tests, and returns its option.
fn static_client(harness: &Harness) -> String {
    let client = harness.compiled("clients/c_lock.c", &["-static"]);
    format!("--client={}", client.display())
}

#[test]
fn a_static_client_in_c_is_the_same_again() {
    let Some(harness) = harness_on("redis") else { return };
    judge(&harness, &static_client(&harness));
}

tests! {
    is_judged:
        a_client_of_asyncio_is_the_same_again("python3", "asyncio_lock.py")
        a_client_of_node_is_the_same_again("node", "node_lock.js")
}

#[test]
fn a_client_of_grpcs_core_is_judged() {
    let Some(harness) = harness_on("etcd").filter(|harness| harness.has_client("aetcd")) else {
        return;
    };
    let words = "--backend etcd --nodes 1 --client aetcd --fault latency --clients 2 --grants 30 --time 15s --seed 1";
    harness.run(&format!("--runtime virtual {words}")).assert_exit(0);
}

mod nightly {
    use super::*;

    #[test]
    fn runs_whose_connections_are_reset_are_the_same_again() {
        let Some(harness) = harness_on("redis") else { return };
        let is_the_same_again = |client: &str| {
            harness.run(&format!("{WORDS} {client} --fault reset")).assert_exit(0);
            harness.assert_replayed();
        };
        is_the_same_again(&static_client(&harness));
        for (program, file) in [("python3", "asyncio_lock.py"), ("node", "node_lock.js")] {
            if is_on_path(program) {
                is_the_same_again(&harness.client_of(program, file));
            }
        }
    }

    tests! {
        is_judged:
            a_client_of_ruby_is_the_same_again("ruby", "ruby_lock.rb")
            a_client_of_php_is_the_same_again("php", "php_lock.php")
    }

    #[test]
    fn a_client_of_go_is_the_same_again() {
        let Some(harness) = harness_on("redis").filter(|_| is_on_path("go")) else {
            return;
        };
        harness.assert_says("init go my-lock", 0, &[]);
        let folder = harness.folder.path().join("my-lock");
        let build = ["build", "-o", "my-lock", "."];
        succeeds(Command::new("go").args(build).current_dir(&folder));
        judge(&harness, &format!("--client={}", folder.join("my-lock").display()));
    }

    #[test]
    fn a_client_of_gevent_is_the_same_again() {
        let has_gevent = Command::new("python3").args(["-c", "import gevent"]).output();
        if has_gevent.is_ok_and(|output| output.status.success()) {
            is_judged("python3", "gevent_lock.py");
        } else {
            eprintln!("skipped: there is no gevent");
        }
    }
}
