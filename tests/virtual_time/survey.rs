//! A survey of two versions of a library that does not exist, one of which keeps nobody out.

use std::path::Path;
use std::process::Command;

use super::harness_on;
use crate::command::{Answer, Harness, assert_has, assert_lacks};
use crate::machine::succeeds;

/// Packs a module as a wheel, as a registry would have it.
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
}

impl Registry {
    fn of(harness: Harness) -> Self {
        let registry = Self { harness };
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

    fn survey(&self, words: &str) -> Answer {
        let folder = self.folder();
        let words = format!(
            "survey --locks {} --promise slow-network --experiments 1 {words}",
            folder.display()
        );
        let mut command = self.harness.command(words.trim());
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", folder);
        Answer::to(command.env("XDG_CACHE_HOME", folder.join("cache")))
    }
}

#[test]
fn of_two_versions_one_breaks_and_one_holds_and_one_that_cannot_be_had_is_said() {
    let Some(harness) = harness_on("redis") else { return };
    let registry = Registry::of(harness);
    let page = registry.folder().join("page.md");
    let surveyed = registry.survey(&format!("tiny==1.0 tiny==2.0 tiny==3.0 --page {}", page.display()));
    surveyed.assert_exit(4);
    assert_has(&surveyed.said(), &["[  2/2]", "tinylock==3.0"]);
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
    assert_has(&written, &[defect, "`harness survey tiny==1.0 --promise slow-network`"]);
    // the page that stands alone
    let html = std::fs::read_to_string(registry.harness.results().join("survey/index.html")).unwrap();
    assert_has(&html, &["tinylock 1.0, take"]);

    // what was made is not made again
    let again = registry.survey("tiny==1.0 --json");
    assert_lacks(&again.said(), &["[  1/"]);
    let broken = &again.diagnosis["versions"][1]["promises"]["slow-network"]["broken"];
    assert_eq!(broken["rate"]["hits"], 1, "{:#}", again.diagnosis);

    let unknown = registry.survey("tinny");
    unknown.assert_exit(2);
    assert_has(&unknown.said(), &["did you mean `tiny`?"]);
}
