//! Frames of HTTP/2 that carry no content (RFC 9113 §10.5): settings, pings, windows, priorities, heads. To read one costs as much as to
//! send one, so a peer may send no more of them than it is given reason to.

use tokio::time::Instant;

/// How many such frames the peer may still send.
pub(super) struct FrameBalance {
    read: FrameScan,
    written: FrameScan,
    left: u64,
    /// Until when `left` has been replenished by time.
    since: Instant,
}

impl FrameBalance {
    pub fn new() -> Self {
        let (read, written) = (FrameScan::default(), FrameScan::default());
        FrameBalance { read, written, left: AT_ONCE, since: Instant::now() }
    }

    /// These bytes go to the peer. It may answer each head, and open windows again by little for the content.
    pub fn written(&mut self, bytes: &[u8]) {
        let mut earned = 0;
        self.written.scan(bytes, |kind, length| {
            earned += if matches!(kind, DATA | HEADERS) { FOR_EACH + length / BYTES } else { 0 };
        });
        self.left = (self.left + earned).min(AT_MOST);
    }

    /// These bytes have come from the peer. `false`: it floods the connection.
    #[must_use]
    pub fn read(&mut self, bytes: &[u8]) -> bool {
        let mut cost = 0;
        // Content keeps within its windows; the h2 crate counts what is empty but for padding.
        self.read.scan(bytes, |kind, length| cost += u64::from(kind != DATA || length == 0));
        if cost > self.left {
            let earned = self.since.elapsed().as_secs().saturating_mul(EACH_SECOND);
            self.since = Instant::now();
            self.left = self.left.saturating_add(earned).min(AT_ONCE.max(self.left));
        }
        let is_within = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_within
    }
}

/// Finds the heads of frames (RFC 9113 §4.1), wherever reads and writes are cut.
#[derive(Default)]
struct FrameScan {
    head: [u8; 9],
    /// How much of the head has come.
    has: usize,
    /// How much of the payload is still to come.
    rest: usize,
}

impl FrameScan {
    /// `seen`: the type of each frame that begins, and the length of its payload.
    fn scan(&mut self, mut bytes: &[u8], mut seen: impl FnMut(u8, u64)) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let passed = self.rest.min(bytes.len());
                self.rest -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let taken = (self.head.len() - self.has).min(bytes.len());
            self.head[self.has..self.has + taken].copy_from_slice(&bytes[..taken]);
            self.has += taken;
            bytes = &bytes[taken..];
            if self.has == self.head.len() {
                self.has = 0;
                let [high, middle, low, kind, ..] = self.head;
                if [high, middle, low] == PREFACE[..3] {
                    self.rest = PREFACE.len() - self.head.len();
                } else {
                    self.rest = u32::from_be_bytes([0, high, middle, low]) as usize;
                    seen(kind, self.rest as u64);
                }
            }
        }
    }
}

/// What a client sends first. As a frame it would be longer than any that is allowed here.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// Frames for which there need be no reason,
const AT_ONCE: u64 = 1000;
/// which come back with time.
const EACH_SECOND: u64 = 10;
/// Frames for each head and each piece of content that the peer is sent: interim answers, trailers, a reset, two windows.
const FOR_EACH: u64 = 8;
/// One more for so many bytes: some servers open two windows by 512 bytes at a time.
const BYTES: u64 = 128;
/// For a window of 16 MiB.
const AT_MOST: u64 = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, length: u32) -> Vec<u8> {
        [&length.to_be_bytes()[1..], &[kind, 0, 0, 0, 0, 1], &vec![0; length as usize]].concat()
    }

    /// How many frames are taken before it is a flood, of at most a million.
    fn taken(balance: &mut FrameBalance, frame: &[u8]) -> usize {
        (0..1_000_000).take_while(|_| balance.read(frame)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_carry_nothing_are_bounded_and_content_is_not() {
        for (kind, length) in
            [(DATA, 0), (HEADERS, 1), (2, 5), (4, 6), (PING, 8), (WINDOW_UPDATE, 4), (9, 0), (0xbe, 9)]
        {
            assert_eq!(taken(&mut FrameBalance::new(), &frame(kind, length)), 1000, "{kind}");
        }
        assert_eq!(taken(&mut FrameBalance::new(), &frame(DATA, 1)), 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_may_be_cut_anywhere() {
        let bytes = [PREFACE, &frame(4, 6), &frame(PING, 8), &frame(DATA, 3), &frame(HEADERS, 300)].concat();
        for cut in 1..bytes.len() {
            let (mut scan, mut seen) = (FrameScan::default(), Vec::new());
            bytes.chunks(cut).for_each(|piece| scan.scan(piece, |kind, length| seen.push((kind, length))));
            assert_eq!(seen, [(4, 6), (PING, 8), (DATA, 3), (HEADERS, 300)], "{cut}");
        }
    }

    /// Acknowledgements do not: a flood of pings would pay for itself.
    #[tokio::test(start_paused = true)]
    async fn what_the_peer_is_sent_gives_it_reason_to_answer() {
        let mut balance = FrameBalance::new();
        for _ in 0..10_000 {
            balance.written(&frame(DATA, 16 << 10));
            let windows = frame(WINDOW_UPDATE, 4).repeat(2 * (16 << 10) / 512);
            assert!(balance.read(&windows), "two for each 512 bytes");
        }
        let mut balance = FrameBalance::new();
        let pings = (0..10_000).take_while(|_| {
            balance.written(&frame(PING, 8));
            balance.read(&frame(PING, 8))
        });
        assert_eq!(pings.count(), 1000);
        let mut balance = FrameBalance::new();
        (0..1_000_000).for_each(|_| balance.written(&frame(HEADERS, 10)));
        assert_eq!(taken(&mut balance, &frame(PING, 8)), 1 << 17, "not without end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_a_second_are_no_flood() {
        let mut balance = FrameBalance::new();
        for _ in 0..10_000 {
            assert!((0..10).all(|_| balance.read(&frame(PING, 8))));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(
            taken(&mut balance, &frame(PING, 8)) <= 2000,
            "and what is saved up is no more than there was at first"
        );
    }
}
