//! Flood limit for HTTP/2 frames without content (RFC 9113 §10.5): SETTINGS, PING, WINDOW_UPDATE, PRIORITY, HEADERS. Reading
//! a frame costs as much as sending it, so a peer may send only as many as our own frames justify.

use tokio::time::Instant;

/// The number of frames without content that the peer may still send.
pub(super) struct FrameBalance {
    read: FrameScan,
    written: FrameScan,
    left: u64,
    /// The time up to which `left` was replenished.
    since: Instant,
    /// Change of the balance for a received HEADERS frame. Positive for a client, because requests have other limits, and
    /// because the client may cancel each request at once.
    by_head: i64,
}

impl FrameBalance {
    /// The balance of an origin, whose HEADERS frames cost as much as other frames.
    pub fn of_origin() -> Self {
        let (read, written) = (FrameScan::default(), FrameScan::default());
        FrameBalance { read, written, left: AT_ONCE, since: Instant::now(), by_head: -1 }
    }

    pub fn of_client() -> Self {
        FrameBalance { by_head: 1, ..Self::of_origin() }
    }

    /// Accounts for bytes sent to the peer: it may answer each HEADERS frame, and send several WINDOW_UPDATEs for the content.
    pub fn written(&mut self, bytes: &[u8]) {
        let mut earned = 0;
        self.written.scan(bytes, |kind, length| {
            earned += if matches!(kind, DATA | HEADERS) { FOR_EACH + length / BYTES } else { 0 };
        });
        self.left = (self.left + earned).min(AT_MOST);
    }

    /// Accounts for bytes received from the peer. Returns the number of frames that begin in them; `None`: the peer floods the
    /// connection.
    #[must_use]
    pub fn read(&mut self, bytes: &[u8]) -> Option<u32> {
        let (mut frames, mut balance, by_head) = (0, 0, self.by_head);
        self.read.scan(bytes, |kind, length| {
            frames += 1;
            balance += match kind {
                HEADERS => by_head,
                // Content is limited by its windows; the h2 crate counts frames with padding only.
                DATA if length > 0 => 0,
                _ => -1,
            };
        });
        let cost = u64::try_from(-balance).unwrap_or(0);
        self.left = (self.left + u64::try_from(balance).unwrap_or(0)).min(AT_MOST);
        if cost > self.left {
            let earned = self.since.elapsed().as_secs().saturating_mul(EACH_SECOND);
            self.since = Instant::now();
            self.left = self.left.saturating_add(earned).min(AT_ONCE.max(self.left));
        }
        let is_within = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        is_within.then_some(frames)
    }
}

/// Finds frame headers (RFC 9113 §4.1), however reads and writes are split.
#[derive(Default)]
struct FrameScan {
    head: [u8; 9],
    /// Bytes of the header received so far.
    has: usize,
    /// Bytes of the payload still to come.
    rest: usize,
}

impl FrameScan {
    /// `seen` is called with the type and payload length of each frame that begins.
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

/// The connection preface of a client. Read as a frame header, its length exceeds every allowed frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
/// Number of frames that a peer may send at once, besides those that our own frames justify.
const AT_ONCE: u64 = 1000;
/// Number of frames by which the balance is replenished each second, up to `AT_ONCE`.
const EACH_SECOND: u64 = 10;
/// Number of frames that each HEADERS or DATA frame sent to the peer justifies: interim answers, trailers, a reset, two
/// window updates.
const FOR_EACH: u64 = 8;
/// Number of bytes sent that justify one more frame: some servers send two window updates after each read, even of 16 bytes.
const BYTES: u64 = 8;
/// Maximum balance in frames: enough for a window of 16 MiB.
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

    /// Counts how many of these frames are accepted before they are a flood; at most a million.
    fn taken(balance: &mut FrameBalance, frame: &[u8]) -> usize {
        (0..1_000_000).take_while(|_| balance.read(frame).is_some()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_content_are_limited_and_content_is_not() {
        for (kind, length) in
            [(DATA, 0), (HEADERS, 1), (2, 5), (4, 6), (PING, 8), (WINDOW_UPDATE, 4), (9, 0), (0xbe, 9)]
        {
            assert_eq!(taken(&mut FrameBalance::of_origin(), &frame(kind, length)), 1000, "{kind}");
        }
        assert_eq!(taken(&mut FrameBalance::of_origin(), &frame(DATA, 1)), 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn frame_headers_are_found_however_the_bytes_are_split() {
        let bytes = [PREFACE, &frame(4, 6), &frame(PING, 8), &frame(DATA, 3), &frame(HEADERS, 300)].concat();
        for cut in 1..bytes.len() {
            let (mut scan, mut seen) = (FrameScan::default(), Vec::new());
            bytes.chunks(cut).for_each(|piece| scan.scan(piece, |kind, length| seen.push((kind, length))));
            assert_eq!(seen, [(4, 6), (PING, 8), (DATA, 3), (HEADERS, 300)], "{cut}");
        }
    }

    /// Acknowledgements earn nothing: otherwise a flood of pings would pay for itself.
    #[tokio::test(start_paused = true)]
    async fn sent_heads_and_data_allow_more_frames_but_sent_pings_do_not() {
        let mut balance = FrameBalance::of_origin();
        for _ in 0..10_000 {
            balance.written(&frame(DATA, 16 << 10));
            let windows = frame(WINDOW_UPDATE, 4).repeat(2 * (16 << 10) / 16);
            assert_eq!(balance.read(&windows), Some(2048), "two window updates for each 16 bytes sent");
        }
        let mut balance = FrameBalance::of_origin();
        let pings = (0..10_000).take_while(|_| {
            balance.written(&frame(PING, 8));
            balance.read(&frame(PING, 8)).is_some()
        });
        assert_eq!(pings.count(), 1000);
        let mut balance = FrameBalance::of_origin();
        (0..1_000_000).for_each(|_| balance.written(&frame(HEADERS, 10)));
        assert_eq!(taken(&mut balance, &frame(PING, 8)), 1 << 17, "the balance is limited");
    }

    #[tokio::test(start_paused = true)]
    async fn client_may_reset_each_of_its_requests() {
        let mut balance = FrameBalance::of_client();
        let given_up = [frame(HEADERS, 10), frame(3, 4)].concat();
        assert_eq!(taken(&mut balance, &given_up), 1_000_000);
        assert_eq!(taken(&mut FrameBalance::of_client(), &frame(3, 4)), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn ten_frames_a_second_are_not_a_flood() {
        let mut balance = FrameBalance::of_origin();
        for _ in 0..10_000 {
            assert!((0..10).all(|_| balance.read(&frame(PING, 8)).is_some()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert!(taken(&mut balance, &frame(PING, 8)) <= 2000, "the balance saved up is bounded");
    }
}
