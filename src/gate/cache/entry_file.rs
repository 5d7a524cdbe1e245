//! The file of a stored answer: the head, with lengths and a checksum, then the body in pieces, each followed by its checksum. It is
//! renamed when complete, without fsync: if a power cut tears a write, the checksums detect that, and the answer is a cache miss.

use super::index::on_disk;
use crate::config::{open_ours, private_folder};
use crate::policy::cache::StoredHead;
use bytes::Bytes;
use ring::digest::{Context, SHA256};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Truncated SHA-256, to detect damage.
type EntrySum = [u8; 16];

/// An open file, with its head. All reads for one request share its descriptor: the limits on connections (`proxy::descriptors`) leave none
/// for more.
pub struct OpenEntry {
    pub head: StoredHead,
    pub body_len: u64,
    file: File,
    body_at: u64,
}

impl OpenEntry {
    /// Opens a file. `Ok(None)`: it is damaged, or of another version. `PermissionDenied`: it is not [ours](crate::config::is_ours).
    pub fn open(path: &Path, cache: &Path) -> io::Result<Option<Self>> {
        let file = open_ours(path, cache)?;
        let length = file.metadata()?.len();
        let mut start = vec![0; usize::try_from(length.min(FIRST_READ)).expect("`FIRST_READ` fits into usize")];
        file.read_exact_at(&mut start, 0)?;
        let Some((record_sum, record_len)) = prologue(&start) else { return Ok(None) };
        let body_at = (PROLOGUE + record_len) as u64;
        if record_len > MOST_RECORD || body_at > length {
            return Ok(None);
        }
        if start.len() < PROLOGUE + record_len {
            start.resize(PROLOGUE + record_len, 0);
            file.read_exact_at(&mut start, 0)?;
        }
        let record = &start[PROLOGUE..PROLOGUE + record_len];
        let Some((head, body_len)) = decode(record).filter(|_| sum(record) == record_sum) else { return Ok(None) };
        let is_whole = body_len <= length && body_at + stored_len(body_len) == length;
        Ok(is_whole.then(|| OpenEntry { head, body_len, file, body_at }))
    }

    /// The piece of the body that begins at `at`. `Ok(None)`: it is damaged.
    pub fn piece(&self, at: u64) -> io::Result<Option<Bytes>> {
        let length = usize::try_from(PIECE.min(self.body_len - at)).expect("a piece fits into usize");
        let mut bytes = vec![0; length + SUM];
        self.file.read_exact_at(&mut bytes, self.body_at + place(at))?;
        let is_sound = sum(&bytes[..length]) == bytes[length..];
        bytes.truncate(length);
        Ok(is_sound.then(|| bytes.into()))
    }
}

/// An answer being written. If it is dropped before it is renamed, its file is removed.
pub struct EntryWriter {
    file: File,
    /// The file's place until it is renamed. If the file cannot be removed from there, the next start removes it.
    path: TempPath,
    head: StoredHead,
    body_at: u64,
    body_len: u64,
    /// Checksum of the current piece.
    sum: Context,
    /// Length of the whole file; set when it is finished.
    length: u64,
}

impl EntryWriter {
    /// Creates the file. `path`: its place until it is complete.
    pub fn create(path: PathBuf, head: &StoredHead) -> io::Result<Self> {
        let start = encode(head, 0);
        if start.len() > PROLOGUE + MOST_RECORD {
            return Err(io::Error::other("the head is too long"));
        }
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        // From here on, the file is removed on failure.
        let path = TempPath::try_from_path(path)?;
        file.write_all(&start)?;
        let (head, body_at) = (head.clone(), start.len() as u64);
        Ok(EntryWriter { file, path, head, body_at, body_len: 0, sum: Context::new(&SHA256), length: 0 })
    }

    /// Appends to the body. After a failure, the call can be repeated.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let (mut written, mut sum, mut length) =
            (Vec::with_capacity(bytes.len() + SUM), self.sum.clone(), self.body_len);
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(bytes.len().min((PIECE - length % PIECE) as usize));
            written.extend_from_slice(piece);
            sum.update(piece);
            length += piece.len() as u64;
            if length.is_multiple_of(PIECE) {
                written.extend(short(std::mem::replace(&mut sum, Context::new(&SHA256))));
            }
            bytes = rest;
        }
        self.file.write_all_at(&written, self.body_at + place(self.body_len))?;
        (self.sum, self.body_len) = (sum, length);
        Ok(())
    }

    /// Completes the file after its body. After a failure, the call can be repeated.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.body_len.is_multiple_of(PIECE) {
            self.file.write_all_at(&short(self.sum.clone()), self.body_at + place(self.body_len))?;
        }
        self.end(self.body_len)
    }

    /// Completes the file with the body of another file.
    pub fn finish_as(&mut self, other: &OpenEntry) -> io::Result<()> {
        let mut from = &other.file;
        from.seek(SeekFrom::Start(other.body_at))?;
        self.file.seek(SeekFrom::Start(self.body_at))?;
        // The copied bytes include the checksums.
        if io::copy(&mut from, &mut self.file)? != stored_len(other.body_len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end(other.body_len)
    }

    fn end(&mut self, body_len: u64) -> io::Result<()> {
        let start = encode(&self.head, body_len);
        self.length = start.len() as u64 + stored_len(body_len);
        self.file.write_all_at(&start, 0)
    }

    /// Size on disk.
    pub fn size(&self) -> u64 {
        on_disk(self.length)
    }

    /// Gives the finished file its name.
    pub fn rename(&mut self, name: &Path) -> io::Result<()> {
        name.parent().map_or(Ok(()), private_folder)?;
        fs::rename(&self.path, name)?;
        self.path.disable_cleanup(true);
        Ok(())
    }
}

/// The checksum and the length of the record, if the file is of this version.
fn prologue(bytes: &[u8]) -> Option<(EntrySum, usize)> {
    let (sum, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
    Some((*sum, u32::from_le_bytes(*rest.first_chunk()?) as usize))
}

fn sum(bytes: &[u8]) -> EntrySum {
    let mut sum = Context::new(&SHA256);
    sum.update(bytes);
    short(sum)
}

/// Offset of a byte of the body in the file, relative to the body's beginning. Greater than `at` by the checksums before it.
fn place(at: u64) -> u64 {
    at + at / PIECE * SUM as u64
}

/// Length of a body in the file, with its checksums, in bytes.
fn stored_len(body_len: u64) -> u64 {
    body_len + body_len.div_ceil(PIECE) * SUM as u64
}

/// Truncates a SHA-256.
fn short(sum: Context) -> EntrySum {
    *sum.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

/// Encodes the part before the body. The body's length has a fixed width, as it is overwritten after the body has been written.
fn encode(head: &StoredHead, body_len: u64) -> Vec<u8> {
    let record = postcard::to_allocvec(&(body_len.to_le_bytes(), head)).expect("writing to memory cannot fail");
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&MAGIC[..], &sum(&record), &length, &record].concat()
}

fn decode(bytes: &[u8]) -> Option<(StoredHead, u64)> {
    let (body_len, head): ([u8; 8], _) = postcard::from_bytes(bytes).ok()?;
    Some((head, u64::from_le_bytes(body_len)))
}

/// First bytes of a file. They change with the file format, and a file of another version is a miss.
const MAGIC: &[u8; 8] = b"politec4";
const SUM: usize = size_of::<EntrySum>();
const PROLOGUE: usize = MAGIC.len() + SUM + 4;
/// Bytes of a body for each checksum.
pub const PIECE: u64 = 128 * 1024;
/// Bytes of the first read; most heads are shorter.
const FIRST_READ: u64 = 8 * 1024;
/// Maximum length of an encoded head, in bytes.
const MOST_RECORD: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cache::Received;
    use std::time::{Duration, SystemTime};

    fn head(field: &str) -> StoredHead {
        let received = Received {
            url: b"http://a.example/",
            status: 200,
            version: 11,
            at: SystemTime::UNIX_EPOCH,
            delay: Duration::ZERO,
            fetch: "x-1",
        };
        let vary = |name: &[u8]| (name == b"accept").then(|| b"text/html".to_vec());
        StoredHead::new(
            &received,
            |take| {
                take(b"vary", b"accept, x");
                take(b"x-field", field.as_bytes());
            },
            vary,
        )
    }

    fn written(folder: &Path, head: &StoredHead, body: &[u8]) -> PathBuf {
        let mut writer = EntryWriter::create(folder.join("tmp"), head).unwrap();
        body.chunks(7).for_each(|piece| writer.write(piece).unwrap());
        let name = folder.join("ab").join("entry");
        writer.finish().unwrap();
        writer.rename(&name).unwrap();
        assert_eq!(writer.size(), on_disk(name.metadata().unwrap().len()));
        assert!(!folder.join("tmp").exists());
        name
    }

    #[test]
    fn entry_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        for field in ["short".to_owned(), "x".repeat(60_000)] {
            let name = written(folder.path(), &head(&field), b"the body");
            let entry = OpenEntry::open(&name, folder.path()).unwrap().unwrap();
            assert_eq!(entry.head, head(&field));
            assert_eq!(entry.piece(0).unwrap().unwrap(), "the body");
        }
    }

    /// The encoding must not change without a new `MAGIC`, as files of earlier processes are still read.
    #[test]
    fn head_encoding_is_its_fields_in_order() {
        let head = head("x");
        let StoredHead { url, status, version, fields, selected_by, received, initial_age, fetch } = &head;
        let fields = (url, status, version, fields, selected_by, received, initial_age, fetch);
        assert_eq!(postcard::to_allocvec(&head), postcard::to_allocvec(&fields));
    }

    #[test]
    fn body_is_copied_under_a_new_head() {
        let folder = tempfile::tempdir().unwrap();
        let name = written(folder.path(), &head("old"), b"the body");
        let old = OpenEntry::open(&name, folder.path()).unwrap().unwrap();
        let mut writer = EntryWriter::create(folder.path().join("tmp"), &head("a longer one")).unwrap();
        writer.finish_as(&old).unwrap();
        writer.rename(&name).unwrap();
        let new = OpenEntry::open(&name, folder.path()).unwrap().unwrap();
        assert_eq!((&new.head, new.body_len), (&head("a longer one"), old.body_len));
        assert_eq!(new.piece(0).unwrap().unwrap(), "the body");
    }

    #[test]
    fn each_piece_has_its_own_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let most = 2 * PIECE as usize + 1;
        let body: Vec<u8> = (0..most).map(|at| (at % 251) as u8).collect();
        for length in [0, 1, PIECE as usize - 1, PIECE as usize, PIECE as usize + 1, most] {
            let mut writer = EntryWriter::create(folder.path().join("tmp"), &head("")).unwrap();
            body[..length].chunks(100_000).for_each(|piece| writer.write(piece).unwrap());
            writer.finish().unwrap();
            let name = folder.path().join("ab").join("entry");
            writer.rename(&name).unwrap();
            let entry = OpenEntry::open(&name, folder.path()).unwrap().unwrap();
            for (at, piece) in body[..length].chunks(PIECE as usize).enumerate() {
                assert_eq!(entry.piece(at as u64 * PIECE).unwrap().unwrap(), piece);
            }
            let last = fs::metadata(&name).unwrap().len() - 1 - SUM as u64;
            let damaged = File::options().write(true).open(&name).unwrap();
            damaged.write_all_at(&[0xff], last).unwrap();
            let is_sound = |at: u64| entry.piece(at).unwrap().is_some();
            let pieces =
                (0..length.div_ceil(PIECE as usize) as u64).map(|piece| is_sound(piece * PIECE)).collect::<Vec<_>>();
            assert!(pieces.iter().rev().skip(1).all(|is_sound| *is_sound) && pieces.last() != Some(&true), "{length}");
        }
    }

    #[test]
    fn dropped_writer_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EntryWriter::create(folder.path().join("tmp"), &head("")).unwrap();
        writer.write(b"x").unwrap();
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// Damage to the body shows when it is read.
    #[test]
    fn file_damaged_or_truncated_before_its_body_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let name = written(folder.path(), &head("value"), b"the body");
        let whole = fs::read(&name).unwrap();
        let body_at = whole.len() - 8 - SUM;
        for length in 0..whole.len() {
            fs::write(&name, &whole[..length]).unwrap();
            assert!(matches!(OpenEntry::open(&name, folder.path()), Ok(None)), "{length}");
        }
        for at in 0..body_at {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&name, &damaged).unwrap();
            assert!(matches!(OpenEntry::open(&name, folder.path()), Ok(None)), "{at}");
        }
        fs::write(&name, [&whole[..], b"x"].concat()).unwrap();
        assert!(matches!(OpenEntry::open(&name, folder.path()), Ok(None)));
    }
}
