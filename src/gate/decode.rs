//! Decodes the content codings of a robots.txt, or of the beginning of a page (RFC 9110 §8.4). Limits the output, the window and the
//! computing time, because a few bytes of brotli can take as long to decode as thousands of bytes usually do. This module does not use
//! `async-compression`, which cannot limit brotli's window and treats anything after a gzip member as damage.

use crate::robots::Layout;
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::io::{self, BufRead, Read};
use std::time::Duration;

/// Why a body could not be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the {0} body is damaged or cut short")]
    Damaged(&'static str),
    #[error("the {0} body asks for too large a window")]
    Window(&'static str),
    #[error("the content coding {0:?} is not supported, and the body is not text")]
    Unknown(Box<str>),
    #[error("more than {MAX_CODINGS} content codings")]
    TooMany,
    #[error("the {0} body takes too long to decode")]
    Costly(&'static str),
    #[error("reading the body in every way that clients may read it (codings, charsets, XML or HTML) takes too long")]
    Ambiguous,
    #[error("the proxy is shutting down")]
    Stopped,
}

/// Whether the body may be in a content coding.
pub fn is_coded(body: &[u8], codings: &str) -> bool {
    !codings.is_empty() || body.starts_with(GZIP)
}

/// Decodes the body from the codings that `codings` (Content-Encoding's list) names, the last one first, to at most `limit` + 1 bytes.
/// `cut`: the encoded body was not read to its end, so an early end is not damage. `lenient`: decodes up to any damage, and also returns
/// each intermediate result that is text, before the final one, as some clients do not undo all codings. `until`: the [`thread_time`] at
/// which to give up.
pub(super) fn decode(
    body: &[u8],
    codings: &str,
    limit: usize,
    mut cut: bool,
    lenient: bool,
    until: Duration,
) -> Result<Vec<Vec<u8>>, DecodeError> {
    let codings = codings.split(',').map(str::trim);
    let codings: Vec<_> = codings.filter(|it| !it.is_empty() && !it.eq_ignore_ascii_case("identity")).collect();
    if codings.len() > MAX_CODINGS {
        return Err(DecodeError::TooMany);
    }
    let (mut body, mut shown) = (Cow::from(body), Vec::new());
    let show = |body: &[u8], shown: &mut Vec<Vec<u8>>| {
        if shown.last().is_none_or(|last| last != body) {
            shown.push(body.to_vec());
        }
    };
    for coding in codings.iter().rev() {
        if lenient && is_text(&body, cut) {
            show(&body, &mut shown);
        }
        match one(&body, coding, limit, cut, lenient, until) {
            Ok(decoded) => body = decoded.into(),
            // This coding and those named before it were not applied: the last text found is the body.
            Err(error) if !shown.is_empty() && !matches!(error, DecodeError::Costly(_)) => return Ok(shown),
            Err(error) => return Err(error),
        }
        cut |= body.len() > limit;
    }
    // Some servers send a `.gz` file without naming the coding. Neither a robots.txt nor a page begins with these bytes.
    for _ in 0..MAX_CODINGS {
        if !body.starts_with(GZIP) {
            show(&body, &mut shown);
            return Ok(shown);
        }
        body = one(&body, "gzip", limit, cut, lenient, until)?.into();
        cut |= body.len() > limit;
    }
    Err(DecodeError::TooMany)
}

fn one(
    body: &[u8],
    coding: &str,
    limit: usize,
    cut: bool,
    lenient: bool,
    until: Duration,
) -> Result<Vec<u8>, DecodeError> {
    if body.is_empty() {
        // Many servers name a coding even for an empty body.
        return Ok(Vec::new());
    }
    let all = limit as u64 + 1;
    let mut out = Vec::new();
    let mut input = Input { rest: body, until, taken: 0, is_costly: false };
    let (name, read) = match coding.to_ascii_lowercase().as_str() {
        // Some clients, such as curl, decode zlib under this name, too.
        "gzip" | "x-gzip" if is_zlib(body) => ("gzip", zlib(&mut input, all, &mut out)),
        "gzip" | "x-gzip" => ("gzip", gzip(&mut input, all, &mut out)),
        "br" if asks_for_large_window(body) => return Err(DecodeError::Window("br")),
        "br" => {
            let read = brotli::Decompressor::new(&mut input, BUFFER).take(all).read_to_end(&mut out);
            // The decoder reports an early end and damage as the same error.
            let is_early = input.rest.is_empty();
            ("br", read.map_err(|error| if is_early { io::ErrorKind::UnexpectedEof.into() } else { error }))
        }
        "zstd" => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(&mut input).map_err(|_| DecodeError::Damaged("zstd"))?;
            // RFC 8878 §3.1.1.1.2 lets a frame ask for a window of gigabytes; every decoder must support 8 MiB.
            decoder.window_log_max(23).map_err(|_| DecodeError::Damaged("zstd"))?;
            ("zstd", decoder.take(all).read_to_end(&mut out))
        }
        // By RFC 9110 §8.4.1.2, "deflate" is zlib; some servers omit its header.
        "deflate" => match zlib(&mut input, all, &mut out) {
            Err(error) if out.is_empty() && !input.is_costly && error.kind() != io::ErrorKind::UnexpectedEof => {
                input.rest = body;
                ("deflate", flate2::bufread::DeflateDecoder::new(&mut input).take(all).read_to_end(&mut out))
            }
            read => ("deflate", read),
        },
        // Some servers write a charset here, or name a coding that they have not applied.
        _ if is_text(body, cut) => return Ok(body.to_vec()),
        // An error, as the undecoded body would be read as a file without rules, which allows everything.
        other => return Err(DecodeError::Unknown(other.chars().take(MAX_NAME).collect())),
    };
    match read {
        Ok(_) => Ok(out),
        Err(_) if input.is_costly => Err(DecodeError::Costly(name)),
        // The body ends early only because we cut it.
        Err(error) if cut && error.kind() == io::ErrorKind::UnexpectedEof => Ok(out),
        Err(_) if lenient && !out.is_empty() => Ok(out),
        Err(_) => Err(DecodeError::Damaged(name)),
    }
}

fn zlib(input: &mut Input<'_>, all: u64, out: &mut Vec<u8>) -> io::Result<usize> {
    flate2::bufread::ZlibDecoder::new(input).take(all).read_to_end(out)
}

/// Decodes gzip members one after the other (RFC 1952 §2.2), and skips zeros between them, as some clients do. Anything else that follows
/// is ignored as padding.
fn gzip(input: &mut Input<'_>, all: u64, out: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let left = all - out.len() as u64;
        flate2::bufread::GzDecoder::new(&mut *input).take(left).read_to_end(out)?;
        let zeros = input.rest.iter().take_while(|byte| **byte == 0).count();
        input.rest = &input.rest[zeros..];
        if out.len() as u64 >= all || !input.rest.starts_with(b"\x1f\x8b") {
            return Ok(out.len());
        }
    }
}

/// The input of a decoder, read in pieces until the time is up.
struct Input<'a> {
    rest: &'a [u8],
    /// The [`thread_time`] at which the time is up.
    until: Duration,
    taken: usize,
    is_costly: bool,
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.is_costly |= self.taken >= BUFFER && !self.rest.is_empty() && thread_time() > self.until;
        if self.is_costly {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(&self.rest[..self.rest.len().min(BUFFER)])
    }

    fn consume(&mut self, n: usize) {
        self.taken += n;
        self.rest = &self.rest[n..];
    }
}

impl Read for Input<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

/// CPU time of this thread so far.
pub(super) fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Whether the body may be an unencoded robots.txt: in a charset that extends ASCII, such as UTF-8, without control characters other than
/// white space and the escape character; or well-formed UTF-16 or UTF-32 with a byte order mark, and with an ASCII letter, as every key
/// has one. Compressed data fails within a few bytes. `cut`: the body may end anywhere.
fn is_text(body: &[u8], cut: bool) -> bool {
    let is_control = |char| matches!(char, '\0'..='\x08' | '\x0e'..='\x1a' | '\x1c'..='\x1f' | '\x7f');
    if !body.iter().any(|byte| is_control(char::from(*byte))) {
        return true;
    }
    let [two, two_swapped, four, four_swapped] = Layout::KNOWN;
    let (layout, rest) = match body {
        [0xFF, 0xFE, 0, 0, rest @ ..] => (four, rest),
        [0, 0, 0xFE, 0xFF, rest @ ..] => (four_swapped, rest),
        [0xFF, 0xFE, rest @ ..] => (two, rest),
        [0xFE, 0xFF, rest @ ..] => (two_swapped, rest),
        _ => return false,
    };
    // Ill-formed characters become NUL, a control character.
    let text = layout.decode(rest, '\0').unwrap_or_default();
    // A body that was cut may end in the first half of a surrogate pair.
    let text = text.strip_suffix('\0').filter(|_| cut).unwrap_or(&text);
    (cut || rest.len().is_multiple_of(layout.width))
        && (text.is_empty() || text.contains(|char: char| char.is_ascii_alphabetic()))
        && !text.contains(is_control)
}

/// Whether a brotli body uses the large-window extension, with which a few bytes can ask for a gigabyte. The extension is not part of RFC
/// 7932, which leaves its first bits unused (§9.1) and limits a window to 16 MiB.
fn asks_for_large_window(body: &[u8]) -> bool {
    body.first().is_some_and(|first| first & 0x7F == 0b001_0001)
}

/// Whether the body begins with a zlib header (RFC 1950 §2.2), which bare deflate data rarely do. A body of one byte is judged by that
/// byte.
fn is_zlib(body: &[u8]) -> bool {
    body[0] & 0x0F == 8 && body.get(1).is_none_or(|flags| u16::from_be_bytes([body[0], *flags]).is_multiple_of(31))
}

/// First bytes of a gzip file: the magic number and the only defined method (RFC 1952 §2.3.1).
const GZIP: &[u8] = b"\x1f\x8b\x08";
/// Maximum number of characters of a coding's name in messages.
const MAX_NAME: usize = 40;
const MAX_CODINGS: usize = 4;
const BUFFER: usize = 4096;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write;

    pub const TEXT: &[u8] = b"User-agent: *\nDisallow: /private/\n";

    fn decode(body: Vec<u8>, codings: &str, limit: usize, cut: bool) -> Result<Vec<u8>, DecodeError> {
        super::decode(&body, codings, limit, cut, false, Duration::MAX).map(only)
    }

    fn only(read: Vec<Vec<u8>>) -> Vec<u8> {
        let [only] = <[_; 1]>::try_from(read).unwrap();
        only
    }

    pub fn gzip_of(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    pub fn br(bytes: &[u8]) -> Vec<u8> {
        brotli_of(bytes, 20)
    }

    fn brotli_of(bytes: &[u8], window_log: u32) -> Vec<u8> {
        let mut out = Vec::new();
        brotli::CompressorWriter::new(&mut out, 4096, 5, window_log).write_all(bytes).unwrap();
        out
    }

    #[test]
    fn single_and_nested_codings_are_decoded() {
        let zstd = zstd::encode_all(TEXT, 3).unwrap();
        assert_eq!(decode(TEXT.to_vec(), "", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip_of(TEXT), "GZip", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(br(TEXT), "br", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(zstd, "zstd", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip_of(&br(TEXT)), "br, gzip", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip_of(TEXT), "identity, x-gzip", 1000, false).unwrap(), TEXT);
    }

    /// A body that fits into one piece is always decoded; a longer one only until the time is up.
    #[test]
    fn decoding_time_is_bounded() {
        let noise: Vec<u8> = (0..40_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
        type Encode = fn(&[u8]) -> Vec<u8>;
        let coded: [(&str, Encode); 4] = [
            ("gzip", gzip_of),
            ("br", br),
            ("zstd", |bytes| zstd::encode_all(bytes, 3).unwrap()),
            ("deflate", |bytes| {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }),
        ];
        for (coding, encode) in coded {
            let body = encode(&noise);
            assert!(body.len() > 10 * BUFFER);
            for cut in [false, true] {
                let late = super::decode(&body, coding, noise.len(), cut, false, Duration::ZERO);
                assert_eq!(late, Err(DecodeError::Costly(coding)), "{coding}");
            }
            assert_eq!(decode(body, coding, noise.len(), false).unwrap(), noise, "{coding}");
            assert_eq!(
                super::decode(&encode(TEXT), coding, 1000, false, false, Duration::ZERO).map(only).unwrap(),
                TEXT,
                "{coding}"
            );
        }
    }

    #[test]
    fn empty_body_is_empty_in_every_coding() {
        for coding in ["gzip", "x-gzip", "br", "zstd", "deflate", "br, gzip", "compress", "utf-8"] {
            assert_eq!(decode(Vec::new(), coding, 1000, false).unwrap(), b"", "{coding}");
        }
        assert_eq!(decode(gzip_of(b""), "br, gzip", 1000, false).unwrap(), b"");
    }

    #[test]
    fn text_with_an_unknown_coding_is_read_as_text() {
        assert_eq!(decode(b"Disallow: /\n\0".to_vec(), "identity", 1000, false).unwrap(), b"Disallow: /\n\0");
        for codings in ["utf-8", "UTF-8, identity", "none", "text/plain", "compress", "aws-chunked"] {
            assert_eq!(decode(TEXT.to_vec(), codings, 1000, false).unwrap(), TEXT, "{codings}");
        }
        assert_eq!(decode(gzip_of(TEXT), "utf-8, gzip", 1000, false).unwrap(), TEXT);
        for text in
            [&b"User-agent: caf\xe9\r\n\tDisallow: /\x0b\x0c"[..], b"\xff\xfeU\0s\0", b"\xef\xbb\xbf\xe4\xb8\xad"]
        {
            assert_eq!(decode(text.to_vec(), "unknown", 1000, false).unwrap(), text);
        }
    }

    /// The text with a byte order mark, in UTF-16 and UTF-32, each in both byte orders.
    fn marked(text: &str) -> [Vec<u8>; 4] {
        let text = format!("\u{feff}{text}");
        let two = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect();
        let four = |bytes: fn(u32) -> [u8; 4]| text.chars().flat_map(|char| bytes(char.into())).collect();
        [two(u16::to_le_bytes), two(u16::to_be_bytes), four(u32::to_le_bytes), four(u32::to_be_bytes)]
    }

    #[test]
    fn control_characters_and_ill_formed_text_are_not_text_despite_a_byte_order_mark() {
        let is_text = |body: &[u8], cut| decode(body.to_vec(), "unknown", 1000, cut).is_ok();
        for text in ["", "User-agent: *\r\n\tDisallow: /\u{1f600}\n", "# \u{442}\u{4e00}\u{fffd}\nAllow: /"] {
            let text = text.repeat(9);
            for (number, body) in marked(&text).into_iter().enumerate() {
                assert!(is_text(&body, false), "{number} {text:?}");
                for cut in 64..body.len() {
                    assert!(is_text(&body[..cut], true), "{number} {text:?} cut at {cut}");
                }
                assert!(text.is_empty() || !is_text(&body[..body.len() - 1], false), "{number} {text:?}");
            }
        }
        for text in ["Allow: /\0", "Allow: /\u{1}", "Allow: /\x1a", "Allow: /\x7f", "\u{100}\u{4e00}"] {
            for (number, body) in marked(text).into_iter().enumerate() {
                assert!(!is_text(&body, false), "{number} {text:?}");
            }
        }
        let noise = [gzip_of(TEXT), br(TEXT), zstd::encode_all(TEXT, 3).unwrap()];
        for mark in [&b"\xff\xfe"[..], b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff", b"\xef\xbb\xbf"] {
            for noise in &noise {
                assert!(!is_text(&[mark, noise].concat(), false), "{mark:?} {noise:?}");
            }
        }
        let half = [0xFEFF, 0x61, 0xD800, 0x61].map(u16::to_le_bytes).concat();
        assert!(!is_text(&half, false));
        let far = [0xFEFF, 0x61, 0x11_0000].map(u32::to_be_bytes).concat();
        assert!(!is_text(&far, false));
    }

    #[test]
    fn binary_body_with_an_unknown_coding_is_an_error() {
        for coding in ["aes128gcm", "COMPRESS", "dcb", "dcz", "exi", "pack200-gzip", "x-compress", "xz", "caf\u{fffd}"]
        {
            for body in [gzip_of(TEXT), br(TEXT), zstd::encode_all(TEXT, 3).unwrap(), b"\x1f\x9d\x90".to_vec()] {
                let name = coding.to_ascii_lowercase();
                assert_eq!(decode(body, coding, 1000, false), Err(DecodeError::Unknown(name.into())));
            }
        }
        let Err(error) = decode(vec![0], &"x".repeat(50_000), 1000, false) else {
            panic!("an unknown coding was decoded")
        };
        assert!(error.to_string().len() < 200, "{error}");
    }

    #[test]
    fn deflate_is_accepted_with_and_without_zlib_header() {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(TEXT).unwrap();
        let mut bare = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        bare.write_all(TEXT).unwrap();
        for body in [zlib.finish().unwrap(), bare.finish().unwrap()] {
            assert_eq!(decode(body, "deflate", 1000, false).unwrap(), TEXT);
        }
        assert_eq!(decode(vec![0xff; 100], "deflate", 1000, false), Err(DecodeError::Damaged("deflate")));
    }

    /// The two bytes of the header suffice to recognise zlib.
    #[test]
    fn zlib_is_recognised_by_its_header_as_deflate_or_gzip() {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(&b"<meta name=robots content=noai> and more text".repeat(20)).unwrap();
        let zlib = zlib.finish().unwrap();
        for coding in ["deflate", "gzip"] {
            for length in 2..zlib.len() {
                let read = decode(zlib[..length].to_vec(), coding, 1000, true);
                assert!(read.is_ok(), "{length} bytes as {coding}: {read:?}");
            }
            assert_eq!(decode(zlib.clone(), coding, 1000, false).unwrap().len(), 900);
            assert!(decode(zlib[..20].to_vec(), coding, 1000, false).is_err(), "a zlib body cut short is damaged");
        }
    }

    #[test]
    fn gzip_members_are_concatenated_and_trailing_bytes_ignored() {
        for padding in [&b""[..], b"\0\0\0\0", b"\n", b"<!-- cached -->"] {
            let body = [&gzip_of(TEXT), padding].concat();
            assert_eq!(decode(body, "gzip", 1000, false).unwrap(), TEXT, "{padding:?}");
        }
        let two = [gzip_of(TEXT), gzip_of(TEXT)].concat();
        assert_eq!(decode(two, "gzip", 1000, false).unwrap(), [TEXT, TEXT].concat());
        let many = gzip_of(b"").repeat(10_000);
        assert_eq!(decode(many.clone(), "gzip", 1000, false).unwrap(), b"");
        let late = super::decode(&many, "gzip", 1000, false, false, Duration::ZERO);
        assert_eq!(late, Err(DecodeError::Costly("gzip")), "each member costs the setup of a decoder");
    }

    #[test]
    fn oversized_decoding_window_is_refused() {
        // Large-window brotli: the seven bits that announce it, then 30 bits of window.
        assert_eq!(decode(vec![0x11, 0x1e, 0, 0], "br", 1000, false), Err(DecodeError::Window("br")));
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(TEXT).unwrap();
        let zstd = encoder.finish().unwrap();
        assert_eq!(decode(zstd, "zstd", 1000, false), Err(DecodeError::Damaged("zstd")));
        let large = brotli_of(TEXT, 24);
        assert_eq!(decode(large, "br", 1000, false).unwrap(), TEXT, "the largest window that RFC 7932 allows");
    }

    #[test]
    fn inner_coding_cut_at_the_limit_is_not_damage() {
        let noise: Vec<u8> = (0..5_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let body = gzip_of(&gzip_of(&noise));
        assert!(decode(body, "gzip, gzip", 1_000, false).unwrap().len() <= 1_001);
    }

    #[test]
    fn compression_bomb_is_cut_at_the_limit() {
        let bomb = gzip_of(&vec![b'a'; 50 << 20]);
        assert_eq!(decode(bomb, "gzip", 512_000, false).unwrap().len(), 512_001);
    }

    #[test]
    fn damage_is_reported_unless_the_body_was_cut_by_us() {
        let body = gzip_of(TEXT);
        let half = body[..body.len() - 9].to_vec();
        assert_eq!(decode(half.clone(), "gzip", 1000, false), Err(DecodeError::Damaged("gzip")));
        assert!(decode(half, "gzip", 1000, true).is_ok());
        let noise: Vec<u8> = (0..5_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        for (coding, name) in [("gzip", "gzip"), ("br", "br"), ("zstd", "zstd"), ("deflate", "deflate")] {
            let whole = match coding {
                "gzip" => gzip_of(&noise),
                "br" => br(&noise),
                "zstd" => zstd::encode_all(&noise[..], 3).unwrap(),
                _ => {
                    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                    encoder.write_all(&noise).unwrap();
                    encoder.finish().unwrap()
                }
            };
            assert!(decode(whole[..9_000].to_vec(), coding, 100_000, true).is_ok(), "{coding}");
            let text = TEXT.repeat(1000);
            assert_eq!(decode(text, coding, 1000, true), Err(DecodeError::Damaged(name)), "plain text is not encoded");
        }
        assert_eq!(decode(TEXT.to_vec(), "br", 1000, false), Err(DecodeError::Damaged("br")));
        assert_eq!(decode(TEXT.to_vec(), "zstd", 1000, false), Err(DecodeError::Damaged("zstd")));
        assert_eq!(decode(TEXT.to_vec(), "gzip,gzip,gzip,gzip,gzip", 1000, false), Err(DecodeError::TooMany));
    }
}
