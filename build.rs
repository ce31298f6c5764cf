//! Builds what stands between a struck process and the kernel, for harness to carry along: the library of its wall clock, and
//! the program of its disk.
//!
//! Each is one file without dependencies, so the compiler at hand makes it in a moment; what they are for is told in
//! `src/wall_clock/mod.rs` and `src/disks/mod.rs`. Where one cannot be made, harness is built without it and refuses that one
//! fault.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built.
struct Carried {
    source: &'static str,
    /// The name of the file that is made.
    name: &'static str,
    arguments: &'static [&'static str],
    fault: &'static str,
}

const CARRIED: [Carried; 2] = [
    Carried {
        source: "src/wall_clock/preload.rs",
        name: "wall_clock.so",
        arguments: &["--crate-type=cdylib", "--crate-name=wall_clock"],
        fault: "clock",
    },
    Carried {
        source: "src/disks/gate.rs",
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
        fault: "slow-disk",
    },
];

fn main() {
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder"));
    for carried in &CARRIED {
        println!("cargo::rerun-if-changed={}", carried.source);
        let out = folder.join(carried.name);
        if let Err(why) = build(carried, &out) {
            println!("cargo::warning=built without the fault `{}`: {why}", carried.fault);
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
    if system != "linux" || !["x86_64", "aarch64"].contains(&machine.as_str()) {
        return Err(format!(
            "it knows Linux on x86_64 and aarch64, not {system} on {machine}"
        ));
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
