//! The buffer of a page whose answer is held back until its usage preferences are known.

use super::carry::{KeptHead, Side, SideError};
use crate::gate::{DecodeError, Workers};
use crate::policy::UsageLines;
use crate::policy::usage::page::{LONGEST_HEAD, PageForm};
use bytes::Bytes;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;

/// A held answer: the part that has arrived.
pub(super) struct HeldPage {
    pub(super) head: KeptHead,
    pub(super) form: Arc<PageForm>,
    /// The part of the body that has arrived.
    pub(super) body: Arc<Vec<u8>>,
    /// Remaining parser steps for finding the end of the page's head.
    pub(super) looks: usize,
    /// The body's length at the last look.
    pub(super) looked_at: usize,
    /// The page's usage preferences, if its whole head has been seen.
    pub(super) says: Option<UsageLines>,
    /// Deadline for knowing the page's usage preferences.
    pub(super) until: Instant,
    /// The read in progress, in a worker thread.
    pub(super) reading: Option<Reading>,
    /// Whether to stop waiting for the rest of the body.
    pub(super) is_over: bool,
    /// Whether the wait for the worker thread was given up, too, so that the page's preferences stay unknown.
    pub(super) has_given_up: bool,
    /// The error that ended the body early.
    pub(super) fault: Option<SideError>,
    /// The unsent rest of the held body, once it is being sent to the client.
    pub(super) released: Option<Bytes>,
}

/// Resolves to the page's usage preferences.
pub(super) type Reading = Pin<Box<dyn Future<Output = Result<UsageLines, DecodeError>> + Send + Sync>>;

impl HeldPage {
    /// Handles the deadline: the body so far decides, if it can be decoded soon. Returns false if the page is already being
    /// sent.
    pub(super) fn give_up(&mut self) -> bool {
        self.has_given_up = self.is_over;
        self.end_waiting();
        self.released.is_none()
    }

    pub(super) fn end_waiting(&mut self) {
        self.is_over = true;
        if self.released.is_none() {
            self.until = Instant::now() + LAST;
        }
    }

    /// Buffers what the origin sends. Ready when the body has ended or failed, the buffer is full, or it has the page's head.
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

    /// Whether the page's head has arrived. Looks again each time the body has doubled, until [`LOOKS`] steps are used up.
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

/// Maximum parser steps of all looks at one page. If they are used up, the page is read when the buffer is full.
pub(super) const LOOKS: usize = 2 * LONGEST_HEAD;
/// Longest wait for decoding the buffered body.
pub(super) const LAST: Duration = Duration::from_secs(1);
/// Maximum bytes held of a body with a content coding: a zstd block has up to 128 KiB and cannot be decoded before it is
/// whole (RFC 8878 §3.1.1.2.4).
const MOST_CODED: usize = LONGEST_HEAD + 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that arrives in small pieces is not parsed again for each piece.
    #[test]
    fn repeated_parsing_of_a_growing_page_takes_few_steps() {
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
            has_given_up: false,
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
