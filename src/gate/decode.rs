//! Content codings of a robots.txt (RFC 9110 §8.4), undone with the limit counted on what comes out. Pure.
//! Called by `fetch`.

use std::io::Read;

/// The body could not be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("content coding {0:?} is not known")]
    Unknown(String),
    #[error("the {0} body is damaged or cut short")]
    Damaged(&'static str),
    #[error("more than {MAX_CODINGS} content codings")]
    TooMany,
}

/// The body without the codings that `codings` (Content-Encoding's list) names, last one first; at most `limit` + 1
/// bytes of it. `cut`: the encoded body was not read to its end, so that an early end is no damage.
pub(super) fn decode(body: Vec<u8>, codings: &str, limit: usize, cut: bool) -> Result<Vec<u8>, DecodeError> {
    let codings: Vec<_> = codings.split(',').map(str::trim).filter(|coding| !coding.is_empty()).collect();
    if codings.len() > MAX_CODINGS {
        return Err(DecodeError::TooMany);
    }
    codings.iter().rev().try_fold(body, |body, coding| one(body, coding, limit, cut))
}

fn one(body: Vec<u8>, coding: &str, limit: usize, cut: bool) -> Result<Vec<u8>, DecodeError> {
    let all = limit as u64 + 1;
    let mut out = Vec::new();
    let input = &body[..];
    let (name, read) = match coding.to_ascii_lowercase().as_str() {
        "identity" => return Ok(body),
        "gzip" | "x-gzip" => ("gzip", flate2::read::MultiGzDecoder::new(input).take(all).read_to_end(&mut out)),
        "br" => ("br", brotli::Decompressor::new(input, BUFFER).take(all).read_to_end(&mut out)),
        "zstd" => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(input).map_err(|_| DecodeError::Damaged("zstd"))?;
            // RFC 8878 §3.1.1.1.2 lets a frame ask for a window of gigabytes; 8 MiB is what every decoder must bear.
            decoder.window_log_max(23).map_err(|_| DecodeError::Damaged("zstd"))?;
            ("zstd", decoder.take(all).read_to_end(&mut out))
        }
        other => return Err(DecodeError::Unknown(other.to_owned())),
    };
    match read {
        Ok(_) => Ok(out),
        Err(_) if cut => Ok(out),
        Err(_) => Err(DecodeError::Damaged(name)),
    }
}

const MAX_CODINGS: usize = 4;
const BUFFER: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TEXT: &[u8] = b"User-agent: *\nDisallow: /private/\n";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn br(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        brotli::CompressorWriter::new(&mut out, 4096, 5, 20).write_all(bytes).unwrap();
        out
    }

    #[test]
    fn each_coding_and_nested_ones_are_undone() {
        let zstd = zstd::encode_all(TEXT, 3).unwrap();
        assert_eq!(decode(TEXT.to_vec(), "", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip(TEXT), "GZip", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(br(TEXT), "br", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(zstd, "zstd", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip(&br(TEXT)), "br, gzip", 1000, false).unwrap(), TEXT);
        assert_eq!(decode(gzip(TEXT), "identity, x-gzip", 1000, false).unwrap(), TEXT);
    }

    #[test]
    fn a_bomb_is_cut_at_the_limit() {
        let bomb = gzip(&vec![b'a'; 50 << 20]);
        assert_eq!(decode(bomb, "gzip", 512_000, false).unwrap().len(), 512_001);
    }

    #[test]
    fn damage_is_told_unless_we_cut_it_ourselves() {
        let body = gzip(TEXT);
        let half = body[..body.len() - 9].to_vec();
        assert_eq!(decode(half.clone(), "gzip", 1000, false), Err(DecodeError::Damaged("gzip")));
        assert!(decode(half, "gzip", 1000, true).is_ok());
        assert_eq!(decode(TEXT.to_vec(), "br", 1000, false), Err(DecodeError::Damaged("br")));
        assert_eq!(decode(TEXT.to_vec(), "zstd", 1000, false), Err(DecodeError::Damaged("zstd")));
        assert_eq!(decode(TEXT.to_vec(), "compress", 1000, false), Err(DecodeError::Unknown("compress".into())));
        assert_eq!(decode(TEXT.to_vec(), "gzip,gzip,gzip,gzip,gzip", 1000, false), Err(DecodeError::TooMany));
    }
}
