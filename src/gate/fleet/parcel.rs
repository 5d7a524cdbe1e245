//! A copy of robots.txt on its way between instances.

use std::time::{Duration, SystemTime};

/// A copy as the fleet has it.
pub(in crate::gate) struct Parcel {
    pub bytes: Vec<u8>,
    /// When it was put there, by our clock.
    pub sent: SystemTime,
}

/// What a look at the copy comes to.
pub(super) enum FoundCopy {
    Copy(Parcel),
    /// The right to fetch it, and one that is to be renewed; the server's time, if there is one.
    Right(Option<Parcel>, u64),
    /// Another has that: look again after so long.
    Busy(Duration),
}

impl Parcel {
    /// None is sent as no bytes. `age`: in milliseconds.
    pub fn new(bytes: Vec<u8>, age: u64) -> Option<Self> {
        let sent = SystemTime::now().checked_sub(Duration::from_millis(age)).unwrap_or(SystemTime::UNIX_EPOCH);
        (!bytes.is_empty()).then_some(Self { bytes, sent })
    }
}
