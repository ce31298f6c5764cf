//! File ownership and permissions: whether only trusted users can have written a file or folder.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// A reason for which another user may have written a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    ForeignOwner(u32),
    WritableByOthers,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignOwner(owner) => write!(f, "belongs to user {owner}, and harness runs as user {}", own_user()),
            Self::WritableByOthers => f.write_str("can be written by other users"),
        }
    }
}

/// Returns the effective user.
pub fn own_user() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// Accepts files of the effective user that others cannot write.
pub fn check_own(about: &Metadata) -> Result<(), Distrust> {
    check(about, &[own_user()])
}

/// Accepts files of the effective user or of root that others cannot write.
pub fn check_own_or_root(about: &Metadata) -> Result<(), Distrust> {
    check(about, &[own_user(), ROOT])
}

fn check(about: &Metadata, owners: &[u32]) -> Result<(), Distrust> {
    if !owners.contains(&about.uid()) {
        return Err(Distrust::ForeignOwner(about.uid()));
    }
    // every symbolic link has mode 0777
    let mode = if about.is_symlink() { 0 } else { about.mode() };
    // a group with its user's number is that user's private group, where the usual umask is 002
    let group = mode & GROUP_WRITES != 0 && about.gid() != about.uid();
    if group || mode & OTHERS_WRITE != 0 {
        return Err(Distrust::WritableByOthers);
    }
    Ok(())
}

/// Gives a file to a user that is neither root nor the user of the tests. Returns `false` if the tests do not run as root.
#[cfg(test)]
pub fn give_away(path: &std::path::Path) -> bool {
    let root = own_user() == ROOT;
    if root {
        std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).expect("root can give files away");
    } else {
        eprintln!("skipped: files of another user, which only root can make");
    }
    root
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_others_can_write_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        for (mode, trusted) in [(0o600, true), (0o644, true), (0o646, false), (0o777, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let expected = if trusted {
                Ok(())
            } else {
                Err(Distrust::WritableByOthers)
            };
            assert_eq!(check_own(&fs::metadata(&path).unwrap()), expected, "{mode:o}");
        }
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(check_own(&fs::symlink_metadata(&link).unwrap()), Ok(()));
    }

    #[test]
    fn a_group_may_write_where_it_is_the_private_group_of_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        let group = |group| std::os::unix::fs::chown(&path, None, Some(group));
        if group(own_user()).is_ok() {
            assert_eq!(check_own(&fs::metadata(&path).unwrap()), Ok(()));
        }
        if own_user() != ROOT {
            eprintln!("skipped: files of another group, which only root can make");
            return;
        }
        group(65_534).unwrap();
        assert_eq!(
            check_own(&fs::metadata(&path).unwrap()),
            Err(Distrust::WritableByOthers)
        );
    }

    #[test]
    fn a_file_of_another_user_is_not_trusted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        if give_away(file.path()) {
            let about = fs::metadata(file.path()).unwrap();
            assert_eq!(check_own(&about), Err(Distrust::ForeignOwner(65_534)));
            assert_eq!(check_own_or_root(&about), Err(Distrust::ForeignOwner(65_534)));
        }
    }
}
