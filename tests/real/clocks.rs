//! Wall clocks that are stepped under one process: who breaks by it, and who never looks.

use crate::command::{Answer, Harness};

fn run(runtime: &str, words: &str) -> Answer {
    Harness::new().run(&format!(
        "--backend redis --runtime {runtime} --lease 1s --time 12s --seed 5eed {words}"
    ))
}

#[test]
fn a_lock_that_compares_deadlines_breaks_when_a_waiters_clock_runs_ahead() {
    let answer = run("local", "--recipe redis-getset --fault clock");
    answer.assert_exit(1);
    assert_eq!(answer.verdict("HL001"), "violated");
    assert!(answer.window_sum("clock_readings") > 0);
}

#[test]
fn a_lock_that_reads_no_wall_clock_is_not_affected_by_one() {
    let answer = run("local", "--recipe redis-set-px-lua --fault clock");
    answer.assert_exit(3);
    assert_eq!(answer.verdict("HL001"), "holds");
    assert!(answer.window_sum("clocks_stepped") > 0);
    assert_eq!(answer.windows_with_effect().0, 0, "{:#}", answer.diagnosis["effect"]);
}

/// The server counts a time to live by its wall clock: a step forward ends every lease at once.
fn a_servers_step_ends_leases(runtime: &str) {
    let answer = run(
        runtime,
        "--recipe redis-set-px-lua --fault clock=server --hold 400ms --clients 8",
    );
    answer.assert_exit(1);
    assert_eq!(answer.finding("HL001")["violations"][0]["class"], "stale-holder");
    assert!(answer.window_sum("clock_readings") > 0);
}

#[test]
fn a_step_of_a_redis_servers_clock_ends_leases() {
    a_servers_step_ends_leases("local");
}

mod docker {
    #[test]
    fn a_step_of_a_redis_servers_clock_ends_leases() {
        super::a_servers_step_ends_leases("docker");
    }
}
