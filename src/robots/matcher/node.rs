//! A node of the trie, read where it is in the blob, against the path that leads to it. Pure.

use super::trie::{LONG_LABEL, bytes_of_distance};

/// A path, of which words of eight bytes can be read anywhere.
pub(super) struct PathWords<'a> {
    pub bytes: &'a [u8],
    /// The last eight bytes; zeros before a shorter path.
    last: u64,
}

impl<'a> PathWords<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        let last = match bytes.last_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => bytes.iter().fold(0, |word, &byte| word >> 8 | u64::from(byte) << 56),
        };
        Self { bytes, last }
    }

    /// Eight bytes from `at` on, which is not past the end; zeros where there are less.
    #[inline]
    pub fn word(&self, at: usize) -> u64 {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(word) => u64::from_le_bytes(*word),
            None => {
                let missing = 8 * (8 - (self.bytes.len() - at)) as u32;
                self.last.checked_shr(missing).unwrap_or(0)
            }
        }
    }
}

/// A node of a trie whose label the path has.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// Where it begins.
    at: usize,
    /// Where what leads to its children is.
    links: usize,
    /// How many bytes of the path lead here.
    pub end: usize,
    flags: u8,
    children: usize,
}

impl Node {
    #[inline]
    pub fn read(blob: &[u8], at: usize, path: &PathWords<'_>, from: usize) -> Option<Self> {
        let head: &[u8; 3 + 8] = blob.get(at..)?.first_chunk()?;
        let [flags, label, children, word @ ..] = *head;
        let (mut label, mut start) = (usize::from(label), at + 3);
        // Most labels are short; then one word is compared.
        if flags & LONG_LABEL == 0 {
            let differing = u64::from_le_bytes(word) ^ path.word(from);
            if (differing.trailing_zeros() as usize) < 8 * label {
                return None;
            }
        } else {
            if label == 0xFF {
                label = u16::from_le_bytes([word[0], word[1]]).into();
                start += 2;
            }
            if !path.bytes.get(from..)?.starts_with(blob.get(start..start + label)?) {
                return None;
            }
        }
        Some(Self { at, links: start + label, end: from + label, flags, children: children.into() })
    }

    #[inline]
    pub fn holds(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Where the rules are that end here.
    #[inline]
    pub fn payload(&self) -> usize {
        self.links + self.children + self.children * bytes_of_distance(self.flags)
    }

    /// The child that the path's next byte leads to, and how many bytes are taken then.
    #[inline]
    pub fn child(&self, blob: &[u8], path: &PathWords<'_>) -> Option<(usize, usize)> {
        if self.children == 0 {
            return None;
        }
        let next = *path.bytes.get(self.end)?;
        let links = blob.get(self.links..)?;
        let place = position(links, self.children, next)?;
        let distance = match bytes_of_distance(self.flags) {
            1 => usize::from(*links.get(self.children + place)?),
            2 => u16::from_le_bytes(*links.get(self.children + 2 * place..)?.first_chunk()?).into(),
            _ => u32::from_le_bytes(*links.get(self.children + 4 * place..)?.first_chunk()?) as usize,
        };
        Some((self.at - distance, self.end + 1))
    }
}

/// Where a byte is among the first `count`, eight at a time; there are bytes to read beyond them.
#[inline]
pub(super) fn position(bytes: &[u8], count: usize, wanted: u8) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let mut rest = bytes;
    let mut place = 0;
    loop {
        let (word, after) = rest.split_first_chunk()?;
        let differing = u64::from_le_bytes(*word) ^ (ONES * u64::from(wanted));
        // The lowest of the high bits that are set marks the first byte without a difference.
        let zeros = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
        if zeros != 0 {
            place += zeros.trailing_zeros() as usize / 8;
            return (place < count).then_some(place);
        }
        place += 8;
        if place >= count {
            return None;
        }
        rest = after;
    }
}
