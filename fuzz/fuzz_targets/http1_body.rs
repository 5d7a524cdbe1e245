//! Any bytes as a body: taken out of its framing whole or in pieces, it ends at the same place or not at all; and
//! what was taken out can be put back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use politely::http1::{Body, Framing, put_chunk_head, put_last_chunk};

fuzz_target!(|bytes: &[u8]| {
    let [kind, most, bytes @ ..] = bytes else { return };
    let framing = match kind % 4 {
        0 => Framing::Length(u64::from(*kind / 4)),
        1 => Framing::UntilClose,
        _ => Framing::Chunked,
    };
    let most = usize::from(*most).max(1);
    for begin in [Body::of_request, Body::of_response] {
        let (mut whole, mut end, mut is_good) = (begin(framing), 0, true);
        while end < bytes.len() && !whole.is_done() && is_good {
            match whole.decode(&bytes[end..]) {
                Ok(piece) => end += piece.end,
                Err(_) => is_good = false,
            }
        }

        let (mut decoding, mut at, mut good, mut out) = (begin(framing), 0, true, Vec::new());
        let mut content = 0;
        while at < bytes.len() && !decoding.is_done() && good {
            let there = &bytes[at..bytes.len().min(at + most)];
            match decoding.decode(there) {
                Ok(piece) => {
                    assert!(piece.end > 0 && piece.end <= there.len());
                    at += piece.end;
                    content += piece.len();
                    if !piece.is_empty() {
                        put_chunk_head(&mut out, piece.len());
                        out.extend_from_slice(&there[piece]);
                        out.extend_from_slice(b"\r\n");
                    }
                }
                Err(_) => good = false,
            }
        }
        assert_eq!((is_good, whole.is_done()), (good, decoding.is_done()));
        assert!(!good || end == at);
        if !good || framing == Framing::Chunked && !decoding.is_done() {
            continue;
        }
        put_last_chunk(&mut out, decoding.trailers());
        let mut again = Body::of_request(Framing::Chunked);
        let (mut at, mut found) = (0, 0);
        while !again.is_done() {
            let piece = again.decode(&out[at..]).expect("our own");
            assert!(piece.end > 0, "it is whole");
            at += piece.end;
            found += piece.len();
        }
        assert_eq!((at, found), (out.len(), content));
        assert!(again.trailers().eq(decoding.trailers()));
    }
});
