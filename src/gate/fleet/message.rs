//! What the server sends unasked. Pure. Called by `link`; handed to `pacer` and `rulebook`.

use super::pace::Standing;
use redis::{FromRedisValue, Value};

/// Something has happened in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// There is a connection.
    Joined,
    /// There is none any more.
    Parted,
    /// This instance has been given a turn.
    Turn { key: Box<str>, standing: Standing },
    /// Another instance has been refused by an origin.
    Pace { key: Box<str> },
    /// Another instance has fetched a robots.txt.
    Robots { authority: Box<str> },
}

impl Message {
    /// `None`: it is our own, or none that this version knows.
    pub fn parse(data: &[Value], me: &str) -> Option<Self> {
        let [_channel, payload] = data else { return None };
        let text = String::from_redis_value(payload.clone()).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        if kind == "turn" {
            let mut words = rest.splitn(6, ' ');
            let mut number = || words.next()?.parse().ok();
            let numbers = (number()?, number()?, number()?, number()?, number()?);
            let standing = Standing::new(numbers)?;
            return Some(Self::Turn { key: words.next()?.into(), standing });
        }
        let (from, name) = rest.split_once(' ').filter(|(from, _)| *from != me)?;
        debug_assert!(!from.is_empty());
        match kind {
            "pace" => Some(Self::Pace { key: name.into() }),
            "robots" => Some(Self::Robots { authority: name.into() }),
            _ => None,
        }
    }
}
