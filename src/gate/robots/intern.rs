//! Keeps each robots.txt, tdmrep.json or licence file once in memory, however many authorities have it: most files are one of a few that
//! content management systems write.

use crate::evidence::sha256;
use crate::gate::store::{FileDigest, first_half};
use crate::policy::{Access, SiteFile};
use crate::robots::{ParseOptions, RobotsTxt, RslFile, TdmRep};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The files in use.
#[derive(Default)]
pub(super) struct Intern(Mutex<Files>);

#[derive(Default)]
struct Files {
    /// The files, by content.
    held: HashMap<ContentId, Access>,
    /// Number of files, by kind.
    counts: [usize; SiteFile::COUNT],
    /// Memory of all files in bytes, as counted when each was read or last swept.
    bytes: usize,
    /// Files read since the last sweep.
    read: usize,
}

/// Digest of a file's bytes, and fingerprint of the options it was parsed with.
type ContentId = (FileDigest, u64);

impl Intern {
    /// The parsed file for this body.
    pub fn intern(&self, file: SiteFile, body: &[u8], options: &ParseOptions) -> Access {
        let whole = sha256(body);
        let read = || {
            let read = parsed(file, body, |body| RobotsTxt::parse_with(body, options));
            // Usually the whole body is kept. Then the digest need not be computed again.
            if read.source() == Some(body) {
                read.digest_by(|_| whole);
            }
            Some(read)
        };
        // Bytes beyond the limit are ignored by the parser, but count for the digest.
        self.find(file, first_half(&whole), options, read).expect("there is a body")
    }

    /// The file with this digest, for a copy from the store or the fleet. Calls `body` only if the file is not in memory. `None`: `body`
    /// returned nothing.
    pub fn named(
        &self,
        file: SiteFile,
        name: FileDigest,
        options: &ParseOptions,
        body: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Access> {
        let read = |body: Vec<u8>| parsed(file, &body, |body| RobotsTxt::parse_again(body, options));
        self.find(file, name, options, || body().map(read))
    }

    fn find(
        &self,
        file: SiteFile,
        name: FileDigest,
        options: &ParseOptions,
        read: impl FnOnce() -> Option<Access>,
    ) -> Option<Access> {
        let content = (name, fingerprint(file, options));
        if let Some(known) = self.0.lock().held.get(&content) {
            return Some(known.clone());
        }
        let read = read()?;
        if let Access::Rules(robots) = &read
            && robots.source().len() > LONG
        {
            // Compiled here, usually on a thread that serves no requests, instead of in the first decision.
            robots.compile();
        }
        let mut files = self.0.lock();
        // Another task may have been faster.
        if let Some(known) = files.held.get(&content) {
            return Some(known.clone());
        }
        files.read += 1;
        files.count(&read);
        files.held.insert(content, read.clone());
        Some(read)
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Whether the byte count may be outdated, as rules take memory only when they are compiled, on first use.
    pub fn is_stale(&self) -> bool {
        let files = self.0.lock();
        files.read > LEAST_STALE && files.read > files.held.len() / 4
    }

    /// Number of distinct files of this kind.
    pub fn count(&self, file: SiteFile) -> usize {
        self.0.lock().counts[file.kind()]
    }

    /// Drops the files that no authority uses, and recounts the others.
    pub fn sweep(&self) {
        let files = &mut *self.0.lock();
        let mut held = std::mem::take(files).held;
        held.retain(|_, file| file.holders() > 1);
        if held.capacity() > 4 * held.len() {
            held.shrink_to_fit();
        }
        held.values().for_each(|file| files.count(file));
        files.held = held;
    }
}

impl Files {
    fn count(&mut self, file: &Access) {
        let kind = match file {
            Access::Rules(_) | Access::Missing => SiteFile::Robots,
            Access::Reservations(_) => SiteFile::TdmRep,
            Access::Licenses(_) => SiteFile::License([0; 8]),
        };
        self.counts[kind.kind()] += 1;
        self.bytes += cost(file);
    }
}

fn parsed(file: SiteFile, body: &[u8], robots: impl FnOnce(&[u8]) -> RobotsTxt) -> Access {
    match file {
        SiteFile::Robots => Access::Rules(robots(body)),
        SiteFile::TdmRep => Access::Reservations(TdmRep::parse(body).into()),
        SiteFile::License(_) => Access::Licenses(RslFile::parse(body).into()),
    }
}

fn cost(file: &Access) -> usize {
    file.heap_size() + ROW
}

/// Fingerprint of the parse options, which change only with the configuration.
fn fingerprint(file: SiteFile, options: &ParseOptions) -> u64 {
    let mut hasher = DefaultHasher::new();
    (file.kind(), options).hash(&mut hasher);
    hasher.finish()
}

/// Length in bytes that takes about 100 µs to parse, and a millisecond at worst. Longer files are parsed on threads that serve no
/// requests.
pub(super) const LONG: usize = 16 << 10;
/// The byte count can be outdated only if more files than this were read since the last sweep.
const LEAST_STALE: usize = 100;
/// Bytes of a file's row in the table, which is two thirds full on average.
const ROW: usize = size_of::<(ContentId, Access)>() * 3 / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::store::digest;
    use crate::robots::Precedence;

    const BODY: &[u8] = b"User-agent: *\nDisallow: /\n";

    #[test]
    fn identical_files_are_held_once_and_counted_once() {
        let files = Intern::default();
        let held: Vec<_> = (0..100).map(|_| files.intern(SiteFile::Robots, BODY, &ParseOptions::default())).collect();
        assert_eq!((files.count(SiteFile::Robots), held[0].holders()), (1, 101));
        assert_eq!(files.bytes(), cost(&held[0]));
        files.intern(SiteFile::Robots, b"# another", &ParseOptions::default());
        assert_eq!(files.count(SiteFile::Robots), 2);
    }

    /// The digest is needed whenever the file is stored or recorded.
    #[test]
    fn parsed_file_keeps_the_digest_of_its_bytes() {
        for (body, is_known) in [(BODY, true), (b"\xff\xfeU\0", false)] {
            let read = Intern::default().intern(SiteFile::Robots, body, &ParseOptions::default());
            let mut is_made = false;
            let digest = *read
                .digest_by(|source| {
                    is_made = true;
                    sha256(source)
                })
                .unwrap();
            assert_eq!((!is_made, digest), (is_known, sha256(read.source().unwrap())));
        }
    }

    /// A long file is compiled when it is parsed, whether it was fetched or stored.
    #[test]
    fn long_file_is_compiled_when_parsed_and_a_short_one_on_first_use() {
        let options = ParseOptions::default();
        let piece = "User-agent: a\nDisallow: /*%5Bx*y\nContent-Usage: /x train-ai=n\nUser-agent: b\nContent-Signal: ai-train=no\n";
        for (count, is_compiled) in [(1, false), (1_000, true)] {
            let body = piece.repeat(count).into_bytes();
            for is_fresh in [true, false] {
                let files = Intern::default();
                let Some(Access::Rules(robots)) = (match is_fresh {
                    true => Some(files.intern(SiteFile::Robots, &body, &options)),
                    false => files.named(SiteFile::Robots, digest(&body), &options, || Some(body.clone())),
                }) else {
                    panic!("the file is a robots.txt")
                };
                assert_eq!(robots.knows_faults(), is_compiled, "{count}");
                let before = robots.heap_size();
                robots.rules_for(&["a", "b"]).preferences_for(b"/x");
                robots.rules_for(&["a", "b"]).check("/x");
                assert_eq!(robots.heap_size() == before, is_compiled, "{count}");
            }
        }
    }

    /// Converted to UTF-8, the file is longer than the limit for fetched files.
    #[test]
    fn utf16_file_that_is_too_long_as_utf8_is_parsed_again_to_its_end() {
        let text =
            format!("\u{feff}User-agent: *\n{}Disallow: /last", format!("#{}\n", "\u{4e2d}".repeat(98)).repeat(2_550));
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let (files, options) = (Intern::default(), ParseOptions::default());
        assert!(utf16.len() < options.max_size && text.len() > options.max_size);
        let read = files.intern(SiteFile::Robots, &utf16, &options);
        let source = read.source().unwrap().to_vec();
        let again = Intern::default().named(SiteFile::Robots, digest(&source), &options, || Some(source)).unwrap();
        for read in [read, again] {
            let Access::Rules(robots) = read else { panic!("the file is a robots.txt") };
            assert!(!robots.rules_for(&["a"]).check("/last").is_allowed());
        }
    }

    #[test]
    fn unused_files_are_swept() {
        let files = Intern::default();
        let kept = files.intern(SiteFile::Robots, BODY, &ParseOptions::default());
        drop(files.intern(SiteFile::Robots, b"# gone", &ParseOptions::default()));
        files.sweep();
        assert_eq!((files.count(SiteFile::Robots), files.bytes()), (1, cost(&kept)));
        drop(kept);
        files.sweep();
        assert_eq!((files.count(SiteFile::Robots), files.bytes()), (0, 0));
    }

    #[test]
    fn file_parsed_with_other_options_is_a_separate_file() {
        let files = Intern::default();
        let dialect = ParseOptions { precedence: Precedence::FirstMatch, ..ParseOptions::default() };
        let _both = (
            files.intern(SiteFile::Robots, BODY, &ParseOptions::default()),
            files.intern(SiteFile::Robots, BODY, &dialect),
        );
        assert_eq!(files.count(SiteFile::Robots), 2);
        let other = files.intern(SiteFile::TdmRep, BODY, &ParseOptions::default());
        assert_eq!((files.count(SiteFile::Robots), files.count(SiteFile::TdmRep)), (2, 1));
        files.sweep();
        assert_eq!((files.count(SiteFile::Robots), files.count(SiteFile::TdmRep)), (2, 1));
        assert!(matches!(other, Access::Reservations(_)));
    }

    #[test]
    fn known_digest_needs_no_body() {
        let files = Intern::default();
        let options = ParseOptions::default();
        assert!(files.named(SiteFile::Robots, digest(BODY), &options, || None).is_none());
        let _kept = files.intern(SiteFile::Robots, BODY, &options);
        assert!(files.named(SiteFile::Robots, digest(BODY), &options, || unreachable!("a file in memory")).is_some());
    }
}
