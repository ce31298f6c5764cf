//! The library of virtual time, which `build.rs` makes and harness carries along, and the checks that it can be used.

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::cluster::leftovers::claim::Claim;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/virtual_time.so"));

/// Its name in the folder of a run.
pub const NAME: &str = "virtual_time.so";

/// Returns why no process can be kept in virtual time here, if so: a sentence with the way out.
pub fn missing() -> Option<&'static str> {
    if LIBRARY.is_empty() {
        return Some(
            "this harness was built without the library of virtual time\nhint: build it on Linux, on x86_64; or --runtime local",
        );
    }
    (!can_dispatch()).then_some(
        "this kernel does not return system calls to their process (CONFIG_GENERIC_ENTRY and Linux 5.11 or later)\nhint: --runtime local",
    )
}

/// Returns whether the kernel has syscall user dispatch, on which the library rests.
#[expect(unsafe_code, reason = "there is no safe function for it")]
fn can_dispatch() -> bool {
    const SET_DISPATCH: i32 = 59;
    const OFF: u64 = 0;
    // SAFETY: it turns off what this thread has not turned on.
    unsafe { nix::libc::prctl(SET_DISPATCH, OFF, 0, 0, 0) == 0 }
}

/// Makes a folder with the library. The error is a sentence.
pub fn claim() -> Result<Claim, String> {
    // without the name of the run, so that the environment has the same length each time
    let claim = Claim::make("virtual").map_err(|error| error.to_string())?;
    let mounted = statvfs(claim.folder()).map_err(|error| format!("{}: {error}", claim.folder().display()))?;
    if mounted.flags().contains(FsFlags::ST_NOEXEC) {
        return Err(format!(
            "no library can be loaded from {}, which is mounted with noexec\nhint: TMPDIR names another folder for temporary files",
            std::env::temp_dir().display()
        ));
    }
    std::fs::write(claim.folder().join(NAME), LIBRARY)
        .map_err(|error| format!("could not write the library: {error}"))?;
    Ok(claim)
}
