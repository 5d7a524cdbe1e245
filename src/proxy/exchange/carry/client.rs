//! The client side of an exchange.

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

    /// Notes that the request's body is about to be read.
    fn begin_body(&mut self) {}

    /// Whether the whole request has been read.
    fn is_received(&self) -> bool;

    fn interim(&mut self, head: &AnswerHead<'_>);

    /// Sends the head of the origin's answer. `is_last`: the connection closes afterwards.
    fn answer(&mut self, head: &AnswerHead<'_>, added: &Added<'_>, is_last: bool);

    /// Sends the head of a local answer. `is_last`: the connection closes afterwards. Returns whether a body follows.
    fn answer_locally(&mut self, answer: &Answer, is_last: bool) -> bool;

    /// Whether the connection can be kept if the answer comes before the request's body.
    fn may_skip_body(&self) -> bool;

    /// Grants a CONNECT.
    fn grant(&mut self);

    /// Switches to passing all bytes in both directions.
    fn open(&mut self);

    /// Sends bytes in the protocol inside a tunnel, such as a TLS alert.
    fn tell(&mut self, bytes: &'static [u8]);

    /// Sends the head that switches protocols. Returns its status in the client's version of HTTP.
    fn switch(&mut self, head: &AnswerHead<'_>, added: &Added<'_>) -> u16;

    /// Ends an incomplete answer so that the client sees that it is incomplete.
    fn cut(&mut self);

    /// Whether the client has closed its sending half. Such a client may have gone, which the proxy notices only when it sends something.
    fn is_half_closed(&self) -> bool;

    /// Ready when the client has gone.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// When to check again whether the client has gone.
    fn wake_at(&self) -> Option<Instant>;

    /// Waits for a future. Resolves to `None` if the client leaves first.
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
