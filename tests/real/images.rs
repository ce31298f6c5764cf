//! Images by digest: a run records the digest of its image, and the names in this repository can be pinned.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{Answer, assert_has, assert_lacks};
use crate::machine::{copy_of, write_program};

/// The files with names of images.
const FILES: [&str; 10] = [
    "scripts/pin-images",
    "src/backends/etcd/image",
    "src/backends/mariadb/image",
    "src/backends/nats/image",
    "src/backends/postgres/image",
    "src/backends/redis/image",
    "src/backends/valkey/image",
    "src/backends/zk/image",
    "src/cluster/sidecar.rs",
    "deploy/Dockerfile",
];

/// Copies the files with names of images, with an engine that knows the digests of all but one image.
fn repository(unknown: &str) -> tempfile::TempDir {
    let folder = copy_of(&FILES);
    let script = format!(
        "case \"$4\" in *@*) exit 1;; {unknown}*) exit 1;; esac\necho sha256:$(printf %s \"$4\" | sha256sum | cut -c1-64)"
    );
    write_program(&folder.path().join("docker"), &script);
    folder
}

fn pin(repository: &Path, word: &str) -> Answer {
    let path = format!("{}:{}", repository.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(repository.join("scripts/pin-images"));
    Answer::to(command.args(word.split_whitespace()).env("PATH", path))
}

#[test]
fn every_image_of_the_repository_can_be_pinned_and_pinned_again() {
    let folder = repository("nothing");
    let text = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
    assert_eq!(pin(folder.path(), "--check").exit, 1, "they have tags");
    for _ in 0..2 {
        let pinned = pin(folder.path(), "");
        pinned.assert_exit(0);
        assert_eq!(pinned.stdout.lines().count(), 10);
        pin(folder.path(), "--check").assert_exit(0);
    }
    for file in &FILES[1..] {
        let before = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let after = text(file);
        assert_eq!(before.lines().count(), after.lines().count(), "{file}");
        let digests = after.matches("@sha256:").count() - before.matches("@sha256:").count();
        assert_eq!(
            digests,
            if *file == "deploy/Dockerfile" { 2 } else { 1 },
            "{file}: {after}"
        );
    }
}

#[test]
fn where_a_registry_does_not_answer_nothing_is_pinned() {
    let folder = repository("redis");
    let pinned = pin(folder.path(), "");
    pinned.assert_exit(1);
    assert_has(&pinned.stderr, &["redis:7", "nothing was changed"]);
    for file in &FILES[1..9] {
        assert_lacks(&fs::read_to_string(folder.path().join(file)).unwrap(), &["@sha256:"]);
    }
}

mod docker {
    use crate::command::{Harness, assert_has};
    use crate::machine::docker;

    #[test]
    fn a_run_of_an_image_by_its_id_says_so() {
        let id = docker("image inspect --format {{.Id}} harness-redis:debian");
        if id.is_empty() {
            eprintln!("skipped: harness-redis:debian is not here (make images)");
            return;
        }
        let harness = Harness::new();
        let words = "--runtime docker --backend redis --fault none --lease 1s --time 7s --image";
        let answer = harness.run(&format!("{words} {id}"));
        answer.assert_exit(0);
        let run = &answer.diagnosis["run"];
        assert_eq!(run["image"], *id);
        assert_eq!(run["image_digest"], *id);
        assert_has(&run["again"].to_string(), &[&id]);
        // an image that is not present, by its digest: the sentence names it
        harness.assert_says(
            &format!("run {words} registry.invalid/redis:7@{id}"),
            4,
            &[&format!("no image registry.invalid/redis:7@{id}")],
        );
    }
}
