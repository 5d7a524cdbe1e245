//! What the server sends unasked. Pure.

use redis::{FromRedisValue, Value};

/// Something has happened in the fleet. A message that is lost costs time, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// There is a connection, perhaps to a server that has forgotten.
    Joined,
    /// There is none any more.
    Parted,
    /// Another instance waits for the lease that this one has; `is_late`: it had been passed over, and is next.
    Wanted { key: Box<str>, is_late: bool },
    /// The lease is free, and this instance is next.
    Free { key: Box<str> },
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
        match kind {
            "wanted" | "due" => return Some(Self::Wanted { key: rest.into(), is_late: kind == "due" }),
            "free" => return Some(Self::Free { key: rest.into() }),
            _ => {}
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

    fn parsed(payload: &str) -> Option<Message> {
        let channel = Value::BulkString(b"politely:all".to_vec());
        Message::parse(&[channel, Value::BulkString(payload.into())], "me")
    }

    #[test]
    fn wake_ups_name_their_key() {
        assert_eq!(parsed("free [::1]:8080"), Some(Message::Free { key: "[::1]:8080".into() }));
        assert_eq!(parsed("wanted a.example"), Some(Message::Wanted { key: "a.example".into(), is_late: false }));
        assert_eq!(parsed("due a.example"), Some(Message::Wanted { key: "a.example".into(), is_late: true }));
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
        for payload in ["", "pace", "pace other", "free", "new other a"] {
            assert_eq!(parsed(payload), None, "{payload}");
        }
    }
}
