//! Wall clocks that are stepped for one process: the locks that break, and those that do not read them.

use super::foreign::{ends_the_run, page_client};
use crate::command::{Harness, on_runtimes, tests};
use crate::outcome::comes_out;

fn steps(runtime: &str, words: &str, outcome: &str) {
    let plan = "--backend redis --window 2500ms --seed 5eed";
    comes_out(runtime, &format!("{plan} {words}"), outcome);
}

/// The server measures a time to live by its wall clock: a step forward ends every lease at once. On a slow machine another client needs
/// some time to take the lock, in which the holder works on; the first one that does ends the run.
fn a_step_of_a_redis_servers_clock_ends_leases(runtime: &str) {
    let words = "--recipe redis-set-px-lua --fault clock=server --hold 400ms --clients 8 --lease 3s --time 24s";
    let outcome = "1, HL001 stale-holder, clock_readings";
    steps(runtime, &format!("{words} --stop-on-violation"), outcome);
}

tests! {
    ends_the_run:
        // a step of a clock that no program reads would prove nothing
        a_clock_is_not_stepped_where_no_client_reads_it(
            (r#""lease": True"#, r#""wall_clock": False, "lease": True"#), "--lease 1s --time 12s --fault clock", &["wall_clock=false"])
}

/// Without a promise in the contract, the run itself decides.
fn a_client_that_does_not_say_is_judged_under_a_stepped_clock(runtime: &str) {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    let words = format!("--backend redis --runtime {runtime} --lease 1s --time 12s --fault clock --client '{client}'");
    harness.run(&words).assert_is("HL001 holds, clocks_stepped");
}

on_runtimes! {
    real:
        a_step_of_a_redis_servers_clock_ends_leases;
    models:
        a_lock_that_compares_deadlines_breaks_when_a_waiters_clock_runs_ahead = steps(
            "--recipe redis-getset --fault clock --lease 1s --time 9s", "1, HL001 violated, clock_readings");
    nightly:
        a_client_that_does_not_say_is_judged_under_a_stepped_clock;
    nightly_docker:
        a_step_of_a_redis_servers_clock_ends_leases;
}
