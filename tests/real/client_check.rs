//! `harness client-check`: right about clients that speak the protocol, and about those that do not.

use serde_json::Value;

use super::foreign::{EVERYBODY, page_client};
use crate::command::Harness;

const FOREIGN_RELEASE: &str = "a release of what another client has by now";

/// The exit code, and each step with its mark.
fn checked(harness: &Harness, runtime: &str, client: &str) -> (i32, Vec<(String, String)>) {
    let words = format!("client-check --json --runtime {runtime} --backend redis --lease 2s '{client}'");
    let answer = harness.answer(&words);
    let of = |remark: &Value, key: &str| remark[key].as_str().unwrap().to_owned();
    let remarks = answer.diagnosis["remarks"].as_array();
    let remarks = remarks
        .unwrap_or_else(|| panic!("no remarks: {}", answer.said()))
        .iter();
    let marks = remarks.map(|remark| (of(remark, "step"), of(remark, "mark")));
    (answer.exit, marks.collect())
}

fn marked<'a>(marks: &'a [(String, String)], wanted: &str) -> Vec<&'a str> {
    let of = marks.iter().filter(|(_, mark)| mark == wanted);
    of.map(|(step, _)| step.as_str()).collect()
}

#[test]
fn the_client_of_the_protocol_page_is_right_and_what_it_does_not_promise_is_not_judged() {
    let harness = Harness::new();
    let check = |runtime| {
        let (exit, marks) = checked(&harness, runtime, &page_client(&harness, &[]));
        assert_eq!(marked(&marks, "wrong"), Vec::<&str>::new());
        assert_eq!(exit, 0);
        let not_judged = [
            "open at a server of another kind",
            "order of waiters (HL006)",
            "fencing tokens (HL003)",
        ];
        assert_eq!(marked(&marks, "not-judged"), not_judged);
        let right = marked(&marks, "right");
        assert!(right.len() > 15 && right.contains(&FOREIGN_RELEASE), "{marks:?}");
        marks
    };
    let mut real = check("local");
    assert_eq!(
        real.pop().map(|(step, _)| step).as_deref(),
        Some("an unknown operation")
    );
    real.retain(|(step, _)| step != "time of an operation");
    let mut in_virtual_time = check("virtual");
    in_virtual_time.pop();
    assert_eq!(real, in_virtual_time, "the same steps");
}

/// A program that virtual time cannot load is checked in real time, unless that was asked for.
#[test]
fn a_client_that_virtual_time_cannot_run_is_checked_in_real_time() {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    let client = format!("env -u LD_PRELOAD {client}");
    let (exit, marks) = checked(&harness, "auto", &client);
    assert_eq!((exit, marked(&marks, "wrong")), (0, vec![]));
    assert!(marked(&marks, "right").contains(&"time of an operation"), "{marks:?}");
}

#[test]
fn a_client_that_always_answers_ok_is_wrong_wherever_a_lock_says_no() {
    let harness = Harness::new();
    let client = harness.python("everybody.py", EVERYBODY);
    let (exit, marks) = checked(&harness, "virtual", &client);
    assert_eq!(exit, 1);
    let wrong = [
        "open without a server",
        "a try-lock of a taken lock",
        "a wait for a lock that stays taken",
        "release of what is not held",
        FOREIGN_RELEASE,
        "an unknown operation",
    ];
    assert_eq!(marked(&marks, "wrong"), wrong);
    assert!(marked(&marks, "not-judged").contains(&"the lock on the servers"));
}

#[test]
fn a_contract_that_does_not_fit_is_wrong_in_its_own_line() {
    let misfits = [
        (
            r#""keys": "harness:{lock}""#,
            r#""keys": "mine:{lock}""#,
            "the lock on the servers",
        ),
        ("return None, value", r#"return None, "me""#, "the lock on the servers"),
        ("return None, value", "return None, None", "the owner of a grant"),
        (r#""renews": False"#, r#""renews": True"#, "a hold of two leases"),
    ];
    std::thread::scope(|scope| {
        for (from, to, step) in misfits {
            scope.spawn(move || {
                let harness = Harness::new();
                let (exit, marks) = checked(&harness, "virtual", &page_client(&harness, &[(from, to)]));
                assert_eq!((exit, marked(&marks, "wrong")), (1, vec![step]), "{to}");
            });
        }
    });
}

#[test]
fn a_release_that_compares_nothing_frees_what_another_client_has() {
    let harness = Harness::new();
    let compares = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    let deletes = [(compares, "return redis.call('del',KEYS[1])")];
    let (exit, marks) = checked(&harness, "virtual", &page_client(&harness, &deletes));
    assert_eq!((exit, marked(&marks, "wrong")), (1, vec![FOREIGN_RELEASE]));
}

#[test]
fn a_client_whose_signals_have_the_time_of_day_is_wrong() {
    let harness = Harness::new();
    let client = page_client(&harness, &[("clock_gettime_ns(time.CLOCK_MONOTONIC)", "time_ns()")]);
    let (exit, marks) = checked(&harness, "virtual", &client);
    assert_eq!(exit, 1);
    assert!(marked(&marks, "wrong").contains(&"the signals"), "{marks:?}");
}

#[test]
fn a_client_that_cannot_be_started_is_the_only_thing_that_is_wrong() {
    let harness = Harness::new();
    let (exit, marks) = checked(&harness, "virtual", "no-such-program-anywhere");
    assert_eq!((exit, marked(&marks, "wrong")), (1, vec!["open without a server"]));
    assert_eq!(marks.len(), 1);
}

#[test]
fn nothing_is_said_of_a_client_after_a_request_that_it_does_not_answer() {
    let harness = Harness::new();
    let hangs = [(r#"raise Fail("timeout" if wait_ms else "busy")"#, "time.sleep(60)")];
    let client = page_client(&harness, &hangs);
    let (exit, marks) = checked(&harness, "virtual", &client);
    assert_eq!((exit, marked(&marks, "wrong")), (1, vec!["a try-lock of a taken lock"]));
    assert_eq!(marks.last().unwrap().0, "all that follows");
}

#[test]
fn a_client_that_ends_its_process_before_its_lease_is_right() {
    let harness = Harness::new();
    let exits = [(r#"self._signal("lost", lock, cause)"#, "os.kill(os.getpid(), 9)")];
    let (exit, marks) = checked(&harness, "virtual", &page_client(&harness, &exits));
    assert_eq!((exit, marked(&marks, "wrong")), (0, vec![]));
    assert!(marked(&marks, "right").contains(&"a hold of two leases"), "{marks:?}");
    assert!(
        marked(&marks, "right").contains(&"the end of its input"),
        "it was started again: {marks:?}"
    );
}
