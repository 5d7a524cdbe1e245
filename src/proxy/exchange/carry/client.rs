//! The client's side: it asks, and is answered once.

use super::answer::{Added, AnswerHead};
use super::side::Side;
use crate::proxy::io::Timer;
use crate::proxy::respond::Answer;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// The client that sent the request.
pub trait Client {
    type Side: Side;

    fn side(&mut self) -> &mut Self::Side;

    /// The request's body comes now, from its beginning. `kept`: it may have to be sent once more. `false`: its beginning is not
    /// there any more.
    fn begin_body(&mut self, kept: bool) -> bool;

    /// All of the request has been taken.
    fn is_received(&self) -> bool;

    fn interim(&mut self, head: &AnswerHead<'_>);

    /// The answer begins. `is_last`: the connection is not kept.
    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, is_last: bool);

    /// An answer of the proxy's own begins. `is_last`: the connection is not kept. Whether its body follows.
    fn answer_locally(&mut self, answer: &Answer, is_last: bool) -> bool;

    /// Whether the connection can be kept behind a final answer that comes before the body has.
    fn may_skip_body(&self) -> bool;

    /// What was asked for is a connection, and it is there.
    fn grant(&mut self);

    /// From now on every byte goes through, both ways.
    fn open(&mut self);

    /// Last words, in the protocol that is spoken inside.
    fn tell(&mut self, bytes: &'static [u8]);

    /// The connection switches to another protocol.
    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>);

    /// The answer cannot be completed: the client must be able to see that.
    fn cut(&mut self);

    /// It has said that it sends no more: it may have gone, which shows in nothing but in what it is sent.
    fn is_silent(&self) -> bool;

    /// Ready when it has gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// When to look again whether it has gone.
    fn wake_at(&self) -> Option<Instant>;

    /// Resolves with the output of what it waits for, or with none when it has gone.
    fn wait<F: Future>(
        &mut self,
        timer: &mut Timer,
        mut waited_for: Pin<&mut F>,
    ) -> impl Future<Output = Option<F::Output>> {
        poll_fn(move |cx| {
            if let Poll::Ready(output) = waited_for.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            loop {
                if self.poll_gone(cx).is_ready() {
                    return Poll::Ready(None);
                }
                match self.wake_at() {
                    Some(at) if timer.poll(cx, at).is_ready() => {}
                    Some(_) | None => return Poll::Pending,
                }
            }
        })
    }
}
