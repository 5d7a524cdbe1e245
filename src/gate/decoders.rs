//! Decodes content codings and reads pages: at once if that is quick, else on threads that serve no requests, where clients take turns.

use super::compute::Workers;
use super::decode::{DecodeError, decode, is_coded, thread_time};
use crate::fair_places::Taker;
use crate::policy::UsageLines;
use crate::policy::usage::page::{LONGEST_HEAD, MOST_STEPS, PageForm, PageRead};
use std::sync::Arc;
use std::time::Duration;

impl Workers {
    /// Decodes a file, up to `limit` + 1 decoded bytes. `cut`: the body was not read to its end.
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
        let work = move |most: Work| decode(&body, &codings, limit, cut, false, thread_time() + most.time);
        let read = self.in_turn(taker, work).await;
        read.map(|mut read| read.pop().unwrap_or_default())
    }

    /// Reads the usage statements in the beginning of a page. A damaged body is read up to the damage, as many clients show that part.
    pub async fn page(self, body: Arc<Vec<u8>>, form: Arc<PageForm>, taker: Taker) -> Result<UsageLines, DecodeError> {
        self.in_turn(taker, move |most| page(&body, &form, most)).await.map(|read| read.lines)
    }

    /// Like [`page`](Self::page), on this thread. Fails if the work is not quick, or takes more than `steps` steps.
    pub fn page_at_once(body: &[u8], form: &PageForm, steps: usize) -> Result<PageRead, DecodeError> {
        page(body, form, Work { steps, ..AT_ONCE })
    }

    /// Does the work at once if it is quick, as for most bodies. Otherwise waits for its turn on a limited number of other threads.
    /// Dropping the future ends the wait.
    async fn in_turn<T: Send + 'static>(
        &self,
        taker: Taker,
        work: impl Fn(Work) -> Result<T, DecodeError> + Send + 'static,
    ) -> Result<T, DecodeError> {
        let done = work(AT_ONCE);
        if !matches!(done, Err(DecodeError::Costly(_) | DecodeError::Ambiguous)) {
            return done;
        }
        self.compute(taker, move || work(MOST)).await.unwrap_or(Err(DecodeError::Stopped))
    }
}

/// Reads a page in each way in which some client may read it: with all of its codings undone, or only some.
fn page(body: &[u8], form: &PageForm, most: Work) -> Result<PageRead, DecodeError> {
    let texts = decode(body, &form.codings, LONGEST_HEAD, true, true, thread_time() + most.time)?;
    form.read(&texts, most.steps).ok_or(DecodeError::Ambiguous)
}

/// Limits on the work for one body.
#[derive(Clone, Copy)]
struct Work {
    /// Maximum CPU time for decoding.
    time: Duration,
    /// Maximum number of steps for reading a page.
    steps: usize,
}

/// The error for a body that has waited too long for its turn: the proxy is busy, which is not the site's fault.
pub const DECODERS_BUSY: &str = "too many costly bodies are being decoded";
/// The limits for work on other threads. Half a megabyte of rules takes a tenth of this time.
const MOST: Work = Work { time: Duration::from_millis(50), steps: MOST_STEPS };
/// The limits for work on a thread that serves requests. Decoding a page's head takes far less time than this. The steps suffice to read
/// the longest head once, which takes about 1 ms.
const AT_ONCE: Work = Work { time: Duration::from_millis(2), steps: LONGEST_HEAD + LONGEST_HEAD / 2 };

#[cfg(test)]
mod tests {
    use super::super::compute::tests::all_places;
    use super::super::decode::tests::{TEXT, br, gzip_of};
    use super::*;
    use crate::policy::pace::ClientId;
    use futures_util::FutureExt;

    const TAKER: Taker = Taker::of(ClientId(1));

    async fn file(body: Vec<u8>, codings: &str) -> Result<Vec<u8>, DecodeError> {
        Workers::new(Some(1)).file(body, codings.into(), 1000, false, TAKER).await
    }

    /// The texts that clients may get by decoding a page.
    fn page(body: Vec<u8>, codings: &str) -> Result<Vec<Vec<u8>>, DecodeError> {
        decode(&body, codings, 1000, true, true, Duration::MAX)
    }

    fn form(codings: &str) -> Arc<PageForm> {
        let (content_type, codings) = (b"text/html; xml".to_vec(), codings.into());
        Arc::new(PageForm { content_type, codings, product_tokens: Vec::new() })
    }

    /// All places for costly work are taken.
    #[tokio::test]
    async fn ordinary_body_does_not_wait_for_costly_ones() {
        let workers = Workers::new(Some(1));
        let place = all_places(&workers);
        let read = |body: &Arc<Vec<u8>>, codings| workers.clone().page(body.clone(), form(codings), TAKER);
        // Empty gzip members cost time and yield no text; a long page that may be XML is read twice.
        let costly = Arc::new([gzip_of(b"").repeat(200_000), gzip_of(TEXT)].concat());
        let long = Arc::new(b"<p>".repeat(20_000));
        let mut waiting: Vec<_> =
            (0..10).flat_map(|_| [read(&costly, "gzip"), read(&long, "")]).map(Box::pin).collect();
        for wait in &mut waiting {
            assert!(wait.as_mut().now_or_never().is_none(), "a costly body waits for its turn");
        }
        assert!(
            read(&Arc::new(gzip_of(TEXT)), "gzip").now_or_never().is_some_and(|it| it.is_ok()),
            "an ordinary body is read at once"
        );
        drop(waiting);
        assert_eq!([&costly, &long].map(Arc::strong_count), [1, 1], "a dropped wait keeps no body in memory");
        drop(place);
        assert!(
            read(&costly, "gzip").now_or_never().is_none(),
            "costly work runs on another thread even if a place is free"
        );
        assert!(read(&long, "").await.is_ok());
    }

    /// Many clients show a page whose checksum is wrong, but a robots.txt has to be whole.
    #[tokio::test]
    async fn damaged_page_is_read_up_to_the_damage_but_a_file_is_an_error() {
        let mut body = gzip_of(TEXT);
        *body.iter_mut().rev().nth(5).expect("a gzip body ends with a checksum") ^= 1;
        assert_eq!(page(body.clone(), "gzip"), Ok(vec![TEXT.to_vec()]));
        assert_eq!(file(body, "gzip").await, Err(DecodeError::Damaged("gzip")));
    }

    /// Content-Encoding may name codings that were not applied, and clients differ in which they undo.
    #[test]
    fn page_is_decoded_in_every_way_that_clients_may_use() {
        let text = TEXT.to_vec();
        assert_eq!(page(gzip_of(TEXT), "gzip, gzip"), Ok(vec![text.clone()]));
        assert_eq!(page(text.clone(), "zstd, gzip"), Ok(vec![text.clone()]));
        for codings in ["unknown", "identity", "identity, identity,identity", "unknown, identity, other, gzip"] {
            assert_eq!(page(text.clone(), codings), Ok(vec![text.clone()]), "{codings}");
        }
        assert_eq!(page(gzip_of(TEXT), ""), Ok(vec![text.clone()]));
        for (body, codings, why) in [
            (gzip_of(&[1; 9]), "zstd, gzip", DecodeError::Damaged("zstd")),
            (gzip_of(TEXT), "\"gzip\"", DecodeError::Unknown("\"gzip\"".into())),
            (br(TEXT), "gzip", DecodeError::Damaged("gzip")),
            (gzip_of(TEXT), "gzip, gzip, gzip, gzip, gzip", DecodeError::TooMany),
        ] {
            assert_eq!(page(body, codings), Err(why));
        }
        let many = [gzip_of(b"").repeat(300), gzip_of(TEXT)].concat();
        assert_eq!(page(many, "gzip"), Ok(vec![text]), "the number of gzip members does not matter");
    }

    #[tokio::test]
    async fn undeclared_gzip_file_is_decoded() {
        let whole = gzip_of(TEXT);
        assert_eq!(file(whole.clone(), "").await.unwrap(), TEXT);
        let half = whole[..whole.len() - 9].to_vec();
        assert_eq!(file(half, "").await, Err(DecodeError::Damaged("gzip")));
        for other in [&b""[..], b"\x1f\x8b", TEXT] {
            assert_eq!(file(other.to_vec(), "").await.unwrap(), other);
        }
    }
}
