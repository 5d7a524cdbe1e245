//! What a fleet's URL leads to: one server, one that Sentinels name, or a cluster, each by the redis crate's own client.

use crate::config::SecretUrl;
use crate::tls::roots;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisError, RedisResult, ScriptInvocation, TlsCertificates, TlsMode,
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
            "rediss" => {
                let roots = roots::bundle(ca_file).map_err(|error| error.to_string())?;
                Some(TlsCertificates { client_tls: None, root_cert: Some(roots.pem.into()) })
            }
            _ => None,
        };
        let built = nodes(url, scheme).and_then(|mut nodes| match (kind, certificates) {
            ("sentinel", certificates) => sentinel(url, &nodes, certificates),
            ("cluster", certificates) => Ok(Self::Cluster(nodes, certificates)),
            (_, Some(certificates)) => Ok(Self::One(Box::new(Client::build_with_tls(nodes.remove(0), certificates)?))),
            (_, None) => Ok(Self::One(Box::new(Client::open(nodes.remove(0))?))),
        });
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

    pub async fn invoke<T: FromRedisValue>(&mut self, script: &ScriptInvocation<'_>) -> RedisResult<T> {
        match self {
            Self::One(connection) => script.invoke_async(connection).await,
            Self::Cluster(connection) => script.invoke_async(connection).await,
        }
    }

    /// Whether one that breaks is replaced by the client itself.
    pub fn is_mended(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

/// An error, with what to do about it where that is known. The server does not repeat passwords.
pub(super) fn words(error: &RedisError) -> String {
    let hint = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => {
            "; correct the user and the password in `fleet`"
        }
        (ErrorKind::RESP3NotSupported, _) => "; Redis 6 or Valkey is needed",
        _ => "",
    };
    format!("{error}{hint}")
}

/// The host of the URL, and what each `node=` in its query names.
fn nodes(url: &Url, scheme: &str) -> RedisResult<Vec<ConnectionInfo>> {
    let mut first = url.clone();
    // It does not fail: the schemes are of one kind.
    let _ = first.set_scheme(scheme);
    // Answers to SUBSCRIBE and to commands over one connection need the newer protocol: Redis 6, Valkey.
    first.set_query(Some("protocol=resp3"));
    let more = url.query_pairs().filter(|(name, _)| name == "node").map(|(_, node)| {
        let mut url = first.clone();
        if let Ok(place) = Url::parse(&format!("{scheme}://{node}")) {
            // Neither does this: both have a host.
            let _ = (url.set_host(place.host_str()), url.set_port(place.port()));
        }
        url
    });
    let urls: Vec<Url> = std::iter::once(first.clone()).chain(more).collect();
    urls.into_iter().map(|url| Ok(url.into_connection_info()?.set_tcp_settings(tcp()))).collect()
}

fn sentinel(url: &Url, nodes: &[ConnectionInfo], certificates: Option<TlsCertificates>) -> RedisResult<Server> {
    let master = url.query_pairs().find(|(name, _)| name == "master").map(|(_, master)| master).unwrap_or_default();
    let (sentinels, redis) = (nodes.iter().map(|node| node.addr().clone()), nodes[0].redis_settings());
    let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
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
    builder.build().map(|client| Server::Sentinel(Box::new(client)))
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}
