//! A copy of robots.txt in transit between instances.

use std::time::{Duration, SystemTime};

/// A copy as the fleet has it.
pub(in crate::gate) struct Parcel {
    pub bytes: Vec<u8>,
    /// When the copy was stored, by our clock.
    pub sent: SystemTime,
}

/// The result of a look at the copy.
pub(super) enum FoundCopy {
    Copy(Parcel),
    /// The right to fetch the file, and the copy to revalidate; the server's time.
    Right(Option<Parcel>, u64),
    /// Another instance has the right: look again after this time.
    Busy(Duration),
}

impl Parcel {
    /// Empty bytes mean no copy. `age`: in milliseconds.
    pub fn new(bytes: Vec<u8>, age: u64) -> Option<Self> {
        let sent = SystemTime::now().checked_sub(Duration::from_millis(age)).unwrap_or(SystemTime::UNIX_EPOCH);
        (!bytes.is_empty()).then_some(Self { bytes, sent })
    }
}
