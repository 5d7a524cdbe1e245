//! Files that an operator names: read whole, up to a length that none of them has.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What is in the file, which may be a pipe.
///
/// # Errors
/// It cannot be read, or is too long: a slip has named a device or an image, and there may be no end to it.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(File::open(path)?)
}

/// The same of one that is open.
///
/// # Errors
/// As [`read_file`].
pub fn read_whole(file: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 16 MiB"));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// As [`read_file`], or it is not UTF-8.
pub fn read_line(path: &Path) -> io::Result<String> {
    let bytes = read_file(path)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(text.trim().to_owned())
}

const MOST: usize = 16 << 20;
