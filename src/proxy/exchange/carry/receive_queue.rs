//! A queue of received stream content that joins short frames. The h2 crate spends some 256 bytes on each queued frame,
//! and ends the connection if there are too many. Flow control bounds this queue (RFC 9113 §5.2).

use bytes::Bytes;
use std::collections::VecDeque;
use std::mem;

#[derive(Default)]
pub struct ReceiveQueue {
    pieces: VecDeque<Bytes>,
    /// The short pieces that follow `pieces`, joined.
    joined: Vec<u8>,
}

impl ReceiveQueue {
    pub fn push(&mut self, piece: Bytes) {
        let is_short = piece.len() < SHORT;
        if !self.joined.is_empty() && (!is_short || self.joined.len() + piece.len() > JOINED) {
            self.pieces.push_back(mem::take(&mut self.joined).into());
        }
        match is_short {
            true => self.joined.extend_from_slice(&piece),
            false => self.pieces.push_back(piece),
        }
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let joined = || (!self.joined.is_empty()).then(|| mem::take(&mut self.joined).into());
        self.pieces.pop_front().or_else(joined)
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.joined.is_empty()
    }
}

/// Number of bytes below which pieces are joined, because the h2 crate limits the number of such frames. `JOINED`: maximum
/// bytes of a joined piece.
const SHORT: usize = 256;
const JOINED: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_joined_in_order() {
        let content: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
        for lengths in [&[1][..], &[255, 256], &[1, 300, 2, 3, 40_000], &[16 << 10, 8, 8]] {
            let (mut queue, mut rest, mut lengths) = (ReceiveQueue::default(), &content[..], lengths.iter().cycle());
            while !rest.is_empty() {
                let piece;
                (piece, rest) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
                queue.push(Bytes::copy_from_slice(piece));
            }
            let pieces: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            assert!(queue.is_empty() && pieces.concat() == content);
            assert!(pieces.len() <= content.len() / 200, "{} pieces", pieces.len());
        }
    }
}
