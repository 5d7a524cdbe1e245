//! Reads whole files, up to a length that no valid file exceeds, and writes whole files atomically.

use super::files::{UNNAMED, open_file, open_ours, private_directory};
use super::foreign::{above, refuse_foreign};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

/// Reads a regular file.
///
/// # Errors
/// As [`open_file`]; or the file cannot be read, or is too long.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(open_file(path)?)
}

/// Like [`read_file`], for a file that no configuration names: anybody may have put it there.
///
/// # Errors
/// As [`read_file`]; `PermissionDenied`: the file is neither ours nor the directory's owner's.
pub fn read_ours(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(open_ours(path, above(path))?)
}

/// Reads a file named on the command line, which may be a pipe, such as a shell's `<(…)`.
///
/// # Errors
/// The file cannot be read, or is too long, such as a device or an image named by mistake.
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

/// Converts the bytes of a file with one line to text, without surrounding white space.
///
/// # Errors
/// The bytes are not UTF-8.
pub fn as_line(bytes: &[u8]) -> io::Result<String> {
    let text = std::str::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

/// Writes a file of ours atomically and durably, with this mode whatever the umask: readers find the old content until the new one is on
/// the disk. Leaves a file alone that already has this content and mode.
///
/// # Errors
/// The file cannot be written.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let is_done = |file: File| Ok(file.metadata()?.mode() & 0o7777 == mode && read_whole(file)? == content);
    if open_ours(path, above(path)).and_then(is_done).unwrap_or(false) {
        return Ok(());
    }
    let file = beside(path, content, |file| file.set_permissions(Permissions::from_mode(mode)))?;
    file.persist(path)?;
    File::open(above(path))?.sync_all()
}

/// Like [`write_whole`], for somebody else's file: the file keeps its mode and owner, and a symbolic link to it stays a link. If no new
/// file with that owner can be created, the file is overwritten in place.
///
/// # Errors
/// The file does not exist, or cannot be written.
pub fn rewrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = path.canonicalize()?;
    refuse_foreign(above(&path))?;
    let found = path.metadata()?;
    let file = beside(&path, content, |file| {
        fchown(file, Some(found.uid()), Some(found.gid()))?;
        file.set_permissions(found.permissions())
    });
    match file {
        Ok(file) => drop(file.persist(&path)?),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => fs::write(&path, content)?,
        Err(error) => return Err(error),
    }
    File::open(above(&path))?.sync_all()
}

/// Creates a file of ours durably, readable by its owner only, with this content; creates its directory too. `false`: the file exists
/// already.
///
/// # Errors
/// The file cannot be created.
pub fn write_once(path: &Path, content: &[u8]) -> io::Result<bool> {
    private_directory(above(path))?;
    match beside(path, content, |_| Ok(()))?.persist_noclobber(path) {
        Ok(_) => File::open(above(path))?.sync_all().map(|()| true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// A temporary file with this content in the directory of `path`; removed unless it is renamed. Its mode is 0600, unless `prepare` sets
/// another mode or owner.
fn beside(path: &Path, content: &[u8], prepare: impl FnOnce(&File) -> io::Result<()>) -> io::Result<NamedTempFile> {
    let mut file = unnamed(above(path))?;
    file.as_file_mut().write_all(content)?;
    prepare(file.as_file())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// A temporary file in this directory, readable by its owner only; removed unless it is renamed.
///
/// # Errors
/// The file cannot be created; or as [`refuse_foreign`].
pub fn unnamed(directory: &Path) -> io::Result<NamedTempFile> {
    refuse_foreign(directory)?;
    Builder::new().prefix(UNNAMED).tempfile_in(directory)
}

/// Maximum number of bytes read from a file.
const MOST: usize = 16 << 20;
