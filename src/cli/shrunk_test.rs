//! Writes the result of `harness shrink` as a test of one file: for pytest, the shell, JUnit 5, node's test runner or `cargo test`.
//!
//! The test repeats the plan in virtual time, so it fails on the lock with which the plan was found, and passes once that lock is
//! mended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::shrink_screen::ShrinkResult;
use crate::cluster::RuntimeRequest;
use crate::report::words::{json_string, quoted};

/// A language in which a test is written.
struct TestLanguage {
    /// The extensions of its files.
    ends: &'static [&'static str],
    /// The name of the test runner.
    runner: &'static str,
    /// The test; a line with `@CLIENT@` is left out if the client is not a program.
    template: &'static str,
    /// Returns a word as a literal of the language.
    literal: fn(&str) -> String,
    between_words: &'static str,
}

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../workloads/skeletons/tests/", $name))
    };
}

const LANGUAGES: [TestLanguage; 5] = [
    TestLanguage {
        ends: &["py"],
        runner: "pytest",
        template: template!("test_lock.py"),
        literal: json_string,
        between_words: ", ",
    },
    TestLanguage {
        ends: &["sh"],
        runner: "the shell",
        template: template!("lock.sh"),
        literal: quoted,
        between_words: " ",
    },
    TestLanguage {
        ends: &[JAVA],
        runner: "JUnit 5",
        template: template!("LockTest.java"),
        literal: java,
        between_words: ", ",
    },
    TestLanguage {
        ends: &["mjs", "js"],
        runner: "node --test",
        template: template!("lock.test.mjs"),
        literal: json_string,
        between_words: ", ",
    },
    TestLanguage {
        ends: &["rs"],
        runner: "cargo test",
        template: template!("lock.rs"),
        literal: |word| format!("{word:?}"),
        between_words: ", ",
    },
];
const JAVA: &str = "java";

/// Returns a JSON string in ASCII, which does not depend on the encoding of the compiler.
fn java(word: &str) -> String {
    let escaped = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
        _ => format!("\\u{unit:04x}"),
    };
    json_string(word).encode_utf16().map(escaped).collect()
}

/// Returns the language of a file by its extension. The error is a sentence.
fn language_of(path: &Path) -> Result<&'static TestLanguage, String> {
    let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
    let named = path.display();
    let Some(language) = LANGUAGES.iter().find(|language| language.ends.contains(&end)) else {
        let ends = LANGUAGES.iter().map(|language| {
            let ends: Vec<String> = language.ends.iter().map(|end| format!(".{end}")).collect();
            format!("{} ({})", ends.join(" or "), language.runner)
        });
        let ends: Vec<String> = ends.collect();
        return Err(format!("--as-test {named}: the name must end in {}", ends.join(", ")));
    };
    let class = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if end == JAVA && (!class.chars().all(is_plain) || class.starts_with(|letter: char| letter.is_ascii_digit())) {
        return Err(format!(
            "--as-test {named}: the file is named after its class, and {class} is not the name of a class\nhint: LockTest.java"
        ));
    }
    Ok(language)
}

/// Checks that the test can be written. The error is a sentence.
pub fn accepts(path: &Path, runtime: RuntimeRequest) -> Result<(), String> {
    language_of(path)?;
    match runtime {
        RuntimeRequest::Virtual | RuntimeRequest::Simulated => Ok(()),
        _ => Err("--as-test needs a run in virtual time, which is the same each time\nhint: find the violation with --runtime virtual".to_owned()),
    }
}

/// Writes the test. The error is a sentence.
pub fn write(path: &Path, result: &ShrinkResult) -> Result<(), String> {
    let language = language_of(path)?;
    let failed = |error: std::io::Error| format!("could not write {}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text(language, path, result)).map_err(failed)?;
    if language.template.starts_with("#!") {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(())
}

const HINT: &str =
    "LOCK_CLIENT names another client, HARNESS another harness. Exit code 3 is inconclusive, not a violation.";

fn text(language: &TestLanguage, path: &Path, result: &ShrinkResult) -> String {
    let property = result.property.id();
    let about = format!(
        "{property} {}: written by `harness shrink --as-test` from {}.",
        result.class, result.run
    );
    let class = path.file_stem().unwrap_or_default().to_string_lossy();
    let (words, client) = words(&result.again);
    let words: Vec<String> = words.into_iter().map(language.literal).collect();
    let words = words.join(language.between_words);
    let client = client.map(language.literal);
    let lines = language.template.split_inclusive('\n');
    let lines = lines.filter(|line| client.is_some() || !line.contains("@CLIENT@"));
    let filled = lines.map(|line| {
        line.replace("@ABOUT@", &about)
            .replace("@HINT@", HINT)
            .replace("@NAME@", &property.to_lowercase())
            .replace("@CLASS@", &class)
            .replace("@CLIENT@", client.as_deref().unwrap_or_default())
            .replace("@WORDS@", &words)
    });
    filled.collect()
}

/// Returns the words after `harness`, without the command of a client program; and that command.
fn words(again: &[String]) -> (Vec<&str>, Option<&str>) {
    let (mut others, mut client) = (Vec::new(), None);
    let mut words = again.iter().skip(1).map(String::as_str);
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("--client", "") => client = words.next(),
            // a value that begins with a dash stands in the word of its option
            ("--client", value) => client = Some(value),
            _ => others.push(word),
        }
    }
    (others, client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_literals_of_their_language() {
        let word = "a \"b\" \\u0041 ü\u{1}";
        assert_eq!(java(word), "\"a \\\"b\\\" \\\\u0041 \\u00fc\\u0001\"");
        let [.., rust] = &LANGUAGES;
        assert_eq!((rust.literal)(word), "\"a \\\"b\\\" \\\\u0041 ü\\u{1}\"");
    }

    #[test]
    fn the_client_is_found_in_a_word_of_its_own_and_in_that_of_its_option() {
        for line in [
            "harness run --clients 3 --client ./-x",
            "harness run --client=-x --clients 3",
        ] {
            let again: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (words, client) = words(&again);
            assert_eq!(words, ["run", "--clients", "3"]);
            assert!(client.is_some_and(|client| client.ends_with("-x")), "{line}");
        }
    }

    #[test]
    fn the_end_of_a_name_decides_the_language() {
        for name in "a.py a.sh LockTest.java lock.test.mjs lock.js tests/a.rs".split(' ') {
            assert_eq!(accepts(Path::new(name), RuntimeRequest::Virtual), Ok(()), "{name}");
        }
        let refused = accepts(Path::new("lock.rb"), RuntimeRequest::Virtual).unwrap_err();
        let ends = ".py (pytest), .sh (the shell), .java (JUnit 5), .mjs or .js (node --test), .rs (cargo test)";
        assert!(refused.ends_with(ends), "{refused}");
        let refused = accepts(Path::new("lock-test.java"), RuntimeRequest::Virtual).unwrap_err();
        assert!(refused.contains("lock-test is not the name of a class"), "{refused}");
    }
}
