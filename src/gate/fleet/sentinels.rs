//! The Sentinels that name the fleet's server. Each is asked over its own persistent connection, even while the server is unreachable.

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisResult};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::sleep;

/// The Sentinels of one server.
pub(super) struct Sentinels {
    each: Vec<(Client, Option<MultiplexedConnection>)>,
    question: Cmd,
}

/// The address of a server.
pub(super) type HostPort = (String, u16);

impl Sentinels {
    pub fn new(each: Vec<Client>, master: &str) -> Self {
        let mut question = redis::cmd("SENTINEL");
        question.arg("MASTER").arg(master);
        Self { each: each.into_iter().map(|client| (client, None)).collect(), question }
    }

    /// Waits until the Sentinels name a server other than `than`. Sentinels that fail or name no server are ignored.
    pub async fn name_another(&mut self, than: &HostPort) {
        loop {
            sleep(ASK_EVERY).await;
            if self.name().await.is_ok_and(|named| named != *than) {
                return;
            }
        }
    }

    /// The current server. If the Sentinels name different servers, the one with the latest epoch: the other Sentinels may not know of the
    /// last failover yet.
    pub async fn name(&mut self) -> RedisResult<HostPort> {
        let question = &self.question;
        let answers = join_all(self.each.iter_mut().map(|(client, connection)| async move {
            let answer = ask(client, connection, question).await;
            if answer.is_err() {
                *connection = None;
            }
            answer
        }));
        let (mut latest, mut why) = (None, (ErrorKind::MasterNameNotFoundBySentinel, NONE_NAMED).into());
        for answer in answers.await {
            match answer {
                Ok(named) => latest = latest.max(named),
                Err(error) => why = error,
            }
        }
        latest.map(|(_, named)| named).ok_or(why)
    }
}

/// The server's epoch and address. `None`: according to this Sentinel, the server is down.
async fn ask(
    client: &Client,
    connection: &mut Option<MultiplexedConnection>,
    question: &Cmd,
) -> RedisResult<Option<(u64, HostPort)>> {
    if connection.is_none() {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ASK_EVERY));
        let config = config.set_response_timeout(Some(ASK_EVERY));
        *connection = Some(client.get_multiplexed_async_connection_with_config(&config).await?);
    }
    let said: HashMap<String, String> = question.query_async(connection.as_mut().expect("connected above")).await?;
    let named = || {
        let is_up = !said.get("flags")?.contains("_down");
        let (epoch, port) = (said.get("config-epoch")?.parse().ok()?, said.get("port")?.parse().ok()?);
        is_up.then_some((epoch, (said.get("ip")?.clone(), port)))
    };
    Ok(named())
}

/// Time between two questions, and time limit for one answer, so that a silent Sentinel delays little.
const ASK_EVERY: Duration = Duration::from_secs(1);
const NONE_NAMED: &str = "the Sentinels name no server that is up";

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A Sentinel with a fixed answer that counts its connections.
    async fn sentinel(answer: String, connections: &'static AtomicUsize) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let url = format!("redis://{}", listener.local_addr().expect("the listener is bound"));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut asked = [0; 1024];
                    while stream.read(&mut asked).await.is_ok_and(|read| read > 0) {
                        if String::from_utf8_lossy(&asked).contains("SENTINEL") {
                            let _ = stream.write_all(answer.as_bytes()).await;
                        }
                    }
                });
            }
        });
        let info = redis::IntoConnectionInfo::into_connection_info(url).expect("a good URL");
        Client::open(info.set_redis_settings(redis::RedisConnectionInfo::default().set_skip_set_lib_name()))
            .expect("a good URL")
    }

    fn names(port: &str, epoch: u64, flags: &str) -> String {
        let fields = ["ip", "127.0.0.1", "port", port, "flags", flags, "config-epoch", &epoch.to_string()];
        let fields: String = fields.iter().map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
        format!("*8\r\n{fields}")
    }

    #[tokio::test]
    async fn sentinel_with_the_latest_epoch_is_believed_and_connections_are_kept() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let mut each = Vec::new();
        for answer in [names("1", 3, "master"), names("2", 10, "master"), names("3", 11, "master,o_down")] {
            each.push(sentinel(answer, &COUNT).await);
        }
        each.push(sentinel("-ERR No such master with that name\r\n".to_owned(), Box::leak(Box::default())).await);
        let mut all = Sentinels::new(each, "main");
        for _ in 0..3 {
            assert_eq!(all.name().await.ok(), Some(("127.0.0.1".to_owned(), 2)));
        }
        assert_eq!(COUNT.load(Ordering::Relaxed), 3);
        let unnamed = Sentinels::new(vec![sentinel(names("1", 3, "master,s_down"), &COUNT).await], "main").name().await;
        assert_eq!(unnamed.map_err(|error| error.kind()), Err(ErrorKind::MasterNameNotFoundBySentinel));
    }
}
