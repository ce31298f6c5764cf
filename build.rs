//! Builds what stands between a process and the kernel, for harness to carry along: the library of its wall clock, the program of its
//! disk, and the library of virtual time.
//!
//! Each is a few files without dependencies, so the compiler at hand makes it in a moment; what they are for is told in
//! `src/wall_clock/mod.rs`, `src/disks/mod.rs` and `src/in_virtual_time/mod.rs`. Where one cannot be made, harness is built without
//! it and refuses what needs it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built.
struct Carried {
    source: &'static str,
    /// Its other files, or the folders where they are.
    others: &'static [&'static str],
    /// The name of the file that is made.
    name: &'static str,
    arguments: &'static [&'static str],
    machines: &'static [&'static str],
    /// What harness cannot do without it.
    without: &'static str,
}

const CARRIED: [Carried; 3] = [
    Carried {
        source: "src/wall_clock/preload.rs",
        others: &["src/wall_clock/kernel.rs"],
        name: "wall_clock.so",
        arguments: &["--crate-type=cdylib", "--crate-name=wall_clock"],
        machines: &["x86_64", "aarch64"],
        without: "the fault `clock`",
    },
    Carried {
        source: "src/disks/gate.rs",
        others: &["src/wall_clock/kernel.rs"],
        name: "gate",
        // of no C library, so that it runs in any container
        arguments: &[
            "--crate-type=bin",
            "--crate-name=gate",
            "-Crelocation-model=static",
            "-Ctarget-feature=+crt-static",
            "-Clink-arg=-nostdlib",
            "-Clink-arg=-static",
        ],
        machines: &["x86_64", "aarch64"],
        without: "the fault `slow-disk`",
    },
    Carried {
        source: "src/in_virtual_time/loaded/lib.rs",
        others: &["src/in_virtual_time"],
        name: "virtual_time.so",
        // what it calls is found when it is loaded, and not within a system call; it begins before all other libraries
        arguments: &[
            "--crate-type=cdylib",
            "--crate-name=virtual_time",
            "-Clink-arg=-Wl,-z,now",
            "-Clink-arg=-Wl,-z,initfirst",
        ],
        machines: &["x86_64"],
        without: "`--runtime virtual`",
    },
];

fn main() {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder"));
    for carried in &CARRIED {
        for file in carried.others.iter().chain([&carried.source]) {
            println!("cargo::rerun-if-changed={file}");
        }
        let out = folder.join(carried.name);
        if let Err(why) = build(carried, &out) {
            println!("cargo::warning=built without {}: {why}", carried.without);
            std::fs::write(&out, []).expect("cargo's folder can be written");
        }
    }
}

/// They need no C library and are the same for each, but a target that links statically makes no libraries.
fn target(wanted: &str, host: &str) -> String {
    let machine = |triple: &str| triple.split('-').next().unwrap_or_default().to_owned();
    let of_host = wanted.ends_with("-musl") && host.contains("-linux-") && machine(wanted) == machine(host);
    if of_host { host } else { wanted }.to_owned()
}

fn build(carried: &Carried, out: &Path) -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("cargo does not say {name}"));
    let (system, machine) = (variable("CARGO_CFG_TARGET_OS")?, variable("CARGO_CFG_TARGET_ARCH")?);
    if system != "linux" || !carried.machines.contains(&machine.as_str()) {
        let known = carried.machines.join(" and ");
        return Err(format!("it knows Linux on {known}, not {system} on {machine}"));
    }
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler.arg("--edition=2024").args(carried.arguments);
    compiler.args([
        "-Copt-level=2",
        "-Cpanic=abort",
        "-Cstrip=symbols",
        "-Clink-arg=-nostartfiles",
    ]);
    compiler
        .args([
            "--target",
            &target(&variable("TARGET")?, &variable("HOST")?),
            carried.source,
            "-o",
        ])
        .arg(out);
    let made = compiler.output().map_err(|error| error.to_string())?;
    if made.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&made.stderr).replace('\n', " "))
    }
}
