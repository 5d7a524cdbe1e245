//! What goes over the socket between two processes of a machine: frames of a length and what `postcard` makes of a
//! message. Instants go as distances from the moment of sending, so that no clock has to agree.

use crate::gate::fleet::{LeaseOp, LeaseRequest, LeaseStatus, Message, Place};
use crate::policy::pace::LastStarts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The first that is sent to whoever comes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub version: u32,
    /// Processes that share, the new one included.
    pub members: u32,
}

/// To the one that is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub id: u64,
    pub ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Whether it is there.
    Beat,
    Lease {
        key: String,
        request: Request,
    },
    Copy {
        authority: String,
        wanted: Wanted,
    },
}

/// What is wanted of a copy of robots.txt. Instants are milliseconds since 1970.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::gate) enum Wanted {
    /// It, if it is fresh or not older than that; else the right to fetch it.
    Look { since: u64 },
    /// It, if it is not older; else the right to fetch it.
    Anew { since: u64 },
    /// It, whatever its age.
    Take,
    /// The right for longer.
    Keep,
    /// Here it is, and nobody fetches it any more.
    Put { copy: Vec<u8>, fresh_for: Duration },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Beat { members: u32 },
    Lease(Status),
    Copy(CopyAnswer),
}

/// Now; 0 here it is, 1 fetch it, 2 another does, 3 done; for how long the other may be waited for, in milliseconds; the
/// copy.
pub(in crate::gate) type CopyAnswer = (u64, u8, i64, Vec<u8>);

/// To the one that asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Reply { id: u64, reply: Reply },
    Pace { key: String },
    Robots { authority: String },
}

/// A [`LeaseRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    op: u8,
    number: u64,
    gap: u64,
    starts: Starts,
    backoff: u64,
    is_exact: bool,
    owed: u64,
    matters: u64,
    most: u64,
}

/// A [`LeaseStatus`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Status {
    place: u8,
    left: u64,
    starts: Starts,
    backoff: u64,
    rivals: u32,
}

/// Microseconds ahead of the moment of sending.
#[derive(Debug, Serialize, Deserialize)]
struct Starts([Option<i64>; 3]);

impl Request {
    pub fn new(request: &LeaseRequest, now: Instant) -> Self {
        Self {
            op: match request.op {
                LeaseOp::Take => 0,
                LeaseOp::Keep => 1,
                LeaseOp::Give => 2,
            },
            number: request.number,
            gap: micros(request.gap),
            starts: Starts::new(request.starts, now),
            backoff: micros(request.backoff),
            is_exact: request.is_exact,
            owed: micros(request.owed),
            matters: micros(request.matters),
            most: micros(request.most),
        }
    }

    /// `now`: when it was received. What it tells of counts as later than it was, rather than as earlier.
    pub fn read(self, now: Instant) -> LeaseRequest {
        LeaseRequest {
            op: match self.op {
                0 => LeaseOp::Take,
                1 => LeaseOp::Keep,
                _ => LeaseOp::Give,
            },
            number: self.number,
            gap: duration(self.gap),
            starts: self.starts.read(now),
            backoff: duration(self.backoff),
            is_exact: self.is_exact,
            owed: duration(self.owed),
            matters: duration(self.matters),
            most: duration(self.most),
        }
    }
}

impl Status {
    pub fn new(status: &LeaseStatus, now: Instant) -> Self {
        let (place, left) = match status.place {
            Place::None => (0, Duration::ZERO),
            Place::Free => (1, Duration::ZERO),
            Place::Line(left) => (2, left),
            Place::Leased => (3, Duration::ZERO),
        };
        let (left, backoff) = (micros(left), micros(status.backoff));
        Self { place, left, starts: Starts::new(status.starts, now), backoff, rivals: status.rivals }
    }

    pub fn read(self, now: Instant) -> LeaseStatus {
        let place = match self.place {
            1 => Place::Free,
            2 => Place::Line(duration(self.left).min(LONGEST_LINE)),
            3 => Place::Leased,
            _ => Place::None,
        };
        let (starts, backoff) = (self.starts.read(now), duration(self.backoff));
        LeaseStatus { place, starts, backoff, rivals: self.rivals.clamp(1, MOST_RIVALS) }
    }
}

impl Starts {
    fn new(starts: LastStarts, now: Instant) -> Self {
        let ahead = |at: Option<Instant>| {
            at.map(|at| match at.checked_duration_since(now) {
                Some(ahead) => micros(ahead).cast_signed(),
                None => -micros(now - at).cast_signed(),
            })
        };
        Self([starts.last_start, starts.last_fetch, starts.hold].map(ahead))
    }

    fn read(self, now: Instant) -> LastStarts {
        let at = |ahead: Option<i64>| {
            let ahead = ahead?;
            let distance = duration(ahead.unsigned_abs());
            if ahead < 0 { now.checked_sub(distance) } else { Some(now + distance) }
        };
        let [last_start, last_fetch, hold] = self.0.map(at);
        LastStarts { last_start, last_fetch, hold }
    }
}

impl Told {
    /// `None`: it is not for others.
    pub fn new(message: Message) -> Option<Self> {
        match message {
            Message::Pace { key } => Some(Self::Pace { key: key.into() }),
            Message::Robots { authority } => Some(Self::Robots { authority: authority.into() }),
            Message::Joined | Message::Parted => None,
        }
    }
}

/// `None`: nothing comes any more.
pub(super) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = from.read_u32_le().await?;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    let mut bytes = Vec::new();
    // Grows with what comes, whatever was announced.
    from.take(length.into()).read_to_end(&mut bytes).await?;
    postcard::from_bytes(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

pub(super) async fn send(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let mut frame = postcard::to_extend(message, vec![0; 4]).expect("a vector takes all that there is");
    let length = u32::try_from(frame.len() - 4).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a message that is too long"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    to.write_all(&frame).await
}

/// Whether a copy can be sent; one that is longer is not shared.
pub(super) fn has_room(copy: &[u8]) -> bool {
    copy.len() + MARGIN <= LONGEST as usize
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.min(FAR).as_micros()).expect("a year fits")
}

fn duration(micros: u64) -> Duration {
    Duration::from_micros(micros).min(FAR)
}

/// Of all that is sent here. Raised with each change.
pub(super) const VERSION: u32 = 2;
const LONGEST: u32 = 16 << 20;
/// For all that goes with a copy: an authority, and numbers.
const MARGIN: usize = 1 << 16;
const FAR: Duration = Duration::from_secs(366 * 24 * 3600);
const LONGEST_LINE: Duration = Duration::from_secs(3);
const MOST_RIVALS: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_answered_arrives_whenever_it_was_sent() {
        let now = Instant::now() + Duration::from_secs(60);
        let ago = |ms| Some(now - Duration::from_millis(ms));
        let starts = LastStarts { last_start: ago(1500), last_fetch: None, hold: Some(now + Duration::from_secs(9)) };
        let request = LeaseRequest {
            op: LeaseOp::Keep,
            number: 7,
            gap: Duration::from_millis(2500),
            starts,
            backoff: Duration::from_secs(1),
            is_exact: true,
            owed: Duration::from_secs(2),
            matters: Duration::from_secs(3),
            most: Duration::from_secs(3600),
        };
        assert_eq!(Request::new(&request, now).read(now), request);
        let later = now + Duration::from_secs(5);
        assert_eq!(
            Request::new(&request, now).read(later).starts.last_start,
            Some(later - Duration::from_millis(1500))
        );
        for place in [Place::None, Place::Free, Place::Line(Duration::from_millis(300)), Place::Leased] {
            let status = LeaseStatus { place, starts, backoff: Duration::ZERO, rivals: 3 };
            assert_eq!(Status::new(&status, now).read(now), status);
        }
    }

    #[tokio::test]
    async fn no_bytes_bring_anybody_down() {
        let mut frame = Vec::new();
        let call = Call {
            id: 1,
            ask: Ask::Copy {
                authority: "http://a".into(),
                wanted: Wanted::Put { copy: vec![1; 9], fresh_for: Duration::ZERO },
            },
        };
        send(&mut frame, &call).await.unwrap();
        for place in 0..frame.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[place] = byte;
                let _ = receive::<Call>(&mut &changed[..]).await;
            }
            assert!(receive::<Call>(&mut &frame[..place]).await.is_err());
        }
        let now = Instant::now();
        let starts = || Starts([Some(i64::MIN), Some(i64::MAX), Some(0)]);
        let request = Request {
            op: 9,
            number: 0,
            gap: u64::MAX,
            starts: starts(),
            backoff: u64::MAX,
            is_exact: true,
            owed: u64::MAX,
            matters: u64::MAX,
            most: u64::MAX,
        };
        let mut turns = super::super::turns::Turns::default();
        let status = turns.ask(1, "a", &request.read(now), now);
        let _ = Status::new(&status, now).read(now);
        for place in 0..9 {
            let _ = Status { place, left: u64::MAX, starts: starts(), backoff: u64::MAX, rivals: u32::MAX }.read(now);
        }
    }
}
