//! A page's answer that is held back, as far as it has come.

use super::carry::{BodySource, KeptHead, Side, SideError};
use crate::gate::DecodeError;
use crate::policy::usage::page::LONGEST_HEAD;
use bytes::Bytes;
use http::HeaderMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The answer so far.
pub(super) struct HeldPage {
    pub(super) head: KeptHead,
    pub(super) content_type: Vec<u8>,
    pub(super) codings: String,
    /// What has come of its body.
    pub(super) body: Arc<Vec<u8>>,
    /// How often it may still be looked for the end of the head, and what had come of the body the last time.
    pub(super) looks: u8,
    pub(super) looked_at: usize,
    /// Until then something has to be known, or, once it goes out, taken.
    pub(super) until: Instant,
    /// Its codings are being undone.
    pub(super) reading: Option<Reading>,
    /// No more is waited for.
    pub(super) is_over: bool,
    /// Nor is what waits to be decoded.
    pub(super) is_unknown: bool,
    /// How the body has broken off.
    pub(super) fault: Option<SideError>,
    /// It goes out.
    pub(super) released: Option<HeldBody>,
}

/// What clients may see of the page.
pub(super) type Reading = Pin<Box<dyn Future<Output = Result<Vec<Vec<u8>>, DecodeError>> + Send + Sync>>;

impl HeldPage {
    /// The time is up: what has come by now decides, if it can be decoded soon. `false`: it goes out already.
    pub(super) fn give_up(&mut self) -> bool {
        self.is_unknown = self.is_over;
        self.end_waiting();
        self.released.is_none()
    }

    pub(super) fn end_waiting(&mut self) {
        self.is_over = true;
        if self.released.is_none() {
            self.until = Instant::now() + LAST;
        }
    }

    /// Takes what the origin has sent. Ready when there will be no more, or enough is there. `has_head`: asked when more is waited for.
    pub(super) fn poll_fill<S: Side>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut S,
        has_head: impl FnOnce(&Self) -> bool,
    ) -> Poll<()> {
        let most = if self.codings.is_empty() { LONGEST_HEAD } else { MOST_CODED };
        loop {
            let piece = from.bytes();
            let n = piece.len().min(most - self.body.len());
            Arc::make_mut(&mut self.body).extend_from_slice(&piece[..n]);
            from.consume(n);
            if self.body.len() == most {
                return Poll::Ready(());
            }
            match from.poll_more(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Poll::Ready(()),
                Poll::Pending => {
                    let is_new = self.looks > 0 && self.body.len() > self.looked_at;
                    (self.looks, self.looked_at) = (self.looks - u8::from(is_new), self.body.len());
                    return if is_new && has_head(self) { Poll::Ready(()) } else { Poll::Pending };
                }
                Poll::Ready(Err(fault)) => {
                    self.fault = Some(fault);
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// What was held, as it goes out.
pub(super) struct HeldBody(pub(super) Bytes);

impl BodySource for HeldBody {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn consume(&mut self, n: usize) {
        drop(self.0.split_to(n));
    }

    fn take(&mut self, n: usize) -> Bytes {
        self.0.split_to(n)
    }

    fn poll_more(&mut self, _: &mut Context<'_>) -> Poll<Result<bool, SideError>> {
        Poll::Ready(Ok(false))
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

/// So long is waited for what has come to be decoded.
pub(super) const LAST: Duration = Duration::from_secs(1);
/// Bytes that are held in a content coding: a block of zstd has up to 128 KiB and shows nothing before it is whole (RFC 8878
/// §3.1.1.2.4).
const MOST_CODED: usize = LONGEST_HEAD + 128 * 1024;
