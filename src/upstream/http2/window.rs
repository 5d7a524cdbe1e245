//! Receive windows of HTTP/2 origins (RFC 9113 §5.2). A window limits the throughput in one round trip, and the memory that this
//! process needs if the reader stalls.

use super::vitals::{Vitals, WINDOW};
use bytes::Bytes;
use h2::client::Connection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Window in bytes of a stream that is alone on its connection, if its reader keeps up: 20 MB/s at a round trip of 200 ms.
const LARGE: u32 = 4 * 1024 * 1024;
/// Limits the number of large windows in this process.
static LARGE_ONES: Semaphore = Semaphore::const_new(16);

/// The window of the streams of one connection.
#[derive(Default)]
pub(super) struct Window {
    /// `None`: the window has its usual size.
    large: Option<SemaphorePermit<'static>>,
}

impl Window {
    /// Enlarges the window for a lone stream, and resets it when the stream has ended. No other stream may begin meanwhile: stalled
    /// readers with large windows would use up the connection's window.
    pub fn fit<T>(&mut self, carrier: &mut Connection<T, Bytes>, vitals: &Vitals)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        // Fails while the origin has not confirmed the previous change.
        let mut set = |size| carrier.set_initial_window_size(size).is_ok();
        match vitals.streams() {
            0 if self.large.is_some() && set(WINDOW) => {
                self.large = None;
                vitals.let_others_in();
            }
            1 if self.large.is_none() && vitals.keeps_up() => {
                let Ok(permit) = LARGE_ONES.try_acquire() else { return };
                if vitals.keep_others_out() {
                    match set(LARGE) {
                        true => self.large = Some(permit),
                        false => vitals.let_others_in(),
                    }
                }
            }
            _ => {}
        }
    }
}
