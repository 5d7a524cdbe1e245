//! Places that a user other than root controls. Root does not write there: that user can put a link to any file there, or exchange whole
//! directories, at any moment.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The first directory, link or file on a path that is not root's.
#[derive(Debug, PartialEq, Eq)]
struct ForeignPlace {
    at: PathBuf,
    /// Its owner (uid), who can put anything in the place of what follows on the path.
    user: u32,
}

/// Fails if we are root, and another user controls what is at the path. Only places that root controls are looked at before the outcome is
/// known, so no other user can change it meanwhile.
///
/// # Errors
/// `PermissionDenied`: another user controls the path.
pub fn refuse_foreign(path: &Path) -> io::Result<()> {
    let Some(ForeignPlace { at, user }) = foreign_to_us(path) else { return Ok(()) };
    let at = at.display();
    let what = format!(
        "root changes and runs nothing in {at}, which belongs to the user {user}: run this as that user, or name another directory"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Whether a file belongs to us, or to the user who controls this directory. To root, who can read every file, a file of root's in a
/// directory of another user does not count: that user may have put a link to it there.
pub fn is_ours(file: &Metadata, directory: &Path) -> bool {
    let me = rustix::process::geteuid();
    !me.is_root() && file.uid() == me.as_raw() || controller(directory) == Some(file.uid())
}

/// The user (uid) who controls this directory. `None`: the directory cannot be inspected.
pub fn controller(directory: &Path) -> Option<u32> {
    match foreign_to_us(directory) {
        Some(place) => Some(place.user),
        None if rustix::process::geteuid().is_root() => Some(0),
        None => directory.metadata().ok().map(|directory| directory.uid()),
    }
}

/// The directory that contains this path.
pub fn above(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn foreign_to_us(path: &Path) -> Option<ForeignPlace> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    // In a user namespace, the files of the machine's root belong to the user that stands for all users outside of the namespace.
    let roots = Path::new("/").metadata().map_or(0, |root| root.uid());
    foreign(path, |metadata| [0, roots].contains(&metadata.uid()))
}

/// Follows the path from the file system's root up to the first place that is not root's. Not foreign: a part that is missing, a file at
/// the end (its owner cannot exchange it), and links of the kernel's, such as /dev/stdout.
fn foreign(path: &Path, is_roots: impl Fn(&Metadata) -> bool) -> Option<ForeignPlace> {
    let parts = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<OsString>>();
    let (mut left, mut at, mut links) = (parts(&std::path::absolute(path).ok()?), PathBuf::new(), 0);
    while let Some(part) = left.pop_front() {
        if Path::new(&part).components().next() == Some(Component::ParentDir) {
            at.pop();
            continue;
        }
        let next = at.join(&part);
        if next == Path::new("/proc") {
            return None;
        }
        let found = next.symlink_metadata().ok()?;
        if !is_roots(&found) && (!left.is_empty() || found.is_dir() || found.is_symlink()) {
            return Some(ForeignPlace { at: next, user: found.uid() });
        }
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        let target = next.read_link().ok().filter(|_| links < MOST_LINKS)?;
        parts(&target).into_iter().rev().for_each(|part| left.push_front(part));
    }
    None
}

/// Maximum number of symbolic links that are followed on a path, as in the kernel.
const MOST_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn first_place_of_another_user_on_a_path_is_found() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let [own, theirs] = ["own", "theirs"].map(|name| home.path().join(name));
        for directory in [&own, &theirs] {
            fs::create_dir(directory).unwrap();
        }
        chown(&theirs, Some(61_184), None).unwrap();
        symlink("../theirs/x", own.join("link")).unwrap();
        symlink(&own, theirs.join("back")).unwrap();
        fs::write(own.join("their-file"), "").unwrap();
        chown(own.join("their-file"), Some(61_184), None).unwrap();
        symlink("loop", own.join("loop")).unwrap();
        let their_place = |at: &Path| Some(ForeignPlace { at: at.to_owned(), user: 61_184 });
        for (path, expected) in [
            (own.clone(), None),
            (own.join("missing/x"), None),
            (own.join("../theirs"), their_place(&theirs)),
            (theirs.join("missing"), their_place(&theirs)),
            (own.join("link"), their_place(&theirs)),
            (own.join("their-file"), None),
            ("/proc/self/cwd".into(), None),
            // Its owner can exchange this link.
            (theirs.join("back/x"), their_place(&theirs)),
            (own.join("loop"), None),
        ] {
            assert_eq!(foreign_to_us(&path), expected, "{}", path.display());
            assert_eq!(refuse_foreign(&path).is_err(), expected.is_some());
        }
        // A link to root's file in another user's directory.
        let secret = own.join("secret");
        fs::write(&secret, "").unwrap();
        let secret = secret.metadata().unwrap();
        assert!(is_ours(&secret, &own) && !is_ours(&secret, &theirs) && !is_ours(&secret, &theirs.join("back")));
    }
}
