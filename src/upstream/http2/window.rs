//! How far an HTTP/2 origin may be ahead of the client that reads its answers (RFC 9113 §5.2). What a window allows is all that comes in
//! one round trip, and what this process has to hold where the reader stops.

use super::vitals::{Vitals, WINDOW};
use bytes::Bytes;
use h2::client::Connection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of a stream that is alone on its connection and whose reader keeps up: 20 MB/s where a round trip takes 200 ms.
const LARGE: u32 = 4 * 1024 * 1024;
/// In the whole process.
static LARGE_ONES: Semaphore = Semaphore::const_new(16);

/// That of the streams of one connection.
#[derive(Default)]
pub(super) struct Window {
    /// `None`: it is not large.
    large: Option<SemaphorePermit<'static>>,
}

impl Window {
    /// Makes it large for a stream that is alone, and small again when that has ended. Others begin beside none that is large: readers
    /// that stop would hold so much each that they freeze the connection.
    pub fn fit<T>(&mut self, carrier: &mut Connection<T, Bytes>, vitals: &Vitals)
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        // It fails while the origin has not confirmed the one before.
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
