//! Builds the library that stands between a struck process and its wall clock, for harness to carry along.
//!
//! It is one file without dependencies, so the compiler at hand makes it in a moment; what it is for is told in
//! `src/wall_clock/mod.rs`. Where it cannot be made, harness is built without it and refuses that one fault.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/wall_clock/preload.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder")).join("wall_clock.so");
    if let Err(why) = build(&out) {
        println!("cargo::warning=built without the fault `clock`: {why}");
        std::fs::write(&out, []).expect("cargo's folder can be written");
    }
}

/// The library needs no C library and is the same for each, but a target that links statically makes no libraries.
fn target(wanted: &str, host: &str) -> String {
    let machine = |triple: &str| triple.split('-').next().unwrap_or_default().to_owned();
    let of_host = wanted.ends_with("-musl") && host.contains("-linux-") && machine(wanted) == machine(host);
    if of_host { host } else { wanted }.to_owned()
}

fn build(out: &PathBuf) -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).map_err(|_| format!("cargo does not say {name}"));
    let (system, machine) = (variable("CARGO_CFG_TARGET_OS")?, variable("CARGO_CFG_TARGET_ARCH")?);
    if system != "linux" || !["x86_64", "aarch64"].contains(&machine.as_str()) {
        return Err(format!(
            "it knows Linux on x86_64 and aarch64, not {system} on {machine}"
        ));
    }
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=wall_clock"]);
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
            SOURCE,
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
