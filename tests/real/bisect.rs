//! Bisection (`harness shrink --bisect-client` and `--bisect-image`) on real servers: it finds the version that
//! introduced a violation, and gives no answer without evidence.

use serde_json::{Value, json};

use super::foreign::{EVERYBODY, page_client};
use crate::command::{Answer, Harness, assert_has, texts};
use crate::machine::names_in;

/// Returns the result of `harness shrink latest --json` for these clients.
fn bisected(harness: &Harness, words: &str, clients: &[&str]) -> Answer {
    let clients: Vec<String> = clients
        .iter()
        .map(|client| format!("--bisect-client '{client}'"))
        .collect();
    harness.answer(&format!("shrink latest --json {words} {}", clients.join(" ")))
}

/// Five versions in one file. From the third on, an acquire takes the key from its holder in one of four turns, so that
/// a run of seconds shows it.
const BEGINS_IN_THE_THIRD: [(&str, &str); 2] = [
    ("import secrets", "import secrets\nimport sys"),
    (
        r#"taken = self.call("SET", f"harness:{lock}", value, "NX", "PX", int(self.lease * 1000)) == "OK""#,
        r#"taken = self.call("SET", f"harness:{lock}", value, *([] if int(sys.argv[1]) >= 3 and int(value[0], 16) < 4 else ["NX"]), "PX", int(self.lease * 1000)) == "OK""#,
    ),
];

#[test]
fn a_lock_of_harness_and_servers_that_are_models_have_no_such_versions() {
    let harness = Harness::new();
    let words = "--runtime simulated --backend redis --recipe redis-setnx --fault kill-holder --seed 1";
    harness.run(words).assert_exit(1);
    for (words, why) in [
        ("--bisect-client ./a --bisect-client ./b", "a recipe of harness"),
        ("--bisect-image a:1,b:1", "are models"),
        ("--bisect-server 6.2,7.0", "are models"),
        ("--bisect-server 6.2", "two versions or more"),
        ("--bisect-server 6.2,7.0 --bisect-image a:1,b:1", "cannot be used with"),
        ("--bisect-image a:1", "two versions or more"),
        ("--bisect-image a:1,b:1 --runs 3", "cannot be used with"),
    ] {
        let refused = bisected(&harness, words, &[]);
        refused.assert_exit(2);
        assert_has(&refused.stderr, &[why]);
    }
}

mod nightly {
    use super::*;

    #[test]
    fn the_client_that_began_a_violation_is_found() {
        let harness = Harness::new();
        let client = page_client(&harness, &BEGINS_IN_THE_THIRD);
        let versions = [1, 2, 3, 4, 5].map(|version| format!("{client} {version}"));
        let versions = versions.each_ref().map(String::as_str);
        let newest = versions[4];
        let words = "--runtime local --backend redis --lease 1s --time 7s --clients 4 --hold 50ms --seed 1";
        harness.run(&format!("{words} --client '{newest}'")).assert_exit(1);
        let answer = bisected(&harness, "", &versions);
        answer.assert_exit(1);
        let result = &answer.diagnosis;
        assert_eq!(result["began"], json!([versions[2]]), "{}", answer.said());
        assert_eq!(
            texts(&result["versions"], "state"),
            ["holds", "holds", "fails", "open", "fails"],
            "the fourth one is not needed"
        );
        let needed = result["needed"].as_u64().unwrap();
        for held in &result["versions"].as_array().unwrap()[..2] {
            assert!(
                held["hit_rate"]["runs"].as_u64() >= Some(needed) && held["hit_rate"]["hits"] == 0,
                "{result:#}"
            );
        }
        assert!(result["wrong"].as_f64().unwrap() <= 0.05, "{result:#}");
        assert!(
            result["again"].as_array().unwrap().contains(&json!(versions[2])),
            "{result:#}"
        );

        let folder = harness.folders_with("bisect.json").remove(0);
        let stored: Value = serde_json::from_slice(&std::fs::read(folder.join("bisect.json")).unwrap()).unwrap();
        assert_eq!(&stored, result);
        assert_eq!(names_in(&folder.join("runs")).len(), 1, "one run is kept");
        let kept = folder.join(result["kept"].as_str().unwrap());
        harness.printed(&format!("check --json {}", kept.display()), 1);
    }

    #[test]
    fn where_there_is_no_evidence_there_is_no_version() {
        let harness = Harness::new();
        let [everybody, as_well] = ["everybody.py", "as_well.py"].map(|name| harness.python(name, EVERYBODY));
        let words = format!("--runtime local --backend redis --lease 1s --time 7s --client '{everybody}'");
        harness.run(&words).assert_exit(1);
        let right = page_client(&harness, &[]);
        // exit code 3 has an answer in the result
        let one = "--confirm 1 --bisect-runs 1";
        for (words, versions, exit, said) in [
            ("", &[&*everybody][..], 2, &["two versions or more"][..]),
            ("", &[&everybody, &as_well, &everybody], 2, &["twice"]),
            ("--confirm 1", &[&as_well, &everybody], 3, &["name older versions"]),
            (
                "--confirm 1",
                &["exit 7", &everybody],
                3,
                &["only the newest", "no start  exit 7"],
            ),
            (
                "--confirm 1",
                &[&everybody, "exit 7"],
                4,
                &["the newest version could not be run"],
            ),
            ("--bisect-server 6.2,6.3", &[], 4, &["could not be run: 6.3: "]),
            (one, &[&everybody, &right], 3, &["does not show it"]),
            (one, &[&right, &everybody], 3, &["--bisect-runs 13"]),
        ] {
            let answer = bisected(&harness, words, versions);
            answer.assert_exit(exit);
            let answered = answer.diagnosis["answer"].as_str().unwrap_or_default();
            assert_has(&format!("{answered}\n{}", answer.stderr), said);
        }
        let names = names_in(&harness.results()).into_iter();
        let folders = names
            .filter(|name| name.contains("-bisect-"))
            .map(|name| harness.results().join(name));
        let failed: Vec<_> = folders.filter(|folder| !folder.join("bisect.json").exists()).collect();
        assert_eq!(failed.len(), 1, "one without a run leaves nothing: {failed:?}");
        assert!(!names_in(&failed[0].join("runs")).is_empty(), "its log explains it");
    }

    mod docker {
        use std::io::Write;
        use std::process::{Command, Stdio};

        use super::*;
        use crate::machine::MadeByDocker;

        const KEEPS: &str = "harness-redis:debian";

        /// Builds an image of a Redis that now and then deletes all keys.
        fn forgetful() -> MadeByDocker {
            let name = format!("harness-bisect-test:{}", std::process::id());
            let file = format!(
                "FROM {KEEPS}\nLABEL keeps=no\nRUN printf '#!/bin/sh\\n(while sleep 0.7; do redis-cli flushall; done) >/dev/null 2>&1 &\\nexec /usr/bin/redis-server \"$@\"\\n' > /usr/local/bin/redis-server && chmod +x /usr/local/bin/redis-server\n"
            );
            let mut build = Command::new("docker")
                .args(["build", "--quiet", "--network", "none", "--tag", &name, "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            build.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
            assert!(build.wait().unwrap().success());
            MadeByDocker::Image(name)
        }

        #[test]
        fn an_image_that_is_not_there_is_skipped_and_the_answer_is_a_range() {
            let harness = Harness::new();
            let made = forgetful();
            let image = made.name();
            let words = format!("--runtime docker --image {image} --backend redis --hold 1s --clients 2 --time 8s");
            harness.run(&words).assert_exit(1);
            // no registry listens there, so the image cannot be pulled
            let missing = "localhost:1/none:1";
            let answer = bisected(&harness, &format!("--bisect-image {KEEPS},{missing},{image}"), &[]);
            answer.assert_exit(1);
            let result = &answer.diagnosis;
            assert_eq!(result["began"], json!([missing, image]), "{}", answer.said());
            assert_eq!(texts(&result["versions"], "state")[..2], ["holds", "skipped"]);
            assert_has(result["versions"][1]["why"].as_str().unwrap(), &["no image"]);

            let refused = bisected(&harness, &format!("--bisect-image {KEEPS},{missing}"), &[]);
            refused.assert_exit(4);
            let why = "the newest version could not be run: localhost:1/none:1: no image";
            assert_has(&refused.stderr, &[why]);
        }
    }
}
