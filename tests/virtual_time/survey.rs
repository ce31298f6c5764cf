//! A survey of two versions of a library that does not exist, one of which does not exclude.

use std::path::Path;
use std::process::Command;

use super::harness_on;
use crate::command::{Answer, Harness, assert_has, assert_lacks};
use crate::machine::{succeeds, write_program};

/// Packs a module as a wheel, as in a registry.
const PACK: &str = r#"
import sys, zipfile
folder, version, words = sys.argv[1:]
module = f'''
def take(ask, key, owner, lease_ms):
    return ask("SET", key, owner, {words} "PX", str(lease_ms)) == "+OK"
'''
info = f"tinylock-{version}.dist-info"
with zipfile.ZipFile(f"{folder}/tinylock-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tinylock.py", module)
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tinylock\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

/// A `python3` whose environments are copies of the first one: one with pip takes ten seconds to make.
const COPIES: &str = r#"first=$(dirname "$0")/first
PATH=${PATH#*:}
[ "$2" = venv ] || exec python3 "$@"
[ -d "$first" ] || python3 -m venv "$first" || exit
exec cp -a "$first" "$3""#;

const LOCK: &str = r#"
library = "tinylock"
lock = "take"
home = "https://example.org/tinylock"
backend = "redis"
versions = ["2.0", "1.0"]
packages = ["tinylock=={version}"]
client = "tiny_lock.py"

[[find]]
find = "HL001 overwritten"
is = "defect"
happened = "The key is set over that of a holder."
source = "tinylock.py 3"
report = "none found"
"#;

struct Registry {
    harness: Harness,
    programs: tempfile::TempDir,
}

impl Registry {
    fn of(harness: Harness) -> Self {
        let programs = tempfile::tempdir().unwrap();
        write_program(&programs.path().join("python3"), COPIES);
        let registry = Self { harness, programs };
        let folder = registry.folder();
        for (version, words) in [("1.0", ""), ("2.0", "\"NX\",")] {
            let mut python = Command::new("python3");
            succeeds(python.args(["-c", PACK]).arg(folder).args([version, words]));
        }
        // the client of other tests, with the library in place of its own SET
        let client = super::forking_client()
            .replace(
                r#"self.ask("SET", f"harness:{lock}", value, "NX", "PX", str(self.lease_ms)) == "+OK""#,
                r#"tinylock.take(self.ask, f"harness:{lock}", value, self.lease_ms)"#,
            )
            .replace("sys.path.insert(0, sys.argv[1])", "import tinylock");
        assert!(client.contains("tinylock.take") && client.contains("import tinylock"));
        std::fs::write(folder.join("tiny_lock.py"), client).unwrap();
        std::fs::write(folder.join("tiny.toml"), LOCK).unwrap();
        registry
    }

    fn folder(&self) -> &Path {
        self.harness.folder.path()
    }

    /// Makes a survey of one hunt.
    fn hunt(&self, words: &str) -> Answer {
        self.survey(&format!("--promise slow-network --experiments 1 {words}"))
    }

    fn survey(&self, words: &str) -> Answer {
        let folder = self.folder();
        let mut command = self
            .harness
            .command(&format!("survey --locks {} {words}", folder.display()));
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", folder);
        let path = format!("{}:{}", self.programs.path().display(), std::env::var("PATH").unwrap());
        Answer::to(command.env("XDG_CACHE_HOME", folder.join("cache")).env("PATH", path))
    }
}

#[test]
fn of_two_versions_one_breaks_and_one_holds_and_one_that_cannot_be_had_is_said() {
    let Some(harness) = harness_on("redis") else { return };
    let registry = Registry::of(harness);
    let page = registry.folder().join("page.md");
    let surveyed = registry.hunt(&format!("tiny==1.0 tiny==2.0 tiny==3.0 --page {}", page.display()));
    surveyed.assert_exit(4);
    assert_has(&surveyed.said(), &["[  2/2]", "tinylock==3.0", "bin/python ended with"]);
    let written = std::fs::read_to_string(&page).unwrap();
    let row = |version: &str| {
        let wanted = format!("tinylock {version}, take");
        let row = written
            .lines()
            .find(|line| line.starts_with("| ") && line.contains(&wanted));
        row.unwrap_or_else(|| panic!("{written}")).to_owned()
    };
    assert_has(&row("1.0"), &["**HL001 overwritten** 1 of 1"]);
    assert_has(&row("2.0"), &["| holds (1) |"]);
    let defect = "*defect*: The key is set over that of a holder.";
    let again = "`harness survey tiny==1.0 --promise slow-network --anew`";
    assert_has(&written, &[defect, again]);
    // the HTML page, which needs nothing else
    let html = std::fs::read_to_string(registry.harness.results().join("survey/index.html")).unwrap();
    assert_has(&html, &["tinylock 1.0, take"]);

    // earlier hunts are not repeated, and need no client
    std::fs::remove_dir_all(registry.folder().join("cache")).unwrap();
    let again = registry.hunt("tiny==1.0 --json");
    again.assert_exit(0);
    assert_lacks(&again.said(), &["[  1/", "tinylock==1.0"]);
    let broken = &again.diagnosis["versions"][1]["promises"]["slow-network"]["broken"];
    assert_eq!(broken["rate"]["hits"], 1, "{:#}", again.diagnosis);

    let unknown = registry.hunt("tinny");
    unknown.assert_exit(2);
    assert_has(&unknown.said(), &["did you mean `tiny`?"]);

    // the page is made from the records alone, which are the same on another machine
    let alone = registry.folder().join("alone.md");
    let shown = registry.survey(&format!("--no-hunts --page {}", alone.display()));
    shown.assert_exit(0);
    assert_eq!(std::fs::read_to_string(&alone).unwrap(), written);
    let record = registry.folder().join("records/tiny-1.0.json");
    let text = std::fs::read_to_string(&record).unwrap();
    assert_lacks(&text, &[&registry.folder().display().to_string(), "runs/"]);

    // a record of another client is not valid
    assert_has(&text, &["\"client\": \"survey-tiny-1.0-"]);
    std::fs::write(&record, text.replace("\"survey-tiny-1.0-", "\"other-")).unwrap();
    let anew = registry.hunt("tiny==1.0");
    anew.assert_exit(0);
    assert_has(&anew.said(), &["[  1/1]"]);
    assert_has(
        &std::fs::read_to_string(&record).unwrap(),
        &["\"client\": \"survey-tiny-1.0-"],
    );
}
