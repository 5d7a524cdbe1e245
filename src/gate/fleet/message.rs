//! What the server sends unasked, and the state of the connection to it. Pure.

use redis::{FromRedisValue, PushInfo, PushKind};

/// Something has happened in the fleet. A message that is lost costs time, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// There is another connection to the server, or none any more; what was sent before may be lost.
    Link,
    /// How a key stands has changed: its lease is this instance's now, or an origin has refused another instance.
    Pace { key: Box<str> },
    /// Another instance has fetched a robots.txt.
    Robots { authority: Box<str> },
}

impl Message {
    /// `None`: it is our own, or none that this version knows.
    pub fn parse(push: &PushInfo, me: &str) -> Option<Self> {
        let (PushKind::Message, [_channel, payload]) = (&push.kind, &push.data[..]) else { return None };
        let text = String::from_redis_value(payload.clone()).ok()?;
        let (kind, rest) = text.split_once(' ')?;
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
    use redis::Value;

    fn parsed(payload: &str) -> Option<Message> {
        let data = ["politely:all", payload].map(|text| Value::BulkString(text.into())).to_vec();
        Message::parse(&PushInfo { kind: PushKind::Message, data }, "me")
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
