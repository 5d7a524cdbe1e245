//! An origin's content on its way to the client, of which the cache has a copy.

use super::super::carry::{BodySource, Fault};
use crate::gate::cache::StoringAnswer;
use bytes::Bytes;
use http::HeaderMap;
use std::task::{Context, Poll};

/// What is taken of `from` goes into `to` as well.
pub(in crate::proxy::exchange) struct Tee<'a, S> {
    pub from: &'a mut S,
    pub to: &'a mut StoringAnswer,
}

impl<S: BodySource> BodySource for Tee<'_, S> {
    fn bytes(&self) -> &[u8] {
        self.from.bytes()
    }

    fn consume(&mut self, n: usize) {
        if n > 0 {
            self.to.push(Bytes::copy_from_slice(&self.from.bytes()[..n]));
        }
        self.from.consume(n);
    }

    fn take(&mut self, n: usize) -> Bytes {
        let taken = self.from.take(n);
        if n > 0 {
            self.to.push(taken.clone());
        }
        taken
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Fault>> {
        self.from.poll_more(cx)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.from.trailers()
    }
}
