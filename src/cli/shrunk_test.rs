//! What a violation was cut down to, as a test of one file: for pytest, or for the shell.
//!
//! It runs the plan in virtual time, where that is the same each time: it fails on the lock that the plan was found with, and passes
//! once that lock is mended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::shrink_screen::ShrinkResult;
use crate::cluster::RuntimeRequest;
use crate::report::words::quoted;

/// What runs the test, by the end of the file's name.
#[derive(Clone, Copy)]
enum TestRunner {
    Pytest,
    Shell,
}

impl TestRunner {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "py" => Some(Self::Pytest),
            "sh" => Some(Self::Shell),
            _ => None,
        }
    }
}

/// Whether such a test can be written. The error is a sentence.
pub fn accepts(path: &Path, runtime: RuntimeRequest) -> Result<(), String> {
    if TestRunner::of(path).is_none() {
        let named = path.display();
        return Err(format!(
            "--as-test {named}: the name must end in .py, for pytest, or in .sh, for the shell"
        ));
    }
    match runtime {
        RuntimeRequest::Virtual | RuntimeRequest::Simulated => Ok(()),
        _ => Err("--as-test needs a run in virtual time, which is the same each time\nhint: find the violation with --runtime virtual".to_owned()),
    }
}

/// Writes it. The error is a sentence.
pub fn write(path: &Path, result: &ShrinkResult, runtime: RuntimeRequest) -> Result<(), String> {
    accepts(path, runtime)?;
    if result.detected_after_ms.is_none() {
        return Err(format!(
            "{} was not written: the result shows no violation",
            path.display()
        ));
    }
    let text = match TestRunner::of(path) {
        Some(TestRunner::Pytest) => pytest(result),
        _ => shell(result),
    };
    let failed = |error: std::io::Error| format!("could not write {}: {error}", path.display());
    fs::write(path, text).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed)
}

/// The words behind `harness`, without the client's command where a program is the client; and that command.
fn words(result: &ShrinkResult) -> (Vec<&str>, Option<&str>) {
    let mut words: Vec<&str> = result.again.iter().skip(1).map(String::as_str).collect();
    let place = words.iter().position(|word| *word == "--client");
    let client = place.filter(|place| place + 1 < words.len()).map(|place| {
        words.remove(place);
        words.remove(place)
    });
    (words, client)
}

/// What it shows, in a sentence.
fn about(result: &ShrinkResult) -> String {
    let property = result.property.id();
    format!(
        "{property} {}: written by `harness shrink --as-test` from {}.",
        result.class, result.run
    )
}

const HINT: &str =
    "LOCK_CLIENT names another client, HARNESS another harness. Exit code 3 is inconclusive, not a violation.";

fn pytest(result: &ShrinkResult) -> String {
    let json = |word: &str| serde_json::to_string(word).expect("a word is plain text");
    let (words, client) = words(result);
    let words: Vec<String> = words.into_iter().map(json).collect();
    let client = client.map(|client| {
        format!(
            "    command += [\"--client\", os.environ.get(\"LOCK_CLIENT\", {})]\n",
            json(client)
        )
    });
    format!(
        "\"\"\"{about}\n\n{HINT}\n\"\"\"\n\nimport os\nimport subprocess\n\n\n\
         def test_{name}(tmp_path):\n    command = [os.environ.get(\"HARNESS\", \"harness\"), {words}]\n{client}    \
         command += [\"--results\", str(tmp_path)]\n    \
         ran = subprocess.run(command, capture_output=True, text=True)\n    \
         assert ran.returncode in (0, 3), ran.stdout + ran.stderr\n",
        about = about(result),
        name = result.property.id().to_lowercase(),
        words = words.join(", "),
        client = client.unwrap_or_default(),
    )
}

fn shell(result: &ShrinkResult) -> String {
    let (words, client) = words(result);
    let words: Vec<String> = words.into_iter().map(quoted).collect();
    let (named, given) = match client {
        Some(client) => (
            format!("client={}\n", quoted(client)),
            " --client \"${LOCK_CLIENT:-$client}\"",
        ),
        None => (String::new(), ""),
    };
    format!(
        "#!/bin/sh\n# {about}\n# {HINT}\nresults=$(mktemp -d) || exit\ntrap 'rm -rf \"$results\"' EXIT\n{named}\
         \"${{HARNESS:-harness}}\" {words}{given} --results \"$results\"\ncode=$?\n[ $code -ne 3 ] || code=0\nexit $code\n",
        about = about(result),
        words = words.join(" "),
    )
}
