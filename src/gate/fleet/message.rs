//! What the server sends unasked, and the state of the connection to it. Pure.

use redis::{FromRedisValue, PushInfo, PushKind};

/// Something has happened in the fleet. A message that is lost costs time; or the start that it would have put off is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// There is another connection to the server, or none any more; what was sent before may be lost.
    Link,
    /// An origin has refused another instance.
    Pace { key: Box<str> },
    /// What those have to know who have a start of the key. In microseconds.
    Wait { key: Box<str>, news: WaitNews },
    /// Another instance has fetched a robots.txt.
    Robots { authority: Box<str> },
}

/// How a key's starts stand. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct WaitNews {
    /// By how much all have been put off so far.
    pub put_off: u64,
    /// A request is in flight until then, by the server's clock.
    pub busy: u64,
    /// The longest round trip of an instance.
    pub way: u64,
}

impl Message {
    /// `None`: it is our own, or none that this version knows.
    pub fn parse(push: &PushInfo, me: &str) -> Option<Self> {
        let (PushKind::Message, [_channel, payload]) = (&push.kind, &push.data[..]) else { return None };
        let text = String::from_redis_value(payload.clone()).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        let (_, name) = rest.split_once(' ').filter(|(from, _)| *from != me)?;
        match kind {
            "wait" => {
                let (put_off, rest) = name.split_once(' ')?;
                let (busy, rest) = rest.split_once(' ')?;
                let (way, key) = rest.split_once(' ')?;
                let news =
                    WaitNews { put_off: put_off.parse().ok()?, busy: busy.parse().ok()?, way: way.parse().ok()? };
                Some(Self::Wait { key: key.into(), news })
            }
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
        let news = WaitNews { put_off: 20, busy: 0, way: 3 };
        assert_eq!(parsed("wait other 20 0 3 a.example"), Some(Message::Wait { key: "a.example".into(), news }));
        assert_eq!(parsed("pace me a.example"), None);
    }

    #[test]
    fn what_it_does_not_know_it_leaves() {
        for payload in ["", "pace", "pace other", "free", "new other a", "wait other 1 a.example", "wait other x 1 2 a"]
        {
            assert_eq!(parsed(payload), None, "{payload}");
        }
    }
}
