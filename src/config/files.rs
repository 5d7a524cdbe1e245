//! Opens regular files at configured paths, and our own files. Finds the default directories.

use super::foreign::{is_ours, refuse_foreign};
use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, DirEntry, File, Metadata, OpenOptions, Permissions, metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Opens a regular file for reading. Never blocks on a pipe or device.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path, 0)
}

/// Like [`open_file`], with these options, for a file of ours. Sets the file's mode to 0600.
///
/// # Errors
/// As [`open_file`] and [`refuse_foreign`]; or the file is a symbolic link, another user's, or has a second name (a hard link).
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    refuse_foreign(path)?;
    let file = open_with(options, path, libc::O_NOFOLLOW)?;
    check_owner(&file)?;
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
    // Not as an error of the lock file, which the user would be told to remove.
    refuse_foreign(path)?;
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
    let opened = open_with(OpenOptions::new().read(true).write(true), &path, libc::O_NOFOLLOW);
    // Root may check the configuration of another user's proxy.
    let check = |file: File| {
        let it = file.metadata()?;
        if it.nlink() == 1 && is_ours(&it, directory) { Ok(()) } else { check_owner(&file) }
    };
    let checked = opened.and_then(check).map_err(|error| lock_open_error(&path, error));
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

/// Checks that a file belongs to us, and that it has only one name. Anybody may have put a file, or a hard link to a file elsewhere, into a
/// directory such as /tmp.
///
/// # Errors
/// The file is another user's, has several names, or cannot be inspected.
fn check_owner(file: &File) -> io::Result<()> {
    let it = file.metadata()?;
    if it.is_file() && it.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it has a second name (a hard link)"));
    }
    if it.is_file() && it.uid() != rustix::process::geteuid().as_raw() {
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

/// Logs a warning about files that are not ours. `what`: the kind of content that they should have, for the message.
pub fn warn_of_foreign(files: &[PathBuf], what: &str) {
    if let Some(first) = files.first() {
        let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
        let first = first.display();
        tracing::warn!("{first}{more}: owned by another user, so not read as {what}; remove it, or change its owner");
    }
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
    if !path.exists() {
        refuse_foreign(path)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes our temporary files that are a day old or older, if nobody else can write to the directory.
fn remove_abandoned(directory: &Path) -> io::Result<()> {
    refuse_foreign(directory)?;
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
    use crate::config::{unnamed, write_once, write_whole};
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
    fn links_in_the_place_of_our_files_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (link, target) = (home.path().join("link"), home.path().join("target"));
        symlink(&target, &link).unwrap();
        fs::write(&target, "").unwrap();
        let open = |path: &Path| open_own(OpenOptions::new().read(true).write(true), path);
        assert!(open(&target).is_ok() && open(&link).is_err());
    }

    /// The directory's owner could make root overwrite any file, by links or by exchanging directories.
    #[test]
    fn root_writes_nothing_in_a_directory_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        chown(home.path(), Some(61_184), None).unwrap();
        let path = home.path().join("x");
        let mut options = OpenOptions::new();
        let errors = [
            open_own(options.read(true).write(true).create(true).truncate(false), &path).map(drop),
            open_lock(home.path()).map(drop),
            private_directory(&path),
            private_folder(&path),
            write_whole(&path, b"", 0o600),
            write_once(&path, b"").map(drop),
            unnamed(home.path()).map(drop),
        ];
        for error in errors {
            let said = error.unwrap_err().to_string();
            assert!(said.contains("belongs to the user 61184: run this as that user"), "{said}");
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        private_directory(home.path()).unwrap();
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
        }
    }

    fn chosen(variables: &[(&str, &str)], root: bool) -> PathBuf {
        choose(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()), root)
    }

    #[test]
    fn private_directory_is_created_for_its_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let made = home.path().join("one/two");
        private_directory(&made).unwrap();
        private_directory(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o700);
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
