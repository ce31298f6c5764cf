//! Real ZooKeeper servers in their JVMs, alone and as ensembles whose election and quorum go over the simulated network.

use super::harness_on;

#[test]
fn an_ensemble_is_parted_from_its_leader_and_its_queue_stays_right() {
    let Some(harness) = harness_on("zk") else { return };
    let words = "--backend zk --recipe zk-predecessor-watch --fault partition=leader --clients 3 --grants 30 --time 15s --seed 1";
    let answer = harness.run(&format!("--runtime virtual {words}"));
    answer.assert_stands_all_windows();
    harness.assert_replayed();
}

#[test]
fn one_server_alone_shows_a_holder_that_stands_still_past_its_lease() {
    let Some(harness) = harness_on("zk") else { return };
    let words =
        "--runtime virtual --backend zk --nodes 1 --clients 3 --fault pause-holder --grants 30 --time 15s --seed 1";
    let naive = harness.run(&format!("{words} --recipe zk-predecessor-watch --holder naive"));
    naive.assert_violates("HL001");
}

mod nightly {
    use super::*;

    #[test]
    fn clients_of_kazoo_and_of_curator_are_the_same_again() {
        let Some(harness) = harness_on("zk") else { return };
        let clients = ["kazoo-lock", "curator-mutex"].into_iter();
        for client in clients.filter(|client| harness.has_client(client)) {
            let words = "--backend zk --nodes 1 --fault latency --clients 2 --grants 30 --time 15s --seed 1";
            harness
                .run(&format!("--runtime virtual {words} --client {client}"))
                .assert_exit(0);
            harness.assert_replayed();
        }
    }
}
