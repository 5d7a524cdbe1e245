//! Reads files at paths from the configuration, or in our own directories: only regular files, and only up to a length that no valid
//! file has. A file named on the command line may be a pipe.

use super::paths::give_to_owner;
use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading. Never blocks on a pipe or device.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path)
}

/// Like [`open_file`], with these options.
///
/// # Errors
/// As [`open_file`].
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    open_with(options, path, 0)
}

/// Like [`open_regular`], a file of ours in a directory that may be another user's, where root works for that user (`sudo -E`): root follows
/// no symbolic link there, and gives what it makes to the directory's owner.
///
/// # Errors
/// As [`open_file`]; or the file is a symbolic link, and we are root.
pub fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    if !rustix::process::geteuid().is_root() {
        return open_regular(options, path);
    }
    let file = open_with(options, path, libc::O_NOFOLLOW)?;
    if let Some(directory) = path.parent() {
        // Where the system does not let root do so, the file is root's.
        let _ = give_to_owner(&file, directory);
    }
    Ok(file)
}

fn open_with(options: &mut OpenOptions, path: &Path, flags: libc::c_int) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags).open(path)?;
    let found = file.metadata()?;
    let kind = found.file_type();
    // An empty file by another name.
    let is_null = || kind.is_char_device() && metadata("/dev/null").is_ok_and(|null| null.rdev() == found.rdev());
    match () {
        () if kind.is_file() || is_null() => Ok(file),
        () if kind.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        () => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Reads a regular file.
///
/// # Errors
/// As [`open_file`]; or the file cannot be read, or is too long.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(open_file(path)?)
}

/// Reads a file named on the command line, which may be a pipe, such as a shell's `<(…)`.
///
/// # Errors
/// The file cannot be read, or is too long: it may be a device or an image named by mistake.
pub fn read_argument(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(File::open(path)?)
}

/// Like [`read_argument`], for an open file.
///
/// # Errors
/// As [`read_argument`].
pub fn read_whole(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB"));
    }
    Ok(bytes)
}

/// The bytes of such a file as its only line.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn as_line(bytes: &[u8]) -> io::Result<String> {
    let text = std::str::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

const MOST: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    #[test]
    fn root_follows_no_link_in_anothers_directory_and_leaves_it_what_it_makes() {
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
}
