//! Content codings undone at once if that takes no longer than a moment, else away from the threads that serve requests, in turns.

use super::compute::Workers;
use super::decode::{DecodeError, decode, is_coded, thread_time};
use super::fair_places::Taker;
use std::sync::Arc;
use std::time::Duration;

impl Workers {
    /// The whole of a file, or `limit` + 1 bytes of it. `cut`: it was not read to its end.
    pub(super) async fn file(
        &self,
        body: Vec<u8>,
        codings: String,
        limit: usize,
        cut: bool,
        taker: Taker,
    ) -> Result<Vec<u8>, DecodeError> {
        if !is_coded(&body, &codings) {
            return Ok(body);
        }
        let read = self.in_turn(Arc::new(body), codings, limit, (cut, false), taker).await;
        read.map(|mut read| read.pop().unwrap_or_default())
    }

    /// As much of a page as its beginning shows, at most `limit` + 1 bytes, up to where it is damaged, as many clients show that much: in
    /// each way in which some client may see it, with all of its codings undone or some.
    pub async fn page(
        self,
        body: Arc<Vec<u8>>,
        codings: String,
        limit: usize,
        taker: Taker,
    ) -> Result<Vec<Vec<u8>>, DecodeError> {
        self.in_turn(body, codings, limit, (true, true), taker).await
    }

    /// As [`page`](Self::page), if that takes no longer than a moment.
    pub fn page_at_once(body: &[u8], codings: &str, limit: usize) -> Result<Vec<Vec<u8>>, DecodeError> {
        decode(body, codings, limit, true, true, thread_time() + AT_ONCE)
    }

    /// [`decode`]. What takes no longer than a moment, as most bodies do, is decoded at once; the rest on other threads, of
    /// which so many are kept busy. Dropped: its wait is given up.
    async fn in_turn(
        &self,
        body: Arc<Vec<u8>>,
        codings: String,
        limit: usize,
        (cut, lenient): (bool, bool),
        taker: Taker,
    ) -> Result<Vec<Vec<u8>>, DecodeError> {
        let work = move |most: Duration| decode(&body, &codings, limit, cut, lenient, thread_time() + most);
        let decoded = work(AT_ONCE);
        if !matches!(decoded, Err(DecodeError::Costly(_))) {
            return decoded;
        }
        self.compute(taker, move || work(LONGEST)).await.unwrap_or(Err(DecodeError::Stopped))
    }
}

/// Why a body that waits for its turn too long is not known: the proxy's own want, not the site's.
pub const DECODERS_BUSY: &str = "too many costly bodies are being decoded";
/// Half a megabyte of rules takes a tenth of it.
const LONGEST: Duration = Duration::from_millis(50);
/// Computing on a thread that serves requests: many times what the head of a page takes.
const AT_ONCE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::super::compute::tests::all_places;
    use super::super::decode::tests::{TEXT, br, gzip_of, noise_of};
    use super::*;
    use crate::policy::pace::ClientId;
    use futures_util::FutureExt;

    const TAKER: Taker = Taker::of(ClientId(1));

    async fn file(body: Vec<u8>, codings: &str) -> Result<Vec<u8>, DecodeError> {
        Workers::new(Some(1)).file(body, codings.into(), 1000, false, TAKER).await
    }

    async fn page(body: Vec<u8>, codings: &str) -> Result<Vec<Vec<u8>>, DecodeError> {
        Workers::new(Some(1)).page(Arc::new(body), codings.into(), 1000, TAKER).await
    }

    /// With all places taken.
    #[tokio::test]
    async fn an_ordinary_body_waits_for_none_that_is_costly_and_a_wait_that_is_dropped_leaves_nothing() {
        let workers = Workers::new(Some(1));
        let place = all_places(&workers);
        let costly = Arc::new(gzip_of(&noise_of(2_000_000)));
        let decode = |body: &Arc<Vec<u8>>| workers.clone().page(body.clone(), "gzip".into(), 8 << 20, TAKER);
        let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(decode(&costly))).collect();
        for wait in &mut waiting {
            assert!(wait.as_mut().now_or_never().is_none(), "it waits for its turn");
        }
        let read = decode(&Arc::new(gzip_of(TEXT))).now_or_never().expect("it waits for nobody");
        assert_eq!(read, Ok(vec![TEXT.to_vec()]));
        drop(waiting);
        assert_eq!(Arc::strong_count(&costly), 1, "nothing of it is kept");
        drop(place);
        assert!(decode(&costly).now_or_never().is_none(), "there is a place again, on another thread");
        let _ = decode(&costly).await;
    }

    /// Many clients show a page whose checksum is wrong; a robots.txt has to be whole.
    #[tokio::test]
    async fn what_comes_before_damage_counts_for_a_page_and_not_for_a_file() {
        let mut body = gzip_of(TEXT);
        *body.iter_mut().rev().nth(5).expect("it has a checksum") ^= 1;
        assert_eq!(page(body.clone(), "gzip").await, Ok(vec![TEXT.to_vec()]));
        assert_eq!(file(body, "gzip").await, Err(DecodeError::Damaged("gzip")));
    }

    /// Of several codings that are named some may not have been applied, and clients differ in which they undo.
    #[tokio::test]
    async fn a_page_is_seen_in_every_way_and_what_shows_nothing_is_unreadable() {
        let text = TEXT.to_vec();
        assert_eq!(page(gzip_of(TEXT), "gzip, gzip").await, Ok(vec![text.clone()]));
        assert_eq!(page(text.clone(), "zstd, gzip").await, Ok(vec![text.clone()]));
        assert_eq!(page(text.clone(), "unknown").await, Ok(vec![text.clone(), text.clone()]));
        assert_eq!(page(gzip_of(TEXT), "").await, Ok(vec![text.clone()]));
        for (body, codings, why) in [
            (gzip_of(&[1; 9]), "zstd, gzip", DecodeError::Damaged("zstd")),
            (gzip_of(TEXT), "\"gzip\"", DecodeError::Unknown("\"gzip\"".into())),
            (br(TEXT), "gzip", DecodeError::Damaged("gzip")),
            (gzip_of(TEXT), "gzip, gzip, gzip, gzip, gzip", DecodeError::TooMany),
        ] {
            assert_eq!(page(body, codings).await, Err(why));
        }
        let many = [gzip_of(b"").repeat(300), gzip_of(TEXT)].concat();
        assert_eq!(page(many, "gzip").await, Ok(vec![text]), "however many members it has");
    }

    #[tokio::test]
    async fn a_gzip_file_that_is_not_said_to_be_one_is_undone() {
        let whole = gzip_of(TEXT);
        assert_eq!(file(whole.clone(), "").await.unwrap(), TEXT);
        let half = whole[..whole.len() - 9].to_vec();
        assert_eq!(file(half, "").await, Err(DecodeError::Damaged("gzip")));
        for other in [&b""[..], b"\x1f\x8b", TEXT] {
            assert_eq!(file(other.to_vec(), "").await.unwrap(), other);
        }
    }
}
