//! `harness client-check`: its remarks on clients that follow the protocol, and on clients that do not.

use nix::sys::signal::Signal;

use super::foreign::{EVERYBODY, page_client};
use crate::command::{Answer, Harness, assert_has, tests, texts};
use crate::machine::{send, until, write_program};

const FOREIGN_RELEASE: &str = "a release of what another client has by now";

/// The steps of a client, each with its mark.
struct Remarks(Vec<(String, String)>);

impl Remarks {
    /// Checks a client, and asserts that the exit code agrees with the marks of its steps.
    fn on(runtime: &str, harness: &Harness, client: &str) -> Self {
        let words = format!("client-check --json --runtime {runtime} --backend redis --lease 2s '{client}'");
        let answer = harness.answer(&words);
        let all = |key: &str| texts(&answer.diagnosis["remarks"], key).into_iter().map(str::to_owned);
        let remarks = Self(all("step").zip(all("mark")).collect());
        answer.assert_exit(i32::from(!remarks.marked("wrong").is_empty()));
        remarks
    }

    fn marked(&self, wanted: &str) -> Vec<&str> {
        let of = self.0.iter().filter(|(_, mark)| mark == wanted);
        of.map(|(step, _)| step.as_str()).collect()
    }

    fn assert_wrong(&self, steps: &[&str]) {
        assert_eq!(self.marked("wrong"), steps);
    }

    fn assert_right(&self, step: &str) {
        assert!(self.marked("right").contains(&step), "{:?}", self.0);
    }
}

/// A program that virtual time cannot load is checked in real time, unless virtual time was requested.
#[test]
fn the_client_of_the_protocol_page_is_right_and_what_it_does_not_promise_is_not_judged() {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    let check = |runtime, client: &str| {
        let remarks = Remarks::on(runtime, &harness, client);
        remarks.assert_wrong(&[]);
        let not_judged = [
            "open at a server of another kind",
            "order of waiters (HL006)",
            "fencing tokens (HL003)",
        ];
        assert_eq!(remarks.marked("not-judged"), not_judged);
        assert!(remarks.marked("right").len() > 15, "{:?}", remarks.0);
        remarks.assert_right(FOREIGN_RELEASE);
        remarks
    };
    let real = check("auto", &format!("env -u LD_PRELOAD {client}"));
    real.assert_right("time of an operation");
    let mut real = real.0;
    assert_eq!(
        real.pop().map(|(step, _)| step).as_deref(),
        Some("an unknown operation")
    );
    real.retain(|(step, _)| step != "time of an operation");
    let mut in_virtual_time = check("virtual", &client).0;
    in_virtual_time.pop();
    assert_eq!(real, in_virtual_time, "the same steps");
}

#[test]
fn a_client_that_always_answers_ok_is_wrong_wherever_a_lock_says_no() {
    let harness = Harness::new();
    let client = harness.python("everybody.py", EVERYBODY);
    let remarks = Remarks::on("virtual", &harness, &client);
    remarks.assert_wrong(&[
        "open without a server",
        "a try-lock of a taken lock",
        "a wait for a lock that stays taken",
        "release of what is not held",
        FOREIGN_RELEASE,
        "an unknown operation",
    ]);
    assert!(remarks.marked("not-judged").contains(&"the lock on the servers"));
}

/// Asserts that the client of the protocol's page is wrong in this step alone, with `this` in place of `that`.
fn is_wrong(that: &str, this: &str, step: &str) {
    let harness = Harness::new();
    let client = page_client(&harness, &[(that, this)]);
    Remarks::on("virtual", &harness, &client).assert_wrong(&[step]);
}

const COMPARES: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

tests! {
    is_wrong:
        keys_that_are_elsewhere_are_wrong(r#""keys": "harness:{lock}""#, r#""keys": "mine:{lock}""#, "the lock on the servers")
        an_owner_that_the_servers_do_not_know_is_wrong("return None, value", r#"return None, "me""#, "the lock on the servers")
        a_grant_without_its_owner_is_wrong("return None, value", "return None, None", "the owner of a grant")
        a_promise_to_renew_that_is_not_kept_is_wrong(r#""renews": False"#, r#""renews": True"#, "a hold of two leases")
        a_release_that_compares_nothing_frees_what_another_client_has(COMPARES, "return redis.call('del',KEYS[1])", FOREIGN_RELEASE)
}

#[test]
fn a_client_whose_signals_have_the_time_of_day_is_wrong() {
    let harness = Harness::new();
    let client = page_client(&harness, &[("clock_gettime_ns(time.CLOCK_MONOTONIC)", "time_ns()")]);
    let remarks = Remarks::on("virtual", &harness, &client);
    assert!(remarks.marked("wrong").contains(&"the signals"), "{:?}", remarks.0);
}

#[test]
fn a_client_that_cannot_be_started_is_the_only_thing_that_is_wrong() {
    let harness = Harness::new();
    let remarks = Remarks::on("virtual", &harness, "no-such-program-anywhere");
    remarks.assert_wrong(&["open without a server"]);
    assert_eq!(remarks.0.len(), 1);
}

#[test]
fn a_check_is_interrupted_before_it_has_servers() {
    let harness = Harness::new();
    let client = harness.folder.path().join("client");
    write_program(&client, "touch \"$0.started\"\nexec sleep 600");
    let child = harness.start(&format!("client-check --backend redis {}", client.display()));
    until("the client's start", || client.with_extension("started").exists());
    send(child.id(), Signal::SIGINT);
    let answer = Answer::of_child(child);
    answer.assert_exit(130);
    assert_has(&answer.stderr, &["interrupted: "]);
}

#[test]
fn nothing_is_said_of_a_client_after_a_request_that_it_does_not_answer() {
    let harness = Harness::new();
    let hangs = [(r#"raise Fail("timeout" if wait_ms else "busy")"#, "time.sleep(60)")];
    let remarks = Remarks::on("virtual", &harness, &page_client(&harness, &hangs));
    remarks.assert_wrong(&["a try-lock of a taken lock"]);
    assert_eq!(remarks.0.last().unwrap().0, "all that follows");
}

#[test]
fn a_client_that_ends_its_process_before_its_lease_is_right() {
    let harness = Harness::new();
    let exits = [(r#"self._signal("lost", lock, cause)"#, "os.kill(os.getpid(), 9)")];
    let remarks = Remarks::on("virtual", &harness, &page_client(&harness, &exits));
    remarks.assert_wrong(&[]);
    remarks.assert_right("a hold of two leases");
    // the client was restarted
    remarks.assert_right("the end of its input");
}
