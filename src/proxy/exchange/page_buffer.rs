//! A page's answer that is held back, as far as it has come.

use super::carry::{BodySource, KeptHead, Side, SideError};
use crate::gate::{DecodeError, Workers};
use crate::policy::UsageLines;
use crate::policy::usage::page::{LONGEST_HEAD, PageForm};
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// The answer so far.
pub(super) struct HeldPage {
    pub(super) head: KeptHead,
    pub(super) form: Arc<PageForm>,
    /// What has come of its body.
    pub(super) body: Arc<Vec<u8>>,
    /// Steps that are left to look for the end of the head.
    pub(super) looks: usize,
    /// The body's length at the last look.
    pub(super) looked_at: usize,
    /// What the page says, if its head has been seen.
    pub(super) says: Option<UsageLines>,
    /// Until then something has to be known, or, once it goes out, taken.
    pub(super) until: Instant,
    /// It is being read.
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

/// What the page says.
pub(super) type Reading = Pin<Box<dyn Future<Output = Result<UsageLines, DecodeError>> + Send + Sync>>;

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

    /// Takes what the origin has sent. Ready when there will be no more, or enough is there.
    pub(super) fn poll_fill<S: Side>(&mut self, cx: &mut Context<'_>, from: &mut S) -> Poll<()> {
        let most = if self.form.codings.is_empty() { LONGEST_HEAD } else { MOST_CODED };
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
                Poll::Pending if self.shows_head() => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(fault)) => {
                    self.fault = Some(fault);
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Whether the page's head has come. Looks again when the body is twice as long, as far as [`LOOKS`] goes.
    fn shows_head(&mut self) -> bool {
        if self.looks == 0 || self.body.len() < (2 * self.looked_at).max(1) {
            return false;
        }
        self.looked_at = self.body.len();
        let Ok(read) = Workers::page_at_once(&self.body, &self.form, self.looks) else {
            self.looks = 0;
            return false;
        };
        self.looks -= read.steps;
        self.says = Some(read.lines).filter(|_| read.has_head);
        self.says.is_some()
    }
}

/// What was held, as it goes out. The origin's rest follows.
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
}

/// Steps of all looks at a page. Where they are spent, the page is read up to its bound.
pub(super) const LOOKS: usize = 2 * LONGEST_HEAD;
/// So long is waited for what has come to be decoded.
pub(super) const LAST: Duration = Duration::from_secs(1);
/// Bytes that are held in a content coding: a block of zstd has up to 128 KiB and shows nothing before it is whole (RFC 8878
/// §3.1.1.2.4).
const MOST_CODED: usize = LONGEST_HEAD + 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that comes in small pieces is not looked at anew for each of them.
    #[test]
    fn all_looks_at_a_page_take_few_steps() {
        let page = "<head><meta name=description content=text>".repeat(1_500);
        let mut held = HeldPage {
            head: KeptHead::Http1(Vec::new()),
            form: Arc::new(PageForm {
                content_type: b"text/html".to_vec(),
                codings: String::new(),
                product_tokens: Vec::new(),
            }),
            body: Arc::default(),
            looks: LOOKS,
            looked_at: 0,
            says: None,
            until: Instant::now(),
            reading: None,
            is_over: false,
            is_unknown: false,
            fault: None,
            released: None,
        };
        let steps = crate::robots::steps_of(|| {
            for piece in [&page.as_bytes()[..55_000]].into_iter().chain(page.as_bytes()[55_000..].chunks(10)) {
                Arc::make_mut(&mut held.body).extend_from_slice(piece);
                assert!(!held.shows_head());
            }
        });
        assert!(steps <= 2 * LONGEST_HEAD as u64, "{steps} steps");
    }
}
