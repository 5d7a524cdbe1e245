//! Messages of the server, and changes of the connection to it. Pure.

use redis::{FromRedisValue, PushInfo, PushKind};

/// An event in the fleet. A lost message costs time, or leaves a start where it would have been postponed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// The connection to the server was replaced or lost; earlier messages may be lost.
    Link,
    /// A key's state has changed, as an origin has refused another instance; or `news` for the holders of a reservation.
    Pace { key: Box<str>, news: Option<WaitNews> },
    /// Another instance has fetched a robots.txt.
    Robots { authority: Box<str> },
}

/// State of a key's starts. Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct WaitNews {
    /// Total postponement of all starts so far.
    pub put_off: u64,
    /// A request is in flight until then, by the server's clock.
    pub busy: u64,
    /// The longest round trip of an instance.
    pub way: u64,
}

impl Message {
    /// `None`: our own message, or one unknown to this version.
    pub fn parse(push: &PushInfo, me: &str) -> Option<Self> {
        let (PushKind::Message, [_channel, payload]) = (&push.kind, &push.data[..]) else { return None };
        let text = String::from_redis_value(payload.clone()).ok()?;
        let (kind, rest) = text.split_once(' ')?;
        let (_, name) = rest.split_once(' ').filter(|(from, _)| *from != me)?;
        match kind {
            "wait" => {
                let mut words = name.splitn(4, ' ');
                let mut number = || words.next()?.parse().ok();
                let news = Some(WaitNews { put_off: number()?, busy: number()?, way: number()? });
                Some(Self::Pace { key: words.next()?.into(), news })
            }
            "pace" => Some(Self::Pace { key: name.into(), news: None }),
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
        assert_eq!(parsed("pace other a.example"), Some(Message::Pace { key: "a.example".into(), news: None }));
        let robots = Message::Robots { authority: "http://a.example".into() };
        assert_eq!(parsed("robots other http://a.example"), Some(robots));
        let news = Some(WaitNews { put_off: 20, busy: 0, way: 3 });
        assert_eq!(parsed("wait other 20 0 3 a.example"), Some(Message::Pace { key: "a.example".into(), news }));
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
