//! Where a chunked body ends (RFC 9112 §7.1). Pure: bytes in, position out. Called by `downstream`, which must hand
//! on exactly one message's bytes: what follows belongs to the next request.

/// Follows the framing of one chunked body without keeping any of it. Strict: CRLF only, hexadecimal sizes up to
/// 16 digits, chunk extensions and trailer lines of bounded length.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    /// Bytes of the current line so far (extensions or a trailer field).
    line: usize,
    trailers: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { value: u64, digits: u8 },
    Extension { value: u64 },
    SizeLf { value: u64 },
    Data { left: u64 },
    DataCr,
    DataLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

/// The body's framing is broken at this position; nothing after it can be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked body: {0}")]
pub(super) struct Malformed(&'static str);

impl Scanner {
    pub fn new() -> Self {
        Scanner { state: State::Size { value: 0, digits: 0 }, line: 0, trailers: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many of `bytes` belong to the body: all of them, unless it ends among them.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() {
            if let State::Data { left } = self.state {
                let take = left.min((bytes.len() - at) as u64);
                at += take as usize;
                self.state = if take == left { State::DataCr } else { State::Data { left: left - take } };
                continue;
            }
            self.state = self.step(bytes[at])?;
            at += 1;
            if self.is_done() {
                return Ok(at);
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, Malformed> {
        Ok(match (self.state, byte) {
            (State::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(Malformed("chunk size too large"));
                }
                let digit = (byte as char).to_digit(16).expect("matched above") as u64;
                State::Size { value: value << 4 | digit, digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err(Malformed("chunk size expected")),
            (State::Size { value, .. }, b'\r') => State::SizeLf { value },
            (State::Size { value, .. }, b';') => {
                self.line = 0;
                State::Extension { value }
            }
            (State::Size { .. }, _) => return Err(Malformed("bad character in a chunk size")),
            (State::Extension { value }, b'\r') => State::SizeLf { value },
            (State::Extension { value }, _) => {
                self.bounded(byte)?;
                State::Extension { value }
            }
            (State::SizeLf { value: 0 }, b'\n') => State::TrailerStart,
            (State::SizeLf { value }, b'\n') => State::Data { left: value },
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size { value: 0, digits: 0 },
            (State::DataCr | State::DataLf, _) => return Err(Malformed("chunk longer than its size")),
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerStart, _) => {
                self.line = 0;
                self.trailers += 1;
                if self.trailers > MAX_TRAILERS {
                    return Err(Malformed("too many trailer fields"));
                }
                self.bounded(byte)?;
                State::Trailer
            }
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::Trailer, _) => {
                self.bounded(byte)?;
                State::Trailer
            }
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::Done,
            (State::SizeLf { .. } | State::TrailerLf | State::EndLf, _) => return Err(Malformed("CR without LF")),
            (State::Data { .. } | State::Done, _) => unreachable!("handled by advance"),
        })
    }

    fn bounded(&mut self, byte: u8) -> Result<(), Malformed> {
        self.line += 1;
        if byte == b'\n' || byte == 0 {
            return Err(Malformed("control character in a chunk extension or trailer"));
        }
        if self.line > MAX_LINE {
            return Err(Malformed("chunk extension or trailer too long"));
        }
        Ok(())
    }
}

const MAX_SIZE_DIGITS: u8 = 15;
const MAX_LINE: usize = 8 * 1024;
const MAX_TRAILERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(body: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut scanner = Scanner::new();
        let used = scanner.advance(body)?;
        Ok((used, scanner.is_done()))
    }

    #[test]
    fn a_body_ends_after_its_last_chunk_and_trailers() {
        for body in ["0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n", "A;x=y\r\n0123456789\r\n0\r\nDigest: z\r\n\r\n"] {
            let next = [body.as_bytes(), b"GET / HTTP/1.1"].concat();
            assert_eq!(whole(&next), Ok((body.len(), true)), "{body:?}");
        }
    }

    #[test]
    fn any_split_gives_the_same_end() {
        let body = b"5;ext\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\nrest";
        let end = body.len() - 4;
        for cut in 0..body.len() {
            let mut scanner = Scanner::new();
            let first = scanner.advance(&body[..cut]).unwrap();
            let second = if scanner.is_done() { 0 } else { scanner.advance(&body[cut..]).unwrap() };
            assert_eq!(first + second, end, "cut at {cut}");
        }
    }

    #[test]
    fn broken_framing_is_an_error() {
        for body in [
            "\r\n",
            "x\r\n",
            "5 \r\n",
            "+5\r\nhello\r\n",
            "0x5\r\nhello\r\n",
            "5\nhello\r\n",
            "5\r\nhello!\r\n",
            "5\r\nhello\n",
            "5\r\nhello\rX",
            "0\r\n\rX",
            "5;a\nb\r\nhello",
            "0\r\nA: b\n\r\n",
            "fffffffffffffffff\r\n",
        ] {
            assert!(whole(body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(whole(format!("5;{}", "e".repeat(9000)).as_bytes()).is_err());
        assert!(whole(format!("0\r\n{}", "A: b\r\n".repeat(100)).as_bytes()).is_err());
    }
}
