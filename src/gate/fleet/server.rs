//! What a fleet's URL leads to: one server, one that Sentinels name, or a cluster, each by the redis crate's own client.

use crate::config::SecretUrl;
use crate::tls::roots;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, Pipeline, ProtocolVersion,
    PushInfo, RedisError, RedisFuture, RedisResult, TlsCertificates, TlsMode, Value,
};
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use url::Url;

/// Where to connect to.
pub(super) enum Server {
    One(Box<Client>),
    Sentinel(Box<SentinelClient>),
    Cluster(Vec<ConnectionInfo>, Option<TlsCertificates>),
}

/// A connection, which calls share.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Server {
    /// `ca_file`: roots beside the system's, to verify servers by where the URL says TLS.
    pub fn new(url: &SecretUrl, ca_file: Option<&Path>) -> Result<Self, String> {
        let url = url.expose();
        let (scheme, kind) = url.scheme().split_once('+').unwrap_or((url.scheme(), ""));
        let certificates = match scheme {
            "rediss" => Some(roots::bundle(ca_file).map_err(|error| error.to_string())?.pem),
            _ => None,
        };
        let certificates = certificates.map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem.into()) });
        let built = match kind {
            "sentinel" => sentinel(url, scheme, certificates).map(|client| Self::Sentinel(Box::new(client))),
            "cluster" => nodes(url, scheme, true).map(|nodes| Self::Cluster(nodes, certificates)),
            _ => nodes(url, scheme, true).and_then(|mut nodes| {
                let info = nodes.remove(0);
                let client = match certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates)?,
                    None => Client::open(info)?,
                };
                Ok(Self::One(Box::new(client)))
            }),
        };
        built.map_err(|error| words(&error))
    }

    /// `pushes`: gets what the server sends unasked. `patience`: for one answer.
    pub async fn connect(&mut self, pushes: UnboundedSender<PushInfo>, patience: Duration) -> RedisResult<Connection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(patience))
            .set_response_timeout(Some(patience))
            .set_push_sender(pushes.clone());
        match self {
            Self::One(client) => client.get_multiplexed_async_connection_with_config(&config).await,
            Self::Sentinel(client) => client.get_async_connection_with_config(&config).await,
            Self::Cluster(nodes, certificates) => {
                let mut builder = ClusterClientBuilder::new(nodes.clone())
                    .use_protocol(ProtocolVersion::RESP3)
                    .tcp_settings(tcp())
                    .connection_timeout(patience)
                    .response_timeout(patience)
                    .push_sender(pushes);
                if let Some(certificates) = certificates {
                    builder = builder.certs(certificates.clone());
                }
                return builder.build()?.get_async_connection().await.map(Connection::Cluster);
            }
        }
        .map(Connection::One)
    }
}

impl Connection {
    pub async fn subscribe(&mut self, channels: &[&str]) -> RedisResult<()> {
        match self {
            Self::One(connection) => connection.subscribe(channels).await,
            Self::Cluster(connection) => connection.subscribe(channels).await,
        }
    }

    /// Which run of the server it leads to: another has forgotten, or lags. `None`: it is a cluster, or does not tell.
    pub async fn run(&mut self) -> Option<String> {
        let Self::One(connection) = self else { return None };
        let server: String = redis::cmd("INFO").arg("server").query_async(connection).await.ok()?;
        server.lines().find_map(|line| line.strip_prefix("run_id:")).map(|run| run.trim().to_owned())
    }

    /// Whether the loss of one connection is the loss of all.
    pub fn is_one(&self) -> bool {
        matches!(self, Self::One(_))
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(cmd, offset, count),
            Self::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}

/// An error, with what to do about it where that is known. The server does not repeat passwords.
pub(super) fn words(error: &RedisError) -> String {
    let hint = match error.kind() {
        ErrorKind::AuthenticationFailed => "; correct the user and the password in `fleet`",
        ErrorKind::RESP3NotSupported => "; Redis 6 or Valkey is needed",
        _ if error.code().is_some_and(|code| matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            "; correct the user and the password in `fleet`"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

/// The host of the URL, and what each `node=` in its query names.
fn nodes(url: &Url, scheme: &str, with_credentials: bool) -> RedisResult<Vec<ConnectionInfo>> {
    let mut first = url.clone();
    first.set_query(None);
    // Neither fails: the schemes are of one kind, and the URL has a host.
    let _ = first.set_scheme(scheme);
    if !with_credentials {
        let _ = (first.set_username(""), first.set_password(None));
        first.set_path("");
    }
    let more = url.query_pairs().filter(|(name, _)| name == "node").map(|(_, node)| {
        let place = Url::parse(&format!("{scheme}://{node}"));
        let mut url = first.clone();
        if let Ok(place) = place {
            let _ = (url.set_host(place.host_str()), url.set_port(place.port()));
        }
        url
    });
    std::iter::once(first.clone()).chain(more.collect::<Vec<_>>()).map(|url| info(&url)).collect()
}

fn info(url: &Url) -> RedisResult<ConnectionInfo> {
    let info = url.as_str().into_connection_info()?;
    // Answers to SUBSCRIBE and to commands over one connection need the newer protocol: Redis 6, Valkey.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings).set_tcp_settings(tcp()))
}

fn sentinel(url: &Url, scheme: &str, certificates: Option<TlsCertificates>) -> RedisResult<SentinelClient> {
    let master = url.query_pairs().find(|(name, _)| name == "master").map(|(_, master)| master.into_owned());
    let sentinels = nodes(url, scheme, false)?.into_iter().map(|sentinel| sentinel.addr().clone());
    let redis = nodes(url, scheme, true)?.remove(0).redis_settings().clone();
    let mut builder = SentinelClientBuilder::new(sentinels, master.unwrap_or_default(), SentinelServerType::Master)?
        .set_client_to_redis_protocol(ProtocolVersion::RESP3)
        .set_client_to_redis_db(redis.db())
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp());
    if let Some(user) = redis.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = redis.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_certificates(certificates);
    }
    builder.build()
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}
