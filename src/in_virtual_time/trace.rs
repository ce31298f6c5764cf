//! Traces of families ([`begin`]): the system calls of each program in a file, so that two runs of one seed can be compared.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The variable with the folder of the traces. Without it there are none.
pub const VARIABLE: &str = "TRACE_VIRTUAL_TIME";

/// Makes the file of a trace in this folder, and the name by which the processes of the family with this path find it.
pub fn begin(folder: &OsStr, path: &Path) -> io::Result<()> {
    let name = path.with_extension("trace");
    let folder = std::path::absolute(folder)?;
    fs::create_dir_all(&folder)?;
    let trace = folder.join(name.file_name().unwrap_or_default());
    File::create(&trace)?;
    // some servers run as another user
    fs::set_permissions(&trace, Permissions::from_mode(0o666))?;
    // the name from a fork that failed
    let _ = fs::remove_file(&name);
    symlink(trace, name)
}
