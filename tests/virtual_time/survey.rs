//! A survey of two versions of a library that does not exist, one of which keeps nobody out.

use std::path::Path;
use std::process::{Command, Output};

use super::harness_on;
use crate::command::Harness;
use crate::machine::said;

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
            let packed = python.args(["-c", PACK]).arg(folder).args([version, words]).status();
            assert!(packed.unwrap().success());
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

    fn survey(&self, words: &str) -> Output {
        let folder = self.folder();
        let words = format!(
            "survey --locks {} --promise slow-network --experiments 1 {words}",
            folder.display()
        );
        let mut command = self.harness.command(words.trim());
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", folder);
        command.env("XDG_CACHE_HOME", folder.join("cache"));
        command.output().unwrap()
    }
}

#[test]
fn of_two_versions_one_breaks_and_one_holds_and_one_that_cannot_be_had_is_said() {
    let Some(harness) = harness_on("redis") else { return };
    let registry = Registry::of(harness);
    let page = registry.folder().join("page.md");
    let surveyed = registry.survey(&format!("tiny==1.0 tiny==2.0 tiny==3.0 --page {}", page.display()));
    let text = said(&surveyed);
    assert_eq!(surveyed.status.code(), Some(4), "{text}");
    assert!(text.contains("[  2/2]") && text.contains("tinylock==3.0"), "{text}");
    let written = std::fs::read_to_string(&page).unwrap();
    let row = |version: &str| {
        let wanted = format!("tinylock {version}, take");
        let row = written
            .lines()
            .find(|line| line.starts_with("| ") && line.contains(&wanted));
        row.unwrap_or_else(|| panic!("{written}")).to_owned()
    };
    assert!(row("1.0").contains("**HL001 overwritten** 1 of 1"), "{written}");
    assert!(row("2.0").contains("| holds (1) |"), "{written}");
    assert!(
        written.contains("*defect*: The key is set over that of a holder."),
        "{written}"
    );
    assert!(
        written.contains("`harness survey tiny==1.0 --promise slow-network`"),
        "{written}"
    );
    let html = std::fs::read_to_string(registry.harness.results().join("survey/index.html")).unwrap();
    assert!(html.contains("tinylock 1.0, take"), "the page that stands alone");

    // what was made is not made again
    let again = registry.survey("tiny==1.0 --json");
    assert!(!said(&again).contains("[  1/"), "{}", said(&again));
    let printed: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        printed["versions"][1]["promises"]["slow-network"]["broken"]["rate"]["hits"], 1,
        "{printed:#}"
    );

    let unknown = registry.survey("tinny");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("did you mean `tiny`?"), "{}", said(&unknown));
}
