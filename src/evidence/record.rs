//! Makes the lines of the chain: JSON objects, each of which begins with the SHA-256 of the line before it, including that line's end.

use crate::policy::Access;
use crate::rfc3339;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::SystemTime;

/// A SHA-256 digest.
pub type Hash = [u8; 32];

/// Computes the SHA-256 of any bytes.
pub fn sha256(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The SHA-256 of a site's file, computed from the bytes that were read. `None`: the site has no such file.
pub fn digest_of(access: &Access) -> Option<&Hash> {
    access.digest_by(sha256)
}

/// Formats a hash in hexadecimal. Called three times per record, so written for the compiler to vectorise.
pub(super) fn hex(hash: &Hash) -> [u8; 64] {
    let digit = |half: u8| half + b'0' + if half > 9 { b'a' - b'9' - 1 } else { 0 };
    let mut text = [0; 64];
    for (two, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
        *two = [digit(byte >> 4), digit(byte & 15)];
    }
    text
}

/// Formats a hash in hexadecimal, as a string.
pub fn digits(hash: &Hash) -> String {
    String::from_utf8_lossy(&hex(hash)).into_owned()
}

/// Parses the output of [`digits`]. Rejects capital letters, which `digits` never writes.
pub fn from_hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    let is_whole = text.len() == 64 && HEXLOWER.decode_mut(text.as_bytes(), &mut hash).is_ok();
    is_whole.then_some(hash)
}

/// Appends a line to a chain. `line`: a JSON object with at least one member, and a line end. `head`: the SHA-256 of the last line, or
/// zeros for an empty chain; replaced by the SHA-256 of the new line.
pub(super) fn link(head: &mut Hash, line: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(b"{\"prev\":\"");
    out.extend_from_slice(&hex(head));
    out.extend_from_slice(b"\",");
    out.extend_from_slice(&line[1..]);
    *head = sha256(&out[start..]);
}

/// The hash that the first line of a chain names.
pub(super) const NOTHING: Hash = [0; 32];

/// A line that is being written.
pub struct Draft {
    line: Vec<u8>,
    at: SystemTime,
}

impl Draft {
    pub(super) fn new(kind: &str, at: SystemTime) -> Self {
        let mut line = KEPT.take();
        line.clear();
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(kind.as_bytes());
        line.push(b'"');
        let mut draft = Draft { line, at };
        draft.time("time", at);
        draft
    }

    /// Begins a line that stores a file to which records refer. Text is stored as a string, other bytes in base64, so that the exact bytes
    /// can be read back.
    pub(super) fn file(hash: &Hash, bytes: &[u8]) -> Self {
        let mut draft = Self::new("file", SystemTime::now());
        draft.hash("sha256", hash);
        let is_plain = |byte: &u8| *byte >= b' ' || matches!(byte, b'\t' | b'\r' | b'\n');
        match str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(is_plain) => draft.text("text", text),
            _ => draft.text("base64", &BASE64_STANDARD.encode(bytes)),
        }
        draft
    }

    pub(super) fn at(&self) -> SystemTime {
        self.at
    }

    pub fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.string(value);
    }

    /// Adds one of the program's own words, which needs no escaping.
    #[inline(always)]
    pub fn word(&mut self, name: &str, word: &'static str) {
        debug_assert!(word.bytes().all(|byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')), "{word}");
        self.name(name);
        self.line.push(b'"');
        self.line.extend_from_slice(word.as_bytes());
        self.line.push(b'"');
    }

    /// Adds an address. Every record has one, so IPv4 is written without the slower formatter.
    pub fn address(&mut self, name: &str, address: IpAddr) {
        let IpAddr::V4(address) = address else { return self.text(name, &address.to_string()) };
        self.name(name);
        for (before, octet) in [b'"', b'.', b'.', b'.'].into_iter().zip(address.octets()) {
            self.line.push(before);
            self.line.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
        }
        self.line.push(b'"');
    }

    /// Adds a text that is given in pieces.
    pub fn pieces(&mut self, name: &str, pieces: &[&str]) {
        match pieces {
            [one] => self.text(name, one),
            pieces => self.text(name, &pieces.concat()),
        }
    }

    pub fn texts<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        self.name(name);
        self.line.push(b'[');
        for (index, value) in values.enumerate() {
            if index > 0 {
                self.line.push(b',');
            }
            self.string(value);
        }
        self.line.push(b']');
    }

    #[inline(always)]
    pub fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    pub fn flag(&mut self, name: &str, value: bool) {
        self.name(name);
        self.line.extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub fn time(&mut self, name: &str, at: SystemTime) {
        self.name(name);
        self.line.push(b'"');
        self.line.extend_from_slice(&rfc3339::millis_bytes(at));
        self.line.push(b'"');
    }

    pub fn hash(&mut self, name: &str, hash: &Hash) {
        self.name(name);
        self.line.push(b'"');
        self.line.extend_from_slice(&hex(hash));
        self.line.push(b'"');
    }

    /// Adds a member that is an object.
    pub fn object(&mut self, name: &str, members: impl FnOnce(&mut Self)) {
        self.name(name);
        self.line.push(b'{');
        members(self);
        self.line.push(b'}');
    }

    /// Ends the line, and passes it to `take`.
    pub(super) fn end<T>(mut self, take: impl FnOnce(&[u8]) -> T) -> T {
        self.line.extend_from_slice(b"}\n");
        let taken = take(&self.line);
        // The memory of a long line is not kept.
        self.line.shrink_to(MOST_KEPT);
        KEPT.set(self.line);
        taken
    }

    /// Adds the name of a member. Inlined, so that the compiler knows the name's length.
    #[inline(always)]
    fn name(&mut self, name: &str) {
        if self.line.last() != Some(&b'{') {
            self.line.push(b',');
        }
        self.line.push(b'"');
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\":");
    }

    fn string(&mut self, value: &str) {
        serde_json::to_writer(&mut self.line, value).expect("writing to memory cannot fail");
    }
}

thread_local!(static KEPT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) });
const MOST_KEPT: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn each_line_contains_the_hash_of_the_previous_one() {
        let (mut head, mut out) = (Hash::default(), Vec::new());
        link(&mut head, b"{\"a\":1}\n", &mut out);
        link(&mut head, b"{\"b\":2}\n", &mut out);
        let text = String::from_utf8(out).unwrap();
        let first = format!("{{\"prev\":\"{}\",\"a\":1}}\n", "0".repeat(64));
        let name = String::from_utf8(hex(&sha256(first.as_bytes())).into()).unwrap();
        assert_eq!(text, format!("{first}{{\"prev\":\"{name}\",\"b\":2}}\n"));
    }

    #[test]
    fn hexadecimal_hashes_round_trip() {
        let hash = sha256(b"abc");
        let text = String::from_utf8(hex(&hash).into()).unwrap();
        assert!(text.starts_with("ba7816bf8f01cfea"), "{text}: FIPS 180-2, B.1");
        assert_eq!(from_hex(&text), Some(hash));
        assert_eq!((from_hex(&text[1..]), from_hex(&text.to_uppercase())), (None, None));
    }

    #[test]
    fn line_is_one_json_object_with_any_content() {
        let mut draft = Draft::new("test", SystemTime::UNIX_EPOCH);
        draft.text("text", "\"\n\u{0}é\u{2028}\\");
        draft.texts("texts", ["a", "b"].into_iter());
        draft.texts("none", std::iter::empty());
        draft.object("object", |object| {
            object.number("number", u64::MAX);
            object.flag("flag", true);
        });
        draft.pieces("pieces", &["a", ": ", "b"]);
        draft.word("word", "as it is");
        draft.address("v4", [203, 0, 113, 7].into());
        draft.address("v6", "2001:db8::1".parse().unwrap());
        let line = draft.end(|line| String::from_utf8(line.to_vec()).unwrap());
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "type": "test", "time": "1970-01-01T00:00:00.000Z", "text": "\"\n\u{0}é\u{2028}\\", "texts": ["a", "b"],
                "none": [], "object": { "number": u64::MAX, "flag": true }, "pieces": "a: b",
                "word": "as it is", "v4": "203.0.113.7", "v6": "2001:db8::1",
            })
        );
    }
}
