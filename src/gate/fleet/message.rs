//! Messages of the server, and changes of the connection to it.

use redis::{FromRedisValue, PushInfo, PushKind};
use tokio::sync::broadcast::{self, error::RecvError};

/// An event in the fleet. If a message is lost, requests wait longer, or a start that should be postponed is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::gate) enum Message {
    /// The connection to the server was replaced or lost, or messages come too fast; earlier messages may be lost.
    Link,
    /// A key's state has changed, because the origin has refused another instance's request; or there is `news` for instances that hold a
    /// reservation.
    Pace { key: Box<str>, news: Option<WaitNews> },
    /// The server has a newer copy of an authority's robots.txt, or of another of its files. "": may have a newer copy of any.
    Robots { authority: Box<str> },
    /// An instance has given back the right to fetch such a file, without a copy.
    Free { authority: Box<str> },
}

/// News of a key's starts, for instances that hold a reservation. Times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct WaitNews {
    /// Total postponement of the key's starts so far, because requests were sent late.
    pub put_off: u64,
    /// Time until which a request is in flight, by the server's clock. 0: none is in flight.
    pub busy: u64,
    /// The longest round trip of an instance.
    pub way: u64,
}

/// Passes the messages that a link receives from its server on to [`Messages`].
pub(super) type MessageSender = broadcast::Sender<Message>;

/// Receives the messages of all links. If messages come faster than they are read, the oldest are lost, which [`Message::Link`] reports.
pub(in crate::gate) struct Messages(broadcast::Receiver<Message>);

pub(super) fn messages() -> (MessageSender, Messages) {
    let (sender, receiver) = broadcast::channel(MOST_WAITING);
    (sender, Messages(receiver))
}

impl Messages {
    /// The next message. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        match self.0.recv().await {
            Ok(message) => Some(message),
            Err(RecvError::Lagged(_)) => {
                tracing::warn!(
                    "the fleet's messages come faster than they are read: some are lost, so the state is requested again"
                );
                Some(Message::Link)
            }
            Err(RecvError::Closed) => None,
        }
    }
}

impl Message {
    /// Parses a message. `None`: it is our own, malformed, or unknown to this version.
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
            "free" => Some(Self::Free { authority: name.into() }),
            _ => None,
        }
    }
}

/// Maximum number of unread messages: half a megabyte, with the names in them.
const MOST_WAITING: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use redis::Value;

    fn parsed(payload: &str) -> Option<Message> {
        let data = ["politely:all", payload].map(|text| Value::BulkString(text.into())).to_vec();
        Message::parse(&PushInfo { kind: PushKind::Message, data }, "me")
    }

    #[test]
    fn messages_of_others_are_parsed_and_own_ones_ignored() {
        assert_eq!(parsed("pace other a.example"), Some(Message::Pace { key: "a.example".into(), news: None }));
        let robots = Message::Robots { authority: "http://a.example".into() };
        assert_eq!(parsed("robots other http://a.example"), Some(robots));
        let news = Some(WaitNews { put_off: 20, busy: 0, way: 3 });
        assert_eq!(parsed("wait other 20 0 3 a.example"), Some(Message::Pace { key: "a.example".into(), news }));
        assert_eq!(parsed("pace me a.example"), None);
    }

    #[test]
    fn overflowing_messages_take_bounded_memory_and_report_the_loss() {
        let (sender, mut messages) = messages();
        let message = |number: usize| Message::Robots { authority: format!("http://{number}.example").into() };
        for _ in 0..2 {
            (0..3 * MOST_WAITING).for_each(|number| _ = sender.send(message(number)));
            assert_eq!(messages.next().now_or_never(), Some(Some(Message::Link)));
            for number in 2 * MOST_WAITING..3 * MOST_WAITING {
                assert_eq!(messages.next().now_or_never(), Some(Some(message(number))));
            }
            assert_eq!(messages.next().now_or_never(), None);
        }
        drop(sender);
        assert_eq!(messages.next().now_or_never(), Some(None));
    }

    #[test]
    fn unknown_messages_are_ignored() {
        for payload in ["", "pace", "pace other", "free", "new other a", "wait other 1 a.example", "wait other x 1 2 a"]
        {
            assert_eq!(parsed(payload), None, "{payload}");
        }
    }
}
