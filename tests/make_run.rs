//! `make run` on machines that lack a program: the shortest way that works there, or one sentence with a hint; and `make test` at Ctrl-C.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::command::assert_says;
use crate::machine::{copy_of, of_process, until, write_program};

/// The scripts of `make run`.
const SCRIPTS: [&str; 5] = [
    "Makefile",
    "scripts/run",
    "scripts/can-build",
    "scripts/provide",
    "scripts/apt-install",
];
/// The programs of any machine.
const TOOLS: [&str; 12] = [
    "bash", "sh", "make", "dirname", "basename", "env", "id", "timeout", "mkdir", "cat", "chmod", "expand",
];
/// A `cargo` whose harness logs its calls.
const CARGO: &str = r#"echo "cargo $*" >> "$CALLS"
mkdir -p "target/$3"
printf '#!/bin/sh\necho "harness $*" >> "$CALLS"\n' > "target/$3/harness"
chmod +x "target/$3/harness""#;
const DOCKER: &str = r#"echo "docker $*" >> "$CALLS""#;

/// A copy of the scripts, on a machine with only a few programs.
struct BareMachine {
    folder: tempfile::TempDir,
}

impl BareMachine {
    fn with(programs: &[(&str, &str)]) -> Self {
        let folder = copy_of(&SCRIPTS);
        let backend = folder.path().join("src/backends/redis");
        fs::create_dir_all(&backend).unwrap();
        fs::write(backend.join("image"), "redis:7\n").unwrap();
        write_program(
            &backend.join("packages"),
            "command -v redis-server >/dev/null || echo redis-server",
        );
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for tool in TOOLS {
            let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|place| place.join(tool))
                .find(|path| path.exists());
            symlink(found.unwrap_or_else(|| panic!("{tool} is not here")), bin.join(tool)).unwrap();
        }
        for (name, script) in programs {
            write_program(&bin.join(name), script);
        }
        Self { folder }
    }

    /// Asserts that `make run` ends with this code and prints all of these sentences on stderr.
    fn assert_runs(&self, exit: i32, sentences: &[&str]) {
        self.assert_runs_with("--time 20s", exit, sentences);
    }

    fn assert_runs_with(&self, arguments: &str, exit: i32, sentences: &[&str]) {
        let mut make = Command::new("make");
        make.args(["run", "BACKEND=redis", &format!("ARGS={arguments}")])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", self.folder.path().join("bin"))
            .env("HOME", "/nonexistent")
            .env("CALLS", self.calls_file());
        assert_says(&mut make, exit, sentences);
    }

    fn assert_called(&self, call: &str) {
        let calls = self.calls();
        assert!(calls.iter().any(|made| made == call), "{calls:?}");
    }

    fn calls_file(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// Returns the logged calls, without the checks for an engine.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.calls_file()).unwrap_or_default();
        let lines = text.lines().filter(|line| *line != "docker version");
        lines.map(str::to_owned).collect()
    }
}

const COMPILER: (&str, &str) = ("cc", "");

#[test]
fn without_rust_and_engine_it_says_where_rust_comes_from() {
    let machine = BareMachine::with(&[COMPILER]);
    machine.assert_runs(2, &["there is no cargo here: https://rustup.rs"]);
    assert_eq!(machine.calls(), Vec::<String>::new());
}

#[test]
fn without_rust_and_with_an_engine_harness_is_built_and_run_in_a_container() {
    let machine = BareMachine::with(&[("docker", DOCKER)]);
    machine.assert_runs(0, &[]);
    let [built, ran] = &machine.calls()[..] else {
        panic!("{:?}", machine.calls());
    };
    assert_eq!(built, "docker build --file deploy/Dockerfile --tag harness .");
    assert!(ran.starts_with("docker run --rm --init --tmpfs /tmp --user "), "{ran}");
    let words = "harness run --backend redis --fault partition --runtime local --results /results --time 20s";
    assert!(ran.ends_with(words), "{ran}");
}

#[test]
fn an_image_that_cannot_be_built_ends_with_both_sentences() {
    let machine = BareMachine::with(&[("docker", r#"echo "docker $*" >> "$CALLS"; [ "$1" = version ]"#)]);
    machine.assert_runs(2, &["there is no cargo here", "the image cannot be built here"]);
    assert_eq!(machine.calls().len(), 1, "nothing was run");
}

#[test]
fn without_a_compiler_it_is_installed_or_named() {
    BareMachine::with(&[("cargo", CARGO)]).assert_runs(2, &["needs a C compiler", "no apt-get"]);

    let machine = BareMachine::with(&[("cargo", CARGO), ("redis-server", "")]);
    let install = machine.folder.path().join("scripts/apt-install");
    write_program(&install, r#"echo "apt-install $*" >> "$CALLS""#);
    machine.assert_runs(0, &[]);
    assert_eq!(machine.calls()[0], "apt-install gcc libc6-dev");
}

#[test]
fn without_an_engine_the_crates_for_containers_are_left_out_and_without_servers_models_run() {
    let machine = BareMachine::with(&[COMPILER, ("cargo", CARGO)]);
    machine.assert_runs(0, &["models stand in for them"]);
    assert_eq!(
        machine.calls(),
        [
            "cargo build --profile quick --locked --no-default-features",
            "harness run --backend redis --fault partition --runtime simulated --time 20s"
        ]
    );

    let machine = BareMachine::with(&[COMPILER, ("cargo", CARGO), ("redis-server", "")]);
    machine.assert_runs(0, &[]);
    assert!(machine.calls()[1].contains("--runtime auto"), "{:?}", machine.calls());
}

#[test]
fn crates_for_containers_and_for_tls_are_built_where_the_run_uses_them() {
    let machine = BareMachine::with(&[COMPILER, ("cargo", CARGO), ("docker", DOCKER)]);
    machine.assert_runs_with("--tls --time 20s", 0, &[]);
    let built = "cargo build --profile quick --locked --no-default-features --features docker --features tls";
    machine.assert_called(built);
}

#[test]
fn a_release_build_is_taken_where_there_is_one() {
    let machine = BareMachine::with(&[COMPILER, ("cargo", CARGO), ("docker", DOCKER)]);
    fs::create_dir_all(machine.folder.path().join("target/release")).unwrap();
    fs::write(machine.folder.path().join("target/release/harness"), "").unwrap();
    machine.assert_runs(0, &[]);
    machine.assert_called("cargo build --profile release --locked");
}

#[test]
fn an_interrupt_ends_the_installation_beside_the_build_of_the_tests() {
    let folder = copy_of(&["scripts/provide-and-build-tests"]);
    let scripts = folder.path().join("scripts");
    for name in ["provide", "test"] {
        write_program(&scripts.join(name), r#"echo $$ > "$0.pid"; exec sleep 600"#);
    }
    let pid = |name: &str| -> Option<u32> {
        let text = fs::read_to_string(scripts.join(name)).ok()?;
        text.trim().parse().ok()
    };
    // a runner of tests may ignore it
    let mut making = Command::new("env");
    let words = ["--default-signal=INT".into(), scripts.join("provide-and-build-tests")];
    let mut making = making.args(words).process_group(0).spawn().unwrap();
    until("the start of both", || {
        pid("provide.pid").and(pid("test.pid")).is_some()
    });
    killpg(Pid::from_raw(making.id() as i32), Signal::SIGINT).unwrap();
    making.wait().unwrap();
    let provides = pid("provide.pid").unwrap();
    until("the end of the installation", || {
        of_process(provides, "cmdline").is_empty()
    });
}
