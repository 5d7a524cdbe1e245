//! What the server sends unasked. Pure. Called by `link`; handed to `pacer` and `rulebook`.

use super::pace::Standing;
use redis::{FromRedisValue, Value};
use std::time::Instant;

/// Something has happened in the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// There is a connection.
    Joined,
    /// There is none any more.
    Parted,
    /// This instance has been given a turn, which was told at that instant.
    Turn { key: Box<str>, standing: Standing, at: Instant },
    /// Another instance has been refused by an origin.
    Pace { key: Box<str> },
    /// Another instance has fetched a robots.txt.
    Robots { authority: Box<str> },
}

impl Message {
    /// `at`: when it came. `None`: it is our own, or none that this version knows.
    pub fn parse(data: &[Value], me: &str, at: Instant) -> Option<Self> {
        let [_channel, payload] = data else { return None };
        let text = String::from_redis_value(payload.clone()).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        if kind == "turn" {
            let mut words = rest.splitn(6, ' ');
            let mut number = || words.next()?.parse().ok();
            let numbers = (number()?, number()?, number()?, number()?, number()?);
            let standing = Standing::new(numbers)?;
            return Some(Self::Turn { key: words.next()?.into(), standing, at });
        }
        let (_, name) = rest.split_once(' ').filter(|(from, _)| *from != me)?;
        match kind {
            "pace" => Some(Self::Pace { key: name.into() }),
            "robots" => Some(Self::Robots { authority: name.into() }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::fleet::Place;
    use std::time::Duration;

    fn parsed(payload: &str) -> Option<Message> {
        let channel = Value::BulkString(b"politely:all".to_vec());
        Message::parse(&[channel, Value::BulkString(payload.into())], "me", Instant::now())
    }

    #[test]
    fn a_turn_is_read_with_its_numbers() {
        let Some(Message::Turn { key, standing, .. }) = parsed("turn 3 1500 0 2000000 2 [::1]:8080") else {
            panic!("it is a turn");
        };
        assert_eq!((&*key, standing.place), ("[::1]:8080", Place::Turn(Duration::from_micros(1500))));
        assert_eq!((standing.hold, standing.backoff, standing.rivals), (Duration::ZERO, Duration::from_secs(2), 2));
    }

    #[test]
    fn others_are_heard_and_not_oneself() {
        assert_eq!(parsed("pace other a.example"), Some(Message::Pace { key: "a.example".into() }));
        let robots = Message::Robots { authority: "http://a.example".into() };
        assert_eq!(parsed("robots other http://a.example"), Some(robots));
        assert_eq!(parsed("pace me a.example"), None);
    }

    #[test]
    fn what_it_does_not_know_it_leaves() {
        for payload in ["", "pace", "pace other", "turn", "turn 3 1 2 3 a.example", "turn 9 1 1 1 1 a", "new other a"] {
            assert_eq!(parsed(payload), None, "{payload}");
        }
    }
}
