//! interim
use crate::robots::RobotsTxt;
use std::time::{Duration, SystemTime};

#[derive(Clone)]
pub(super) struct Entry {
    pub access: Access,
    pub status: u16,
    pub fetched_at: SystemTime,
    pub expires_at: SystemTime,
    pub etag: Option<Box<str>>,
    pub last_modified: Option<Box<str>>,
}

#[derive(Clone)]
pub(super) enum Access {
    Absent,
    AllowAll,
    Rules(RobotsTxt),
    Unreachable { why: Box<str>, retry_at: SystemTime, good: Option<RobotsTxt>, failures: u32 },
}

impl Entry {
    pub fn absent() -> Self {
        let t = SystemTime::UNIX_EPOCH;
        Entry { access: Access::Absent, status: 0, fetched_at: t, expires_at: t, etag: None, last_modified: None }
    }
    pub fn lifetime() -> Duration {
        Duration::from_secs(86400)
    }
}
