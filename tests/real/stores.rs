//! Stores that a TOML file describes: a lock service over HTTP on every runtime, and an attached PostgreSQL.

use std::process::Command;

use harness::backends;
use harness::cluster::find_program;
use harness_workloads::BackendId;
use tempfile::TempDir;

use crate::command::{Answer, Harness, assert_has};
use crate::machine::{OneServer, succeeds};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores");

/// Returns the folder of a store: its description, and the lock service, which has no dependencies on a machine or in a container.
pub fn store() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("{SOURCE}/lock_service.rs");
    let service = folder.path().join("lock-service");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-C", "target-feature=+crt-static", "-o"]);
    succeeds(rustc.args([service.as_os_str(), source.as_ref()]));
    let description = folder.path().join("http-lock.toml");
    std::fs::copy(format!("{SOURCE}/http-lock.toml"), description).unwrap();
    folder
}

/// Makes a run of the client of the lock service.
pub fn run(store: &TempDir, words: &str, switch: &str) -> Answer {
    let harness = Harness::new();
    let backend = store.path().join("http-lock.toml");
    let answer = harness.run(&format!(
        "--backend {} --lease 2s --clients 4 {words} --client 'python3 {SOURCE}/http_lock.py {switch}'",
        backend.display()
    ));
    if answer.exit == 0 {
        let kept = std::fs::read_to_string(harness.results().join("latest/store.toml")).expect("it is kept");
        assert!(kept.contains("HTTP lock service"));
    }
    answer
}

#[test]
fn a_described_store_has_all_faults_of_the_network_and_of_clients_and_an_observer() {
    let words = "--runtime local --window 3s --time 18s --fault partition,kill-holder,latency --seed 1";
    let answer = run(&store(), words, "");
    answer.assert_is("0, HL001 holds, HL002 holds, HL003 holds, HL007 holds, a window");
}

#[test]
fn a_postgres_that_was_running_is_tested_and_left_as_it_was() {
    if find_program("psql").is_none() || !(backends::of(BackendId::Postgres).software.missing)().is_empty() {
        eprintln!("skipped: PostgreSQL, which `apt-get install postgresql` installs");
        return;
    }
    let postgres = OneServer::start(BackendId::Postgres);
    let (host, port) = (postgres.address.ip().to_string(), postgres.address.port().to_string());
    let ask = |query: &str| {
        let words = ["-h", &host, "-p", &port, "-U", "postgres", "-Atc", query];
        succeeds(Command::new("psql").args(words)).trim().to_owned()
    };
    ask("create table accounts (balance int); insert into accounts values (7)");
    let run = |words: &str, switch: &str| {
        let harness = Harness::new();
        let answer = harness.run(&format!(
            "--backend {SOURCE}/postgres.toml --servers {} --lease 2s --clients 4 --seed 1 {words} \
             --client 'python3 {SOURCE}/pg_lease.py {switch}'",
            postgres.address
        ));
        let report = harness.results().join("latest/report.html").is_file();
        (answer, report)
    };
    let (refused, _) = run("--window 3s --time 12s --fault partition", "");
    refused.assert_exit(2);
    assert_has(&refused.stderr, &["the tables accounts", "--yes"]);

    let (answer, report) = run("--window 3s --time 12s --fault partition --yes", "");
    answer.assert_is("0, HL001 holds, HL002 holds, HL003 holds, HL005 holds");
    assert!(report);
    let (broken, _) = run("--time 40s --hold 4s --yes --stop-on-violation", "--broken");
    broken.assert_verdict("HL001", "violated");
    let tables = "select string_agg(tablename, ' ') from pg_tables where schemaname = 'public'";
    assert_eq!(ask(tables), "accounts");
    assert_eq!(ask("select balance from accounts"), "7");
    let advisory = "select count(*) from pg_locks where locktype = 'advisory'";
    assert_eq!(ask(advisory), "0");
}

mod nightly {
    use super::*;

    /// A server that is killed starts without its locks and its counters of tokens.
    const FORGETS: &str = "--time 24s --hold 300ms --fault server-kill --seed 1";
    const TOKENS_AGAIN: &str = "1, HL003 violated";

    #[cfg(feature = "docker")]
    mod docker {
        use super::*;
        use crate::machine::MadeByDocker;

        /// Builds the image of the lock service, which has nothing else.
        fn image(store: &TempDir) -> MadeByDocker {
            let name = "harness-lock-service:test";
            let packing = "tar -c -C \"$1\" lock-service | docker import -c 'ENTRYPOINT [\"/lock-service\"]' - \"$2\"";
            let mut pack = Command::new("sh");
            succeeds(pack.args(["-c", packing, "sh"]).arg(store.path()).arg(name));
            MadeByDocker::Image(name.to_owned())
        }

        #[test]
        fn a_described_store_runs_in_containers_and_its_servers_stand_still_and_restart() {
            let store = store();
            let _image = image(&store);
            let words = "--runtime docker --time 30s --fault partition,server-pause --seed 1";
            run(&store, words, "").assert_is("0, HL007 holds");
            run(&store, &format!("--runtime docker {FORGETS}"), "").assert_is(TOKENS_AGAIN);
        }
    }

    #[test]
    fn a_server_that_forgot_its_locks_and_a_holder_that_went_on_are_found() {
        let store = store();
        run(&store, &format!("--runtime local {FORGETS}"), "").assert_is(TOKENS_AGAIN);
        let words = "--runtime local --time 40s --hold 4s --stop-on-violation --seed 1";
        let went_on = run(&store, words, "--broken");
        went_on.assert_verdict("HL001", "violated");
    }

    #[test]
    fn a_described_store_pauses_and_its_client_is_checked() {
        let store = store();
        let words = "--runtime local --time 30s --fault server-pause,reset --seed 1";
        run(&store, words, "").assert_exit(0);
        let harness = Harness::new();
        let backend = store.path().join("http-lock.toml");
        let checked = harness.answer(&format!(
            "client-check --backend {} --runtime local --lease 2s 'python3 {SOURCE}/http_lock.py'",
            backend.display()
        ));
        checked.assert_exit(0);
        assert_has(&checked.stdout, &["0 wrong"]);
    }
}
