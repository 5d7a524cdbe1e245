//! The server names in a ClientHello (RFC 8446 §4.1.2, RFC 6066 §3), read incrementally. Pure.

/// Reads the beginning of a connection, up to the end of its ClientHello.
#[derive(Debug, Default)]
pub struct HelloReader {
    /// The current record's header, as far as it was received.
    header: [u8; HEADER],
    filled: usize,
    /// Bytes of the current record still to come.
    left: usize,
    message: Vec<u8>,
}

/// The connection begins with a malformed ClientHello.
#[derive(Debug, PartialEq, Eq)]
pub struct UnreadableHello;

impl HelloReader {
    /// Takes the next bytes. Returns the server names once they are known; an empty list if there are none, or the connection is not TLS.
    pub fn read(&mut self, mut bytes: &[u8]) -> Option<Result<Vec<Vec<u8>>, UnreadableHello>> {
        while let Some(&first) = bytes.first() {
            if self.filled < HEADER {
                self.header[self.filled] = first;
                self.filled += 1;
                bytes = &bytes[1..];
                // Alerts before the ClientHello are skipped, because servers that use OpenSSL ignore warnings there.
                if !matches!(self.header[0], HANDSHAKE | ALERT) {
                    return Some(Ok(Vec::new()));
                }
                self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            } else {
                let (piece, rest) = bytes.split_at(self.left.min(bytes.len()));
                bytes = rest;
                self.left -= piece.len();
                if self.header[0] == HANDSHAKE {
                    self.message.extend_from_slice(piece);
                    if let Some(names) = self.names() {
                        return Some(names);
                    }
                }
            }
            if self.filled == HEADER && self.left == 0 {
                (self.header, self.filled) = ([0; HEADER], 0);
            }
        }
        None
    }

    fn names(&self) -> Option<Result<Vec<Vec<u8>>, UnreadableHello>> {
        match self.message[..] {
            [CLIENT_HELLO, a, b, c, ref body @ ..] => {
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if length > MOST_BYTES {
                    return Some(Err(UnreadableHello));
                }
                body.get(..length).map(|body| names_in(body).ok_or(UnreadableHello))
            }
            [CLIENT_HELLO, ..] | [] => None,
            _ => Some(Ok(Vec::new())),
        }
    }
}

fn names_in(mut hello: &[u8]) -> Option<Vec<Vec<u8>>> {
    let rest = &mut hello;
    // Version and random; session, cipher suites and compression methods.
    take(rest, 2 + 32)?;
    vector::<1>(rest)?;
    vector::<2>(rest)?;
    vector::<1>(rest)?;
    let mut names = Vec::new();
    let mut extensions = if rest.is_empty() { &[] } else { vector::<2>(rest)? };
    while !extensions.is_empty() {
        let kind = take(&mut extensions, 2)?;
        let mut content = vector::<2>(&mut extensions)?;
        if kind != SERVER_NAME {
            continue;
        }
        let mut list = vector::<2>(&mut content)?;
        while !list.is_empty() {
            let kind = take(&mut list, 1)?;
            let name = vector::<2>(&mut list)?;
            if kind == HOST_NAME {
                names.push(name.to_vec());
            }
        }
    }
    Some(names)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

/// A vector whose length precedes it in `N` bytes.
fn vector<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take(rest, N)?.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    take(rest, length)
}

/// The record of a fatal `unrecognized_name` alert (RFC 8446 §6).
pub const UNRECOGNIZED_NAME: &[u8] = &[ALERT, 3, 3, 0, 2, 2, 112];

const HEADER: usize = 5;
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: &[u8] = &[0, 0];
const HOST_NAME: &[u8] = &[0];
/// Maximum length of a ClientHello in bytes, as in rustls.
const MOST_BYTES: usize = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello with these extensions.
    fn hello(extensions: &[&[u8]]) -> Vec<u8> {
        let mut body = [&[3, 3][..], &[7; 32], &[2, 1, 2], &[0, 2, 0x13, 1], &[1, 0]].concat();
        let extensions = extensions.concat();
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        [&[CLIENT_HELLO, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn server_name(names: &[(u8, &str)]) -> Vec<u8> {
        let one = |&(kind, name): &(u8, &str)| [&[kind, 0, name.len() as u8][..], name.as_bytes()].concat();
        let list = names.iter().map(one).collect::<Vec<_>>().concat();
        [&[0, 0, 0, list.len() as u8 + 2, 0, list.len() as u8][..], &list].concat()
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat()
    }

    fn names(bytes: &[u8]) -> Option<Result<Vec<String>, UnreadableHello>> {
        let text = |names: Vec<Vec<u8>>| names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
        let whole = HelloReader::default().read(bytes).map(|names| names.map(text));
        let mut reader = HelloReader::default();
        let single = bytes.chunks(1).find_map(|byte| reader.read(byte)).map(|names| names.map(text));
        assert_eq!(whole, single);
        whole
    }

    fn found(names: &[&str]) -> Option<Result<Vec<String>, UnreadableHello>> {
        Some(Ok(names.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn names_are_found_however_a_hello_is_split_into_records() {
        let alpn = [0, 16, 0, 5, 0, 3, 2, b'h', b'2'];
        let message = hello(&[&alpn, &server_name(&[(0, "a.example")])]);
        assert_eq!(names(&record(HANDSHAKE, &message)), found(&["a.example"]));
        let pieces = message.chunks(7).map(|piece| record(HANDSHAKE, piece)).collect::<Vec<_>>();
        let warning = record(ALERT, &[1, 90]);
        let empty = record(HANDSHAKE, &[]);
        assert_eq!(names(&[warning, empty, pieces.concat()].concat()), found(&["a.example"]));
        assert_eq!(names(&pieces[..pieces.len() - 1].concat()), None);
        assert_eq!(names(&record(HANDSHAKE, &hello(&[&alpn]))), found(&[]));
    }

    #[test]
    fn all_of_several_names_are_found() {
        let extensions = [server_name(&[(0, "a"), (9, "b"), (0, "c")]), server_name(&[(0, "d")])];
        let message = hello(&extensions.each_ref().map(Vec::as_slice));
        assert_eq!(names(&record(HANDSHAKE, &message)), found(&["a", "c", "d"]));
    }

    #[test]
    fn other_protocols_have_no_names() {
        for bytes in [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n", b"\x80\x2e\x01\x00\x02", b"\x17\x03\x03\x00\x01x"] {
            assert_eq!(names(bytes), found(&[]), "{}", bytes.escape_ascii());
        }
        assert_eq!(names(&record(HANDSHAKE, &[2, 0, 0, 0])), found(&[]));
        assert_eq!(names(&[record(ALERT, &[2, 40]), b"next".to_vec()].concat()), found(&[]));
    }

    #[test]
    fn truncated_hello_is_unreadable() {
        let message = hello(&[&server_name(&[(0, "a.example")])]);
        for length in 4..message.len() {
            let mut cut = message[..length].to_vec();
            let rest = length - 4;
            cut[2..4].copy_from_slice(&(rest as u16).to_be_bytes());
            let told = names(&record(HANDSHAKE, &cut)).expect("the hello is complete");
            // An old ClientHello may end before its extensions.
            assert_eq!(told.is_ok(), rest == 43, "{rest} bytes");
        }
        assert_eq!(names(&record(HANDSHAKE, &[CLIENT_HELLO, 1, 0, 0])), Some(Err(UnreadableHello)));
    }
}
