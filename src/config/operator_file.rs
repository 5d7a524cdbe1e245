//! Files by a path that the configuration names, or in directories of our own: regular ones alone, read whole, up to a length that
//! none of them has. What a command line names may be a pipe.

use std::fs::{File, OpenOptions, metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading. Nothing waits for the other end of a pipe, or for a device.
///
/// # Errors
/// It cannot be opened, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_regular(OpenOptions::new().read(true), path)
}

/// The same, as these options say.
///
/// # Errors
/// As [`open_file`].
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
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

/// What is in a regular file.
///
/// # Errors
/// As [`open_file`], or it cannot be read, or is too long.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(open_file(path)?)
}

/// What is in the file that a command line names, which may be a pipe, as of a shell's `<(…)`.
///
/// # Errors
/// It cannot be read, or is too long: a slip has named a device or an image, and there may be no end to it.
pub fn read_argument(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(File::open(path)?)
}

/// The same of one that is open.
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

/// The bytes of such a file as the one line that it has.
///
/// # Errors
/// It is not UTF-8.
pub fn as_line(bytes: &[u8]) -> io::Result<String> {
    let text = std::str::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

const MOST: usize = 16 << 20;
