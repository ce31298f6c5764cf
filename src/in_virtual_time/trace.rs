//! Traces of families ([`begin`]): the system calls of each program in a file, so that two runs of one seed can be compared.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The variable with the folder of all traces. Without it there are none.
pub const VARIABLE: &str = "TRACE_VIRTUAL_TIME";
/// The link from the folder of a world to that of its traces.
const LINK: &str = "traces";

/// Makes the folder of the traces of a run, whose world has this folder, below that of all, if there is one.
pub fn lay_out(all: Option<OsString>, run: &str, folder: &Path) -> io::Result<()> {
    let Some(all) = all else { return Ok(()) };
    let traces = std::path::absolute(Path::new(&all).join(run))?;
    fs::create_dir_all(&traces)?;
    symlink(traces, folder.join(LINK))
}

/// Has the families in another folder write their traces where the family with this path does, if it does.
pub fn share(path: &Path, folder: &Path) -> io::Result<()> {
    match fs::read_link(path.with_file_name(LINK)) {
        Ok(traces) => symlink(traces, folder.join(LINK)),
        Err(_) => Ok(()),
    }
}

/// Makes the file of a trace, and the name by which the processes of the family with this path find it. Returns whether there are traces.
pub fn begin(path: &Path) -> io::Result<bool> {
    let Ok(traces) = fs::read_link(path.with_file_name(LINK)) else {
        return Ok(false);
    };
    let name = path.with_extension("trace");
    let trace = traces.join(name.file_name().unwrap_or_default());
    File::create(&trace)?;
    // some servers run as another user
    fs::set_permissions(&trace, Permissions::from_mode(0o666))?;
    // the name from a fork that failed
    let _ = fs::remove_file(&name);
    symlink(trace, name)?;
    Ok(true)
}
