//! How far an HTTP/2 origin may be ahead of the client that reads its answers (RFC 9113 §5.2). What a window allows is all that comes in
//! one round trip, and what this process has to hold where the reader stops.

use bytes::Bytes;
use h2::client::Connection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of each stream.
pub(super) const WINDOW: u32 = 256 * 1024;
/// What has come for one stream alone, when its reader is known to keep up: four windows, which it has emptied as often.
pub(super) const KEPT_UP: u64 = 4 * WINDOW as u64;
/// Of a stream that is alone on its connection and whose reader keeps up: 20 MB/s where a round trip takes 200 ms.
const LARGE: u32 = 4 * 1024 * 1024;
/// In the whole process.
static LARGE_ONES: Semaphore = Semaphore::const_new(16);

/// That of the streams of one connection.
#[derive(Default)]
pub(super) struct Window {
    is_large: bool,
    permit: Option<SemaphorePermit<'static>>,
}

impl Window {
    /// `come`: how much has come for the only stream, if there is one alone.
    pub fn fit<T>(&mut self, carrier: &mut Connection<T, Bytes>, streams: usize, come: u64)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        // It fails while the origin has not confirmed the one before; then it is tried again with the next stream.
        let mut set = |size| carrier.set_initial_window_size(size).is_ok();
        if streams == 1 && come >= KEPT_UP && !self.is_large {
            self.permit = LARGE_ONES.try_acquire().ok();
            self.is_large = self.permit.is_some() && set(LARGE);
        } else if self.is_large && (streams != 1 || self.permit.is_none()) {
            self.is_large = !set(WINDOW);
        }
        if streams == 0 || !self.is_large {
            self.permit = None;
        }
    }
}
