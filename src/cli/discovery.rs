//! Search for `harness.toml`: the folders that are searched, and the owners whose file is trusted.
//!
//! The file can name a program (`client = "…"`) that runs as the user of harness. So a file that was found, not named, must
//! be one that only this user or root can have written, as git demands of a repository
//! (`safe.directory`, CVE-2022-24765, <https://git-scm.com/docs/git-config#Documentation/git-config.txt-safedirectory>).

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::ownership::check_own_or_root;

pub const FILE: &str = "harness.toml";

/// Returns the path and text of the nearest `harness.toml`. A file that is not trusted is an error.
pub fn nearest() -> Result<Option<(PathBuf, String)>, String> {
    let Ok(here) = env::current_dir() else {
        return Ok(None);
    };
    let home = env::home_dir().and_then(|home| home.canonicalize().ok());
    let mut paths = searched(&here, home.as_deref()).map(|folder| folder.join(FILE));
    let found = paths.find(|path| fs::symlink_metadata(path).is_ok());
    found
        .map(|path| {
            let text = read_trusted(&path)?;
            Ok((path, text))
        })
        .transpose()
}

/// `here` and the folders above it, up to the root of its repository or the home folder; `here` alone where it is in
/// neither. Folders above those, such as the temporary folder, are shared with other users.
fn searched<'a>(here: &'a Path, home: Option<&Path>) -> impl Iterator<Item = &'a Path> {
    let is_last = |folder: &Path| home == Some(folder) || folder.join(".git").exists();
    let below_root = here.ancestors().take_while(|folder| folder.parent().is_some());
    let above = below_root.enumerate().find(|(_, folder)| is_last(folder));
    here.ancestors().take(above.map_or(0, |(steps, _)| steps) + 1)
}

fn read_trusted(path: &Path) -> Result<String, String> {
    let name = path.display();
    let unread = |error: std::io::Error| format!("could not read {name}: {error}");
    let check = |about: &fs::Metadata| {
        check_own_or_root(about).map_err(|why| {
            format!("{name} is not used because it {why}; `--config {name}` uses it, `--no-config` ignores it")
        })
    };
    check(&fs::symlink_metadata(path).map_err(unread)?)?;
    // opening a device can have effects, so the type is checked first
    let file = fs::metadata(path)
        .map_err(unread)?
        .is_file()
        .then(|| open(path))
        .transpose();
    let Some(mut file) = file.map_err(unread)? else {
        return Err(format!(
            "{name} is not a file; remove it, name a file with `--config FILE`, or ignore it with `--no-config`"
        ));
    };
    // of the open file: the path may name another one by now
    check(&file.metadata().map_err(unread)?)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unread)?;
    Ok(text)
}

/// Opens a file for reading, and waits for no writer if it is a FIFO by now.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::stat::Mode;

    use super::*;
    use crate::ownership::give_away;

    #[test]
    fn the_search_ends_at_a_repository_or_the_home_folder_and_does_not_leave_other_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let here = root.join("work/lib");
        fs::create_dir_all(&here).unwrap();
        let work = root.join("work");
        let [here, work] = [here.as_path(), work.as_path()];
        let folders = |home: Option<&Path>| searched(here, home).collect::<Vec<_>>();
        assert_eq!(folders(None), [here]);
        assert_eq!(folders(Some(Path::new("/"))), [here]);
        assert_eq!(folders(Some(root)), [here, work, root]);
        fs::create_dir(work.join(".git")).unwrap();
        assert_eq!(folders(None), [here, work]);
        assert_eq!(folders(Some(root)), [here, work]);
        assert_eq!(searched(Path::new("/"), None).collect::<Vec<_>>(), [Path::new("/")]);
    }

    #[test]
    fn a_file_that_others_can_write_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        fs::write(&path, "clients = 2").unwrap();
        assert_eq!(read_trusted(&path).unwrap(), "clients = 2");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let refused = read_trusted(&path).unwrap_err();
        assert!(refused.contains("can be written by other users"), "{refused}");
        let way_out = format!("`--config {}`", path.display());
        assert!(refused.contains(&way_out), "{refused}");
    }

    #[test]
    fn a_file_or_a_link_of_another_user_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join(FILE));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_trusted(&link).unwrap(), "");
        for path in [&link, &file] {
            if !give_away(path) {
                return;
            }
            let refused = read_trusted(path).unwrap_err();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
        fs::remove_file(&link).unwrap();
        symlink(&file, &link).unwrap();
        // an own link to it
        assert!(read_trusted(&link).unwrap_err().contains("belongs to user 65534"));
    }

    #[test]
    fn a_folder_a_fifo_or_a_device_is_refused_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (fifo, link) = (folder.path().join("fifo"), folder.path().join("zero"));
        nix::unistd::mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        symlink("/dev/zero", &link).unwrap();
        for path in [folder.path(), &fifo, &link] {
            let refused = read_trusted(path).unwrap_err();
            assert!(refused.contains("is not a file"), "{refused}");
        }
        let missing = read_trusted(&folder.path().join(FILE)).unwrap_err();
        assert!(missing.starts_with("could not read"), "{missing}");
    }
}
