//! Upgrades: servers that are restarted from another version on their data, one after the other; the versions before
//! and after, and the progress of clients meanwhile.
//!
//! Both versions come from this machine: its own programs, and those in the images of a newer Debian that `make images` builds.

use serde_json::Value;

use crate::command::{Answer, Harness};

/// Asserts that servers are upgraded one after the other, each once, a follower first, and that clients go on meanwhile.
///
/// On a busy machine a server needs the time of the windows after its own, or a client has too little time.
fn assert_upgraded_in_turn(answer: &Answer) {
    assert!(
        [0, 3].contains(&answer.exit),
        "{}\n{:#}",
        answer.stderr,
        answer.diagnosis
    );
    let effect = &answer.diagnosis["effect"];
    let windows = answer.windows().iter();
    let upgraded: Vec<_> = windows.filter(|window| window["had_effect"] == true).collect();
    assert_eq!(
        answer.window_sum("servers_upgraded"),
        upgraded.len() as u64,
        "{effect:#}"
    );
    assert_eq!(answer.window_sum("servers_back"), upgraded.len() as u64);
    let mut names = Vec::new();
    for window in &upgraded {
        let (did, title) = (window["did"].as_str().unwrap(), window["title"].as_str().unwrap());
        let (_, change) = did.split_once("1 server back, ").unwrap_or_else(|| panic!("{did}"));
        let (name, versions) = change.split_once(" from ").unwrap_or_else(|| panic!("{did}"));
        let (from, to) = versions.split_once(" to ").unwrap_or_else(|| panic!("{did}"));
        assert!(from != to && from.contains('.') && to.contains('.'), "{did}");
        assert!(title.starts_with(name), "{title}: {did}");
        names.push(name);
    }
    let first = upgraded.first().unwrap_or_else(|| panic!("none: {effect:#}"));
    let title = first["title"].as_str().unwrap();
    assert!(title.contains("(follower)"), "{title}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), upgraded.len(), "each of them once: {effect:#}");
    let no_time = |window: &Value| {
        window["missed"]
            .as_str()
            .is_some_and(|missed| missed.contains("too little time"))
    };
    assert!(
        names.len() == 3 || answer.windows().iter().any(no_time),
        "each with time: {effect:#}"
    );
    assert!(answer.acquires_under_faults() > 0, "the others go on");
}

#[test]
fn a_folder_without_the_programs_of_a_version_is_refused_before_a_run_begins() {
    let harness = Harness::new();
    for (folder, said) in [("./nothing", "no folder"), (".", "etcd not found in")] {
        let words = format!("run --backend etcd --runtime local --fault server-upgrade={folder}");
        harness.assert_says(&words, 4, &[said]);
    }
    assert!(!harness.results().exists(), "no run has begun");
}

/// The folder of this machine's packages has the same version.
#[test]
fn an_upgrade_to_the_same_version_is_none_and_a_pass_would_mean_nothing() {
    let words = "--runtime local --backend redis --fault server-upgrade=/ --lease 1s --time 12s --seed 5eed";
    let answer = Harness::new().run(words);
    answer.assert_exit(3);
    let effect = &answer.diagnosis["effect"];
    assert_eq!(answer.window_sum("servers_upgraded"), 0);
    assert!(answer.window_sum("servers_back") >= 1, "{effect:#}");
    let missed = answer.windows()[0]["missed"].as_str().unwrap_or_default();
    assert!(missed.contains("as before"), "{effect:#}");
}

mod docker {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::machine::MadeByDocker;

    /// Returns the standard output of a command; `None`, with a line on stderr, if it fails.
    fn said(command: &str) -> Option<String> {
        let output = Command::new("sh").args(["-c", command]).output().ok()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            eprintln!("skipped: {command}: {why} (make images; apt-get install etcd-server libzookeeper-java)");
            return None;
        }
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Creates a container of an image of newer packages, which does not run.
    fn container(image: &str) -> Option<MadeByDocker> {
        said(&format!("docker create {image}")).map(MadeByDocker::Container)
    }

    /// Builds an image with the etcd of this machine in place of a newer one. Returns `None` if both have the same version.
    fn older_etcd(newer: &str) -> Option<MadeByDocker> {
        let own = said("command -v etcd")?;
        let made = container(newer)?;
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("etcd");
        said(&format!("docker cp {}:/usr/bin/etcd {}", made.name(), theirs.display()))?;
        if std::fs::read(&own).ok()? == std::fs::read(&theirs).ok()? {
            eprintln!("skipped: {newer} and this machine have one version of etcd");
            return None;
        }
        said(&format!("docker cp --follow-link {own} {}:/usr/bin/etcd", made.name()))?;
        let image = format!("harness-etcd:upgrade-{}", std::process::id());
        said(&format!("docker commit {} {image}", made.name()))?;
        Some(MadeByDocker::Image(image))
    }

    #[test]
    fn an_etcd_mutex_goes_on_while_its_servers_are_upgraded() {
        let newer = "harness-etcd:debian";
        let Some(older) = older_etcd(newer) else { return };
        let image = older.name();
        let answer = Harness::new().run(&format!(
            "--runtime docker --image {image} --backend etcd --fault server-upgrade={newer} --locks 4 --lease 2s --window 3s --time 40s --seed 5eed"
        ));
        assert_upgraded_in_turn(&answer);
        let run = answer.diagnosis["run"]["run"].as_str().expect("a run has a name");
        let left = said(&format!("docker volume ls --quiet --filter label=harness.run={run}"));
        assert_eq!(left.as_deref(), Some(""), "its data are gone with it");
    }

    #[test]
    fn an_image_that_is_not_here_is_refused_before_a_run_begins() {
        let harness = Harness::new();
        let words = "run --backend etcd --runtime docker --fault server-upgrade=registry.invalid/etcd:9";
        harness.assert_says(words, 4, &["no image registry.invalid/etcd:9"]);
        assert!(!harness.results().exists(), "no run has begun");
    }

    mod nightly {
        use super::*;

        #[test]
        fn a_zookeeper_queue_goes_on_while_its_servers_are_upgraded() {
            let Some(made) = container("harness-zk:debian") else {
                return;
            };
            let folder = tempfile::tempdir().unwrap();
            let at = folder.path().display();
            let unpacked = said(&format!(
                "docker export {} | tar -x -C {at} usr/share/java",
                made.name()
            ));
            if unpacked.is_none() {
                return;
            }
            let jar = |root: &Path| std::fs::canonicalize(root.join("usr/share/java/zookeeper.jar")).ok();
            let name = |root| Some(jar(root)?.file_name()?.to_owned());
            let (own, theirs) = (name(Path::new("/")), name(folder.path()));
            if own.is_none() || own == theirs {
                eprintln!("skipped: {own:?} is of this machine, and {theirs:?} is no other version");
                return;
            }
            let answer = Harness::new().run(&format!(
                "--runtime local --backend zk --fault server-upgrade={at} --locks 4 --lease 1s --window 3s --time 24s --seed 5eed"
            ));
            assert_upgraded_in_turn(&answer);
        }
    }
}
