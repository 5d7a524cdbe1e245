//! A writer that accepts few bytes at a time, for tests.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub struct Narrow {
    /// Maximum number of bytes that each write accepts.
    pub most: usize,
    /// Number of bytes that all writes accept until a test adds room.
    pub room: usize,
    pub written: Vec<u8>,
    pub writes: usize,
}

impl Narrow {
    pub fn new(most: usize, room: usize) -> Self {
        Narrow { most, room, written: Vec::new(), writes: 0 }
    }
}

impl AsyncRead for Narrow {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Narrow {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (before, most) = (self.written.len(), self.most.min(self.room));
        if most == 0 {
            return Poll::Pending;
        }
        for part in parts {
            let n = part.len().min(most - (self.written.len() - before));
            self.written.extend_from_slice(&part[..n]);
        }
        let taken = self.written.len() - before;
        self.room -= taken;
        self.writes += 1;
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
