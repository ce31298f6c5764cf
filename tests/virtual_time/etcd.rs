//! Real etcd servers, programs of Go, alone and as clusters whose members are parted from each other. That a run is the same again is not
//! asserted: on a busy machine it is another one now and then (docs/virtual.md).

use super::harness_on;

#[test]
fn a_member_alone_shows_a_holder_that_stands_still_past_its_lease() {
    let Some(harness) = harness_on("etcd") else { return };
    let words = "--backend etcd --nodes 1 --recipe etcd-mutex --holder naive --fault pause-holder --clients 2 --grants 30 --time 15s --seed 1";
    let wrong = harness.run(&format!("--runtime virtual {words}"));
    wrong.assert_violates("HL001");
}

mod nightly {
    use super::*;

    #[test]
    fn three_members_elect_another_leader_when_theirs_is_parted_from_them() {
        let Some(harness) = harness_on("etcd") else { return };
        let words =
            "--backend etcd --recipe etcd-mutex --fault partition=leader --clients 3 --grants 30 --time 15s --seed 1";
        let answer = harness.run(&format!("--runtime virtual {words}"));
        answer.assert_stands_all_windows();
    }
}
