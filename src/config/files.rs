//! Opens regular files at configured paths, and our own files, which root gives to the owner of their directory. Finds the default
//! directories.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions, Permissions, metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens a regular file for reading. Never blocks on a pipe or device.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, 0)
}

/// Like [`open_file`], with these options, for a file of ours. Root, who may use another user's directory (`sudo -E`), follows no symbolic
/// link there, and gives the file to the directory's owner. Sets the file's mode to 0600.
///
/// # Errors
/// As [`open_file`]; or the file is a symbolic link, and we are root; or the file is another user's.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = open_with(options, path, own_flags())?;
    if let Some(directory) = path.parent() {
        check_owner(&file, directory)?;
        // If the system does not let root change owners, the file stays root's.
        let _ = give_to_owner(&file, directory);
    }
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Whether this open file is still at this path.
///
/// # Errors
/// The file or the path cannot be inspected; `NotFound`: nothing is at the path.
pub fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Opens the lock file of this directory, named [`LOCK`], which each process that uses the directory locks. A lock file of another user is
/// refused, as that user could keep it locked for ever.
///
/// # Errors
/// As [`open_own`]; `ResourceBusy`: something else is in the place of the lock file. The error names it.
pub fn open_lock(directory: &Path) -> io::Result<File> {
    open_lock_file(&directory.join(LOCK))
}

/// Opens a lock file of another name, as [`open_lock`] does.
pub fn open_lock_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let opened = open_own(options.read(true).write(true).create(true).truncate(false).mode(0o600), path);
    opened.map_err(|error| lock_open_error(path, error))
}

/// Checks that nothing else is in the place of the file that [`open_lock`] opens. Creates and changes nothing.
///
/// # Errors
/// `ResourceBusy`, as for [`open_lock`].
pub fn check_lock(directory: &Path) -> io::Result<()> {
    let path = directory.join(LOCK);
    let opened = open_with(OpenOptions::new().read(true).write(true), &path, own_flags());
    let checked = opened.and_then(|file| check_owner(&file, directory)).map_err(|error| lock_open_error(&path, error));
    checked.or_else(|error| if error.kind() == io::ErrorKind::ResourceBusy { Err(error) } else { Ok(()) })
}

/// Converts the error of opening this lock file: to `ResourceBusy` if something other than a file of ours is at its path.
fn lock_open_error(path: &Path, error: io::Error) -> io::Error {
    let me = rustix::process::geteuid().as_raw();
    let is_ours = |it: &Metadata| it.is_file() && it.uid() == me && it.nlink() == 1;
    let why = match path.symlink_metadata() {
        Ok(it) if it.is_symlink() => "it is a symbolic link".into(),
        Ok(it) if it.is_dir() => "it is a directory".into(),
        Ok(it) if !is_ours(&it) => error.to_string(),
        _ => return error,
    };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("{}: {why}", path.display()))
}

/// Checks that a file in this directory belongs to us or, if we are root, to the directory's owner, and that it has only one name. Anybody
/// may have put a file, or a hard link to a file elsewhere, into a directory such as /tmp.
///
/// # Errors
/// The file is another user's, has several names, or cannot be inspected.
pub fn check_owner(file: &File, directory: &Path) -> io::Result<()> {
    let (it, me) = (file.metadata()?, rustix::process::geteuid());
    let is_owners = || me.is_root() && fs::metadata(directory).is_ok_and(|directory| it.uid() == directory.uid());
    if it.is_file() && it.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it has a second name (a hard link)"));
    }
    if it.is_file() && it.uid() != me.as_raw() && !is_owners() {
        return Err(foreign_file_error());
    }
    Ok(())
}

/// Opens a secret for reading. Also returns the file's mode if users other than the owner have access, except for systemd's credentials.
///
/// # Errors
/// As [`open_file`].
pub fn open_private(path: &Path) -> io::Result<(File, Option<u32>)> {
    let file = open_file(path)?;
    let mode = file.metadata()?.mode() & 0o7777;
    let credentials = env::var_os("CREDENTIALS_DIRECTORY").filter(|directory| !directory.is_empty());
    let is_credential = credentials.is_some_and(|directory| path.parent() == Some(Path::new(&directory)));
    Ok((file, (mode & 0o077 != 0 && !is_credential).then_some(mode)))
}

/// Opens a file that this program has written in this directory, for reading. Unlike with [`open_own`], the reader may be another user.
///
/// # Errors
/// As [`open_file`]; `PermissionDenied`: the file is not [ours](is_ours).
pub fn open_ours(path: &Path, directory: &Path) -> io::Result<File> {
    let file = open_file(path)?;
    if is_ours(&file.metadata()?, directory) { Ok(file) } else { Err(foreign_file_error()) }
}

/// Whether a file belongs to us, or to the owner of this directory. Anybody who may write to the directory may have put other files there.
pub fn is_ours(file: &Metadata, directory: &Path) -> bool {
    let owner = metadata(directory).map(|directory| directory.uid());
    file.uid() == rustix::process::geteuid().as_raw() || owner.is_ok_and(|owner| file.uid() == owner)
}

/// Logs a warning about files that are not ours. `what`: the kind of content that they should have, for the message.
pub fn warn_of_foreign(files: &[PathBuf], what: &str) {
    if let Some(first) = files.first() {
        let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
        let first = first.display();
        tracing::warn!("{first}{more}: owned by another user, so not read as {what}; remove it, or change its owner");
    }
}

fn own_flags() -> libc::c_int {
    if rustix::process::geteuid().is_root() { libc::O_NOFOLLOW } else { 0 }
}

fn foreign_file_error() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user")
}

fn open_with(options: &mut OpenOptions, path: &Path, flags: libc::c_int) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags).open(path)?;
    let found = file.metadata()?;
    let kind = found.file_type();
    // `/dev/null`, by any path, counts as an empty file.
    let is_null = || kind.is_char_device() && metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
    match () {
        () if kind.is_file() || is_null() => Ok(file),
        () if kind.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Whether the path leads to this open file, through symbolic links too.
pub fn is_same(file: &File, path: &Path) -> bool {
    let number = |found: io::Result<Metadata>| found.map(|it| (it.dev(), it.ino())).ok();
    number(file.metadata()) == number(metadata(path))
}

/// The directory for state that must survive a restart: systemd's `StateDirectory=`, else the user's, else the machine's.
pub fn state_directory() -> PathBuf {
    choose(|name| env::var_os(name), rustix::process::geteuid().is_root())
}

/// The directory for data that can be recreated: the user's cache.
pub fn cache_directory() -> PathBuf {
    choose_cache(|name| env::var_os(name))
}

/// Creates the directory, mode 0700, and its parents, if missing. Removes temporary files that a killed process of ours has left there.
///
/// # Errors
/// The directory cannot be created.
pub fn private_directory(path: &Path) -> io::Result<()> {
    create_private(path)?;
    let _ = remove_abandoned(path);
    Ok(())
}

fn create_private(path: &Path) -> io::Result<()> {
    let missing: Vec<_> = path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for made in missing.iter().rev() {
        give_to_owner(&File::open(made)?, &made.parent().map_or_else(PathBuf::new, |above| above.join(".")))?;
    }
    Ok(())
}

/// Removes our temporary files that are a day old or older, if nobody else can write to the directory.
fn remove_abandoned(directory: &Path) -> io::Result<()> {
    if metadata(directory)?.mode() & 0o022 != 0 {
        return Ok(());
    }
    let is_unnamed = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(UNNAMED.as_bytes());
    for entry in fs::read_dir(directory)?.flatten().filter(is_unnamed) {
        let found = entry.metadata()?;
        let is_old = || found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= ABANDONED));
        if found.is_file() && is_ours(&found, directory) && is_old() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Creates a directory, mode 0700, if missing, in a directory where others may have put a link. Does not list its files, as there may be
/// many.
///
/// # Errors
/// The directory cannot be created, or is a symbolic link.
pub fn private_folder(path: &Path) -> io::Result<()> {
    create_private(path)?;
    let is_directory = fs::symlink_metadata(path)?.is_dir();
    is_directory.then_some(()).ok_or_else(|| io::Error::new(io::ErrorKind::NotADirectory, "it is a symbolic link"))
}

/// Logs a warning if other users can enter this directory. Does not change the mode, which the operator may have chosen. `what`: the
/// content of the directory, for the message.
pub fn warn_of_others(directory: &Path, what: &str) {
    let mode = metadata(directory).map_or(0, |found| found.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        let can = if mode & 0o022 == 0 { "see" } else { "change" };
        let directory = directory.display();
        tracing::warn!(%directory, "other users can {can} {what}: its directory has mode {mode:04o}; `chmod 700` it");
    }
}

/// Gives a file that root created to the owner of its directory, such as a service's user, who must be able to read it.
///
/// # Errors
/// The directory cannot be inspected, or the system does not let root change owners.
pub fn give_to_owner(file: &File, directory: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let directory = fs::metadata(directory)?;
    fchown(file, Some(directory.uid()), Some(directory.gid()))
}

fn choose_cache(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(env::temp_dir).join("politely")
}

fn choose(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> PathBuf {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // STATE_DIRECTORY may list several directories, separated by colons. Takes the first absolute path.
    let systemd = variable("STATE_DIRECTORY").and_then(|all| env::split_paths(&all).find(|path| path.is_absolute()));
    let users = || absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
    match systemd {
        Some(directory) => directory,
        None if root => PathBuf::from(MACHINE),
        None => users().map_or_else(|| PathBuf::from(MACHINE), |data| data.join("politely")),
    }
}

/// Prefix of the names of temporary files, which are renamed once they are complete.
pub const UNNAMED: &str = ".politely-new-";
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
pub const LOCK: &str = "lock";
/// Hint for a lock file that cannot be opened because something else is at its path.
pub const NO_LOCK: &str =
    "if no other proxy uses this directory, remove it, or make the user that runs the proxy its owner";
const MACHINE: &str = "/var/lib/politely";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use std::time::SystemTime;

    #[test]
    fn what_is_in_the_place_of_a_lock_is_named() {
        let home = tempfile::tempdir().unwrap();
        let [link, directory] = ["link", "directory"].map(|name| home.path().join(name));
        symlink(&link, &link).unwrap();
        fs::create_dir(&directory).unwrap();
        for (path, what) in [(link, "it is a symbolic link"), (directory, "it is a directory")] {
            let error = open_lock_file(&path).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string()),
                (io::ErrorKind::ResourceBusy, format!("{}: {what}", path.display()))
            );
        }
    }

    #[test]
    fn root_does_not_follow_links_in_directories_of_other_users() {
        let home = tempfile::tempdir().unwrap();
        let (link, target, file) = (home.path().join("link"), home.path().join("target"), home.path().join("file"));
        symlink(&target, &link).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            chown(home.path(), Some(61184), Some(61184)).unwrap();
        }
        let open = |path: &Path| open_own(OpenOptions::new().read(true).write(true).create(true).truncate(false), path);
        assert_eq!((open(&link).is_err(), target.exists()), (is_root, !is_root));
        let made = open(&file).unwrap().metadata().unwrap();
        assert_eq!(made.uid(), home.path().metadata().unwrap().uid());
    }

    /// Anybody can put a file into a directory such as /tmp before we do.
    #[test]
    fn files_of_other_users_are_not_opened() {
        let home = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let open = |path: &Path| open_own(OpenOptions::new().read(true).write(true).create(true).truncate(false), path);
        mode(home.path(), 0o1777);
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        mode(&file, 0o666);
        assert_eq!(open(&file).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        let link = home.path().join("link");
        fs::hard_link(&file, &link).unwrap();
        assert_eq!(open(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        fs::remove_file(&link).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(61184), Some(61184)).unwrap();
            mode(&file, 0o666);
            assert_eq!(open(&file).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            chown(home.path(), Some(61184), Some(61184)).unwrap();
            open(&file).unwrap();
        }
    }

    fn chosen(variables: &[(&str, &str)], root: bool) -> PathBuf {
        choose(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()), root)
    }

    /// An operator may use sudo to try a service first.
    #[test]
    fn directory_created_by_root_belongs_to_the_owner_of_its_parent() {
        let home = tempfile::tempdir().unwrap();
        let made = home.path().join("one/two");
        private_directory(&made).unwrap();
        private_directory(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home.path(), Some(61_184), Some(61_185)).unwrap();
            let made = home.path().join("three/four");
            private_directory(&made).unwrap();
            for made in [made.parent().unwrap(), &made] {
                let made = fs::metadata(made).unwrap();
                assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (61_184, 61_185, 0o700));
            }
        }
    }

    #[test]
    fn half_written_files_are_removed_after_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let [old, new, other] = [".politely-new-a", ".politely-new-b", ".tmpabcD3f"].map(at);
        for (file, hours) in [(&old, 25), (&new, 23), (&other, 25)] {
            let file = File::create(file).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(hours * 3600)).unwrap();
        }
        let left = |mode| {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            private_directory(directory.path()).unwrap();
            [&old, &new, &other].map(|file| file.exists())
        };
        assert_eq!(left(0o777), [true; 3], "anybody may have put them there");
        assert_eq!(left(0o755), [false, true, true], "another program may have left the last file");
    }

    #[test]
    fn cache_directory_is_below_xdg_cache_home_or_home() {
        let home = |name: &str| (name == "HOME").then(|| "/home/a".into());
        assert_eq!(choose_cache(home), PathBuf::from("/home/a/.cache/politely"));
        let both = |name: &str| Some(OsString::from(if name == "HOME" { "/home/a" } else { "/cache" }));
        assert_eq!(choose_cache(both), PathBuf::from("/cache/politely"));
    }

    #[test]
    fn state_directory_is_systemds_then_the_users_or_the_machines_for_root() {
        let user = [("HOME", "/home/a"), ("XDG_DATA_HOME", "/home/a/data")];
        assert_eq!(
            chosen(&[("STATE_DIRECTORY", "/var/lib/x:/var/lib/y"), user[0]], false),
            PathBuf::from("/var/lib/x")
        );
        assert_eq!(chosen(&user, true), PathBuf::from("/var/lib/politely"));
        assert_eq!(chosen(&user, false), PathBuf::from("/home/a/data/politely"));
        assert_eq!(chosen(&user[..1], false), PathBuf::from("/home/a/.local/share/politely"));
        assert_eq!(chosen(&[("XDG_DATA_HOME", "relative")], false), PathBuf::from("/var/lib/politely"));
    }
}
