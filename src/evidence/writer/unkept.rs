//! Files that records name and that could not be stored: those records are lost, and no others.

use super::super::bodies::Bodies;
use super::super::chain::{Hash, from_hex};
use super::super::queue::{Batch, kept};
use std::borrow::Cow;
use std::collections::HashSet;
use std::io;
use std::time::SystemTime;

#[derive(Default)]
pub(super) struct Unkept {
    hashes: HashSet<Hash>,
    /// Of the first.
    pub why: Option<io::Error>,
}

impl Unkept {
    /// Of what a batch names, for a segment that began at `began`.
    pub fn of(batch: &Batch, bodies: &Bodies, began: SystemTime) -> Self {
        let mut unkept = Self::default();
        let configs = batch.configs.iter().map(|(text, digest)| (digest, text.as_bytes()));
        for (digest, body) in batch.entries.iter().filter_map(|entry| kept(entry)).chain(configs) {
            if let Err(error) = bodies.keep(digest, body, began) {
                unkept.add(*digest, error);
            }
        }
        unkept
    }

    fn add(&mut self, hash: Hash, why: io::Error) {
        self.hashes.insert(hash);
        self.why.get_or_insert(why);
    }

    /// Those lines that name none of it.
    pub fn spare<'a>(&self, lines: &'a [u8]) -> Cow<'a, [u8]> {
        if self.hashes.is_empty() {
            return lines.into();
        }
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.filter(|line| !named(line).any(|hash| self.hashes.contains(&hash))).flatten().copied().collect()
    }
}

/// What a line names. In a text of a client's or a site's the quotation marks would be escaped.
fn named(line: &[u8]) -> impl Iterator<Item = Hash> {
    NAMES.into_iter().flat_map(move |name| {
        memchr::memmem::find_iter(line, name).filter_map(move |at| {
            let digits = line.get(at + name.len()..)?.get(..64)?;
            from_hex(str::from_utf8(digits).ok()?)
        })
    })
}

const NAMES: [&[u8]; 2] = [b"\"sha256\":\"", b"\"config\":\""];

#[cfg(test)]
mod tests {
    use super::super::super::chain::{hex, sha256};
    use super::*;

    #[test]
    fn only_what_names_it_is_left_out() {
        let [gone, kept] = [b"gone", b"kept"].map(|text| sha256(text));
        let text = |hash: &Hash| String::from_utf8(hex(hash).into()).unwrap();
        let mut unkept = Unkept::default();
        let line = |hash| format!("{{\"robots\":{{\"sha256\":\"{}\"}}}}\n", text(hash));
        let odd = format!("{{\"url\":\"\\\"config\\\":\\\"{}\",\"config\":\"short\"}}\n", text(&gone));
        let (of_gone, of_kept) = (line(&gone), line(&kept));
        let config = format!("{{\"config\":\"{}\"}}\n", text(&gone));
        let lines = [of_gone.as_str(), &of_kept, &odd, &config].concat();
        assert_eq!(unkept.spare(lines.as_bytes()), lines.as_bytes());
        unkept.add(gone, io::ErrorKind::StorageFull.into());
        assert_eq!(unkept.spare(lines.as_bytes()), [of_kept, odd].concat().as_bytes());
    }
}
