//! Valkey in virtual time: its own lock, and locks of Redis on it, each where it holds and where it is caught.

use crate::command::{Answer, Harness};
use crate::machine::has_no_valkey;

impl Harness {
    fn on_valkey(&self, words: &str) -> Answer {
        self.run(&format!(
            "--runtime virtual --backend valkey --clients 3 --lease 1s --time 15s --seed 1 {words}"
        ))
    }
}

#[test]
fn valkeys_own_lock_holds_and_is_the_same_again_and_a_naive_holder_is_caught() {
    if has_no_valkey() {
        return;
    }
    let harness = Harness::new();
    let right = harness.on_valkey("--hold 500ms --fault partition=holder");
    right.assert_stands_all_windows();
    assert_eq!(right.diagnosis["run"]["recipe"], "valkey-ifeq");
    harness.assert_replayed();
    let naive = harness.on_valkey("--hold 500ms --fault partition=holder --holder naive");
    naive.assert_violates("HL001");
}

mod nightly {
    use super::*;

    #[test]
    fn locks_of_redis_hold_on_valkey_and_one_that_compares_nothing_is_caught() {
        if has_no_valkey() {
            return;
        }
        let harness = Harness::new();
        harness
            .on_valkey("--recipe redlock --fault partition=holder")
            .assert_exit(0);
        if harness.has_client("redis-py") {
            harness
                .on_valkey("--client redis-py --fault latency,reset")
                .assert_exit(0);
        }
        let failover = harness.on_valkey("--recipe redis-watchdog --fault failover");
        failover.assert_violates("HL001");
        let compares_nothing = "--recipe redis-set-px-del --holder naive --hold 500ms --fault delay-request=DEL:1";
        harness.on_valkey(compares_nothing).assert_verdict("HL007", "violated");
    }
}
