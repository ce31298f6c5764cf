//! A real MariaDB server, with its threads for connections and for its files.

use super::harness_on;

#[test]
fn a_lease_in_a_row_is_right_and_a_lock_of_a_session_that_is_reset_is_not() {
    let Some(harness) = harness_on("mariadb") else { return };
    let words = "--runtime virtual --backend mariadb --clients 3 --time 15s --seed 1";
    let right = harness.run(&format!("{words} --fault partition=holder --grants 60"));
    right.assert_stands_all_windows();
    let wrong = harness.run(&format!(
        "{words} --recipe mysql-get-lock --holder naive --fault reset --stop-on-violation"
    ));
    wrong.assert_violates("HL001");
}

mod nightly {
    use super::*;

    #[test]
    fn a_server_that_is_killed_comes_back_on_its_files() {
        let Some(harness) = harness_on("mariadb") else { return };
        let killed = harness.run("--runtime virtual --backend mariadb --fault server-kill --time 20s --seed 2");
        killed.assert_exit(0);
        killed.assert_counted(&["servers_back"]);
    }
}
