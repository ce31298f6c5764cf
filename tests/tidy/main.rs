//! The rules of the project that a program can check, each with a hint: layers, circles, lengths, names, prose, and the
//! files of the top folder.

mod circles;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The layers of `src/`: a module may import only from those behind its colon.
const LAYERS: &str = "\
allocator:
limits:
installing:
adapters: installing
clock:
exit:
evidence:
own_delays:
ownership:
process:
wall_clock:
disks:
event:
kube: clock process
cluster: clock disks installing limits ownership process wall_clock
backends: cluster limits clock process
config: backends cluster limits
client_role:
faults: config client_role cluster backends clock disks evidence limits wall_clock
plan: faults config backends
run: adapters backends plan faults client_role cluster config event evidence clock disks limits own_delays process wall_clock
simulated: backends clock cluster config exit faults plan process run wall_clock
in_virtual_time: backends clock cluster config disks event faults limits process run simulated wall_clock
store: backends cluster own_delays
report: store exit evidence client_role
ui: event report
suite: config report exit
hunt: backends cluster config evidence exit faults plan report
survey: adapters hunt report store
cli: adapters backends run simulated plan faults cluster config event evidence exit limits store report ui ownership process suite survey hunt in_virtual_time kube";

/// Modules without clock, random numbers of their own, and files.
const PURE: &[&str] = &[
    "src/plan.rs",
    "src/plan",
    "src/report",
    "src/faults",
    "src/evidence.rs",
    "proxy/src/behaviour.rs",
    "proxy/src/toxic.rs",
    "proxy/src/translate.rs",
    "src/config",
    "src/suite",
    "src/hunt",
];
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::net",
    "rand::rng(",
    "std::env",
];

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 70;

struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns the text before the unit tests.
    fn code(&self) -> &str {
        self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
    }

    /// Returns the complaints about the lines of this text of the file, each with its place.
    fn complaints(&self, text: &str, find: impl Fn(&str) -> Vec<String>) -> Vec<String> {
        let lines = (1..).zip(text.lines());
        let complaints = lines.flat_map(|(number, line)| find(line).into_iter().map(move |what| (number, what)));
        complaints
            .map(|(number, what)| format!("{}:{number}: {what}", self.name()))
            .collect()
    }
}

/// The files of the top folder.
const TOP_FILES: &str = ".dockerignore .gitignore CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE-APACHE LICENSE-MIT \
                         Makefile README.md SECURITY.md build.rs deny.toml rustfmt.toml";

/// The source of each crate.
const CRATES: &[&str] = &[
    "src",
    "checkers/src",
    "proxy/src",
    "workloads/src",
    "simulation/src",
    "tls/src",
];

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    walk(Path::new("benches"), &mut found);
    for source in CRATES {
        walk(Path::new(source), &mut found);
        walk(Path::new(&source.replace("src", "tests")), &mut found);
    }
    assert!(found.len() > 60, "the tree is somewhere else");
    found
}

fn walk(path: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(Source {
                text: fs::read_to_string(&path).unwrap(),
                path,
            });
        }
    }
}

fn is_test(source: &Source) -> bool {
    source.path.components().any(|part| part.as_os_str() == "tests") || source.name().ends_with("testing.rs")
}

fn assert_none(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_file_says_first_what_lives_in_it() {
    let silent = sources().into_iter().filter(|source| !source.text.starts_with("//! "));
    assert_none(silent.map(|source| format!("{}: begin with a line of `//!` about its subject", source.name())));
}

#[test]
fn no_file_and_no_function_is_too_long_to_read() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| !is_test(source)) {
        let length = source.code().lines().count();
        if length > MAX_FILE_LINES {
            complaints.push(format!("{}: {length} lines; split it by what it does", source.name()));
        }
        complaints.extend(long_functions(source));
    }
    assert_none(complaints);
}

/// Returns the functions that are too long, by the formatter's indentation: from `fn` to the brace that closes at the same column.
fn long_functions(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines: Vec<&str> = source.code().lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_function = [
            "fn ",
            "pub fn ",
            "async fn ",
            "pub async fn ",
            "pub(crate) fn ",
            "pub(super) fn ",
        ]
        .iter()
        .any(|word| line.trim_start().starts_with(word));
        if !is_function || line.trim_end().ends_with([';', '}']) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(indent));
        if let Some(length) = lines[start..].iter().position(|line| *line == closing)
            && length > MAX_FUNCTION_LINES
        {
            complaints.push(format!(
                "{}:{}: a function of {length} lines; name its parts",
                source.name(),
                start + 1
            ));
        }
    }
    complaints
}

/// Returns a complaint about each of these words that `is_there`, with what to write instead.
fn banned(words: &[(&str, &str)], is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let found = words.iter().filter(|(word, _)| is_there(word));
    found.map(|(word, instead)| format!("`{word}`: {instead}")).collect()
}

#[test]
fn nothing_unfinished_and_nothing_forbidden_stays() {
    // written in two halves, so that this file is no complaint
    let words = [
        (concat!("todo", "!("), "write it"),
        (concat!("unimplemented", "!("), "write it"),
        (concat!("dbg", "!("), "take it out"),
        (concat!("#[", "allow("), "#[expect(…, reason = \"…\")]"),
        (concat!("#[", "ignore"), "a test runs, or is not there"),
        (concat!("FIX", "ME"), "mend it"),
        (concat!("struct ", "Manager"), "a noun that says what it is"),
        (concat!("mod ", "util"), "a name that says what lives there"),
        (concat!("mod ", "helper"), "a name that says what lives there"),
    ];
    let find = |line: &str| banned(&words, |word| line.contains(word));
    let sources = sources();
    assert_none(sources.iter().flat_map(|source| source.complaints(&source.text, find)));
}

#[test]
fn a_module_imports_only_what_stands_below_it() {
    let layers = LAYERS.lines().map(|line| line.split_once(':').unwrap());
    let layers: BTreeMap<&str, &str> = layers.collect();
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with("src")) {
        let Some(module) = module_of(&source.path) else {
            continue;
        };
        let below = layers.get(&*module);
        let below = below.unwrap_or_else(|| panic!("src/{module} has no layer: give it one in {}", file!()));
        let is_forbidden = |imported: &&str| {
            let is_below = below.split(' ').any(|name| name == *imported);
            layers.contains_key(*imported) && *imported != module && !is_below
        };
        complaints.extend(source.complaints(source.code(), |line| {
            let forbidden = imports(line).into_iter().filter(&is_forbidden);
            forbidden
                .map(|imported| format!("`{module}` may not know `{imported}`"))
                .collect()
        }));
    }
    assert_none(complaints);
}

fn module_of(path: &Path) -> Option<String> {
    let part = path.components().nth(1)?.as_os_str().to_string_lossy().into_owned();
    let module = part.trim_end_matches(".rs").to_owned();
    (module != "lib" && module != "main").then_some(module)
}

/// Returns the modules that a line names behind `crate::`.
fn imports(line: &str) -> Vec<&str> {
    let after = line.match_indices("crate::").map(|(at, word)| &line[at + word.len()..]);
    after
        .filter_map(|rest| {
            rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .next()
        })
        .collect()
}

#[test]
fn pure_modules_take_no_clock_no_chance_and_no_files() {
    let find = |line: &str| -> Vec<String> {
        let found = IMPURE.iter().filter(|word| line.contains(**word));
        found
            .map(|word| format!("`{word}` in a pure module: take it as a parameter"))
            .collect()
    };
    let is_pure = |source: &&Source| PURE.iter().any(|pure| source.path.starts_with(pure));
    let sources = sources();
    let pure = sources.iter().filter(is_pure);
    assert_none(pure.flat_map(|source| source.complaints(source.code(), find)));
    let is_gone = |module: &&&str| !sources.iter().any(|source| source.path.starts_with(module));
    let gone = PURE.iter().filter(is_gone);
    assert_none(gone.map(|module| format!("{module} is somewhere else")));
}

#[test]
fn one_type_name_for_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for name in source.text.lines().filter_map(declared_type) {
            places.entry(name.to_owned()).or_default().push(source.name());
        }
    }
    assert!(places.len() > 300, "types are declared in another way");
    let repeated = places.iter().filter(|(_, places)| places.len() > 1);
    let complaints =
        repeated.map(|(name, places)| format!("`{name}` names {} types: {}", places.len(), places.join(", ")));
    assert_none(complaints);
}

/// Returns the name of the type that a line declares; an associated type declares none.
fn declared_type(line: &str) -> Option<&str> {
    let associated = line.starts_with(char::is_whitespace) && line.trim_start().starts_with("type ");
    let words = line.split_whitespace();
    let mut words = words.skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    if associated || !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let name = &name[..end.unwrap_or(name.len())];
    name.starts_with(char::is_uppercase).then_some(name)
}

/// Words that plain technical English does without: pronouns in place of a subject, and metaphors in place of terms.
const PROSE: &[(&str, &str)] = &[
    ("whoever", "name the subject: the client, the caller, the process"),
    ("somebody", "name the subject"),
    ("fair weather", "without faults"),
    ("vigil", "busy poll"),
    ("toothless", "without effect"),
];

#[test]
fn prose_names_its_subjects() {
    let find = |line: &str| {
        let line = format!(" {line} ").to_ascii_lowercase();
        let line = line.replace(|letter: char| !letter.is_alphabetic(), " ");
        banned(PROSE, |word| line.contains(&format!(" {word} ")))
    };
    let sources = sources();
    let others = sources.iter().filter(|source| source.path != Path::new(file!()));
    assert_none(others.flat_map(|source| source.complaints(&source.text, find)));
}

#[test]
fn every_phony_target_has_a_rule_and_what_readers_are_told_to_make_can_be_made() {
    let makefile = fs::read_to_string("Makefile").unwrap();
    let rules: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
    let told = ["README.md", "CONTRIBUTING.md"].map(|page| fs::read_to_string(page).unwrap());
    let words = told.iter().flat_map(|page| page.split("`make ").skip(1));
    let words = words.filter_map(|rest| rest.split(['`', ' ']).next());
    let missing = phony
        .split_whitespace()
        .chain(words)
        .filter(|name| !rules.contains(name));
    assert_none(missing.map(|name| format!("Makefile: no rule for {name}")));
}

#[test]
fn the_crates_form_a_star() {
    let manifest = |name: &str| fs::read_to_string(format!("{name}/Cargo.toml")).unwrap();
    for (name, others) in [
        ("checkers", ["harness-workloads", "harness-proxy", "tokio"]),
        ("workloads", ["harness-checkers", "harness-proxy", "testcontainers"]),
        ("proxy", ["harness-checkers", "harness-workloads", "testcontainers"]),
        ("simulation", ["harness-checkers", "testcontainers", "zookeeper-client"]),
        ("tls", ["harness-proxy", "harness-workloads", "testcontainers"]),
    ] {
        for other in others {
            assert!(!manifest(name).contains(other), "{name} must not know {other}");
        }
    }
}

/// Returns the files that git knows, from the top folder; none if the source was unpacked from an archive.
fn committed() -> Vec<PathBuf> {
    let mut git = std::process::Command::new("git");
    let listed = git
        .args(["ls-files", "-z"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let names = listed.map(|output| output.stdout).unwrap_or_default();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// Built and downloaded files are not committed; corpora of fuzzers and pictures of the docs are.
#[test]
fn only_text_is_committed() {
    let bytes = |path: &PathBuf| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
    let is_text = |path: &PathBuf| bytes(path).map_or(true, |bytes| std::str::from_utf8(&bytes).is_ok());
    let files = committed().into_iter();
    let kept = ["checkers/fuzz/corpus", "docs/images"];
    let others = files.filter(|path| !kept.iter().any(|folder| path.starts_with(folder)) && !is_text(path));
    assert_none(others.map(|path| format!("{}: `git rm` it", path.display())));
}

#[test]
fn a_file_of_the_top_folder_is_one_that_readers_and_tools_look_for() {
    let top = committed().into_iter().filter(|path| path.components().count() == 1);
    let others = top.filter(|path| !TOP_FILES.split(' ').any(|name| path.as_os_str() == name));
    assert_none(others.map(|path| format!("{}: put it where it belongs", path.display())));
}

#[test]
fn the_rules_find_what_they_forbid() {
    let long = format!("fn f() {{\n{}}}\n", "    let _ = 1;\n".repeat(MAX_FUNCTION_LINES + 1));
    let source = Source {
        path: "src/x.rs".into(),
        text: long,
    };
    assert_eq!(long_functions(&source).len(), 1);
    assert_eq!(imports("use crate::run::RunOutcome; // crate::plan"), ["run", "plan"]);
    assert_eq!(
        module_of(Path::new("src/backends/zk/server.rs")).as_deref(),
        Some("backends")
    );
}
