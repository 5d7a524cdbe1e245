//! The beginning of a request's body, kept for another attempt while it is short enough.

use super::side::BodySource;

/// The kept beginning of a body. As a [`BodySource`], it yields the kept bytes that the current attempt has not sent yet.
#[derive(Default)]
pub struct Replay {
    kept: Vec<u8>,
    /// Bytes of `kept` that the current attempt has sent.
    sent: usize,
    /// No more bytes are kept: the body is too long, or no other attempt follows.
    is_over: bool,
}

impl Replay {
    /// Starts an attempt. Returns false if the beginning of the body is no longer available.
    pub fn begin(&mut self) -> bool {
        self.sent = 0;
        !self.is_over
    }

    /// Keeps a new piece that is about to be sent. All kept bytes must have been sent before.
    pub fn keep(&mut self, piece: &[u8]) {
        if self.is_over || self.kept.len() + piece.len() > MAX_REPLAY {
            return self.end();
        }
        self.kept.extend_from_slice(piece);
        self.sent = self.kept.len();
    }

    /// Stops keeping bytes, because no other attempt follows.
    pub fn end(&mut self) {
        self.is_over = true;
        if self.bytes().is_empty() {
            (self.kept, self.sent) = (Vec::new(), 0);
        }
    }
}

impl BodySource for Replay {
    fn bytes(&self) -> &[u8] {
        &self.kept[self.sent..]
    }

    fn consume(&mut self, n: usize) {
        self.sent += n;
    }
}

/// Maximum number of body bytes kept for a retry.
const MAX_REPLAY: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_sends_the_body_from_its_beginning() {
        let mut replay = Replay::default();
        assert!(replay.begin() && replay.bytes().is_empty());
        replay.keep(b"abc");
        assert!(replay.bytes().is_empty(), "the current attempt has sent the piece");
        assert!(replay.begin());
        replay.consume(2);
        assert!(replay.begin());
        assert_eq!(replay.take(3), "abc");
        replay.keep(b"d");
        assert!(replay.begin());
        replay.end();
        assert_eq!(replay.bytes(), b"abcd", "an early answer does not cut the request");
        assert!(!replay.begin());
    }

    #[test]
    fn overlong_body_is_not_kept_for_replay() {
        let mut replay = Replay::default();
        replay.keep(&[0; MAX_REPLAY]);
        assert!(replay.begin());
        replay.consume(MAX_REPLAY);
        replay.keep(b"x");
        assert!(!replay.begin() && replay.bytes().is_empty());
        assert_eq!(replay.kept.capacity(), 0);
    }
}
