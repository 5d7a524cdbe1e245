//! What makes a chain of lines: each begins with the SHA-256 of the line before it, that line's end included.

use crate::policy::Access;
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// A SHA-256.
pub type Hash = [u8; 32];

pub(super) fn sha256(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The SHA-256 by which a site's file is kept: of the bytes that were read of it.
pub fn digest_of(access: &Access) -> Option<&Hash> {
    match access {
        Access::Rules(robots) => Some(robots.digest_by(sha256)),
        Access::Reservations(tdmrep) => Some(tdmrep.digest_by(sha256)),
        Access::Missing => None,
    }
}

/// In hexadecimal. Three times a record, so in a form that the compiler makes vectors of.
pub fn hex(hash: &Hash) -> [u8; 64] {
    let digit = |half: u8| half + b'0' + if half > 9 { b'a' - b'9' - 1 } else { 0 };
    let mut text = [0; 64];
    for (two, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
        *two = [digit(byte >> 4), digit(byte & 15)];
    }
    text
}

/// The same as text.
pub fn digits(hash: &Hash) -> String {
    String::from_utf8_lossy(&hex(hash)).into_owned()
}

/// The other way round; in small letters alone, as it is written.
pub fn from_hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    let is_whole = text.len() == 64 && HEXLOWER.decode_mut(text.as_bytes(), &mut hash).is_ok();
    is_whole.then_some(hash)
}

/// The end of a chain, to which lines are added.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chain {
    /// Of the last line; of none, zeros.
    pub head: Hash,
}

impl Chain {
    /// Puts a line behind the others: `line` is an object with members, and ends its line.
    pub fn append(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"{\"prev\":\"");
        out.extend_from_slice(&hex(&self.head));
        out.extend_from_slice(b"\",");
        out.extend_from_slice(&line[1..]);
        self.head = sha256(&out[start..]);
    }
}

/// In place of the text of whatever has none.
pub(super) const NOTHING: Hash = [0; 32];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_names_the_one_before() {
        let (mut chain, mut out) = (Chain { head: Hash::default() }, Vec::new());
        chain.append(b"{\"a\":1}\n", &mut out);
        chain.append(b"{\"b\":2}\n", &mut out);
        let text = String::from_utf8(out).unwrap();
        let first = format!("{{\"prev\":\"{}\",\"a\":1}}\n", "0".repeat(64));
        let name = String::from_utf8(hex(&sha256(first.as_bytes())).into()).unwrap();
        assert_eq!(text, format!("{first}{{\"prev\":\"{name}\",\"b\":2}}\n"));
    }

    #[test]
    fn hexadecimal_is_read_as_it_is_written() {
        let hash = sha256(b"abc");
        let text = String::from_utf8(hex(&hash).into()).unwrap();
        assert!(text.starts_with("ba7816bf8f01cfea"), "{text}: FIPS 180-2, B.1");
        assert_eq!(from_hex(&text), Some(hash));
        assert_eq!((from_hex(&text[1..]), from_hex(&text.to_uppercase())), (None, None));
    }
}
