//! The target of a fleet's URL: one server, a server named by Sentinels, or a cluster, each by the redis crate's own client.

use super::sentinels::{HostPort, Sentinels};
use crate::config::SecretUrl;
use crate::tls::roots;
use futures_util::future::join_all;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, Script, ScriptInvocation, TlsCertificates,
};
use std::path::Path;
use std::time::Duration;
use url::Url;

/// A call to the server.
#[derive(Clone, Copy)]
pub(super) enum ServerCall<'a> {
    Script(&'a ScriptInvocation<'static>),
    Command(&'a Cmd),
}

impl<'a> From<&'a ScriptInvocation<'static>> for ServerCall<'a> {
    fn from(script: &'a ScriptInvocation<'static>) -> Self {
        Self::Script(script)
    }
}

impl<'a> From<&'a mut Cmd> for ServerCall<'a> {
    fn from(command: &'a mut Cmd) -> Self {
        Self::Command(command)
    }
}

/// A connection shared by calls.
#[derive(Clone)]
pub(super) enum ServerConnection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl ServerConnection {
    /// Connects. `ca_file`: roots besides the system's, to verify servers if the URL asks for TLS. `pushes`: receives the server's
    /// messages. `patience`: time for one answer.
    pub async fn open(
        url: &SecretUrl,
        ca_file: Option<&Path>,
        pushes: impl AsyncPushSender,
        patience: Duration,
    ) -> Result<(Self, Option<(Sentinels, HostPort)>), String> {
        let url = url.expose();
        let (scheme, kind) = url.scheme().split_once('+').unwrap_or((url.scheme(), ""));
        let certificates = match scheme {
            "rediss" => {
                let roots = roots::bundle(ca_file).map_err(|error| error.to_string())?;
                Some(TlsCertificates { client_tls: None, root_cert: Some(roots.pem.into()) })
            }
            _ => None,
        };
        let opened = async {
            let nodes = nodes(url, scheme)?;
            if kind == "cluster" {
                let builder = ClusterClientBuilder::new(nodes)
                    .use_protocol(ProtocolVersion::RESP3)
                    .tcp_settings(tcp())
                    .connection_timeout(patience)
                    .response_timeout(patience)
                    .connection_concurrency_limit(CALLS)
                    .push_sender(pushes);
                let builder = certificates.into_iter().fold(builder, ClusterClientBuilder::certs);
                return Ok((Self::Cluster(builder.build()?.get_async_connection().await?), None));
            }
            let client = |node: ConnectionInfo| match &certificates {
                Some(certificates) => Client::build_with_tls(node, certificates.clone()),
                None => Client::open(node),
            };
            let mut server = nodes[0].clone();
            let mut sentinels = None;
            if kind == "sentinel" {
                // The URL's user, password and database are for the server, not for the Sentinels.
                let plain = RedisConnectionInfo::default().set_skip_set_lib_name();
                let each = nodes.into_iter().map(|node| client(node.set_redis_settings(plain.clone())));
                let each = each.collect::<RedisResult<_>>()?;
                let master = url.query_pairs().find(|(name, _)| name == "master").map(|(_, master)| master);
                let mut asked = Sentinels::new(each, &master.unwrap_or_default());
                let named = asked.name().await?;
                server = at(server, named.clone());
                sentinels = Some((asked, named));
            }
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(patience))
                .set_response_timeout(Some(patience))
                .set_concurrency_limit(CALLS)
                .set_push_sender(pushes);
            let connection = client(server)?.get_multiplexed_async_connection_with_config(&config).await?;
            Ok((Self::One(connection), sentinels))
        };
        opened.await.map_err(|error| words(&error))
    }

    pub async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        match self {
            Self::One(connection) => connection.subscribe(channel).await,
            Self::Cluster(connection) => connection.subscribe(channel).await,
        }
    }

    /// Loads the scripts. A script that fails to load now is loaded when it is called.
    pub async fn load(self, scripts: [&'static Script; 4]) {
        match self {
            Self::One(connection) => {
                let load = |script: &'static Script| {
                    let mut connection = connection.clone();
                    async move { script.load_async(&mut connection).await }
                };
                join_all(scripts.map(load)).await;
            }
            Self::Cluster(mut connection) => {
                // In the background, so that a node that does not answer delays no call to the others.
                tokio::spawn(async move {
                    for script in scripts {
                        let _ = script.load_async(&mut connection).await;
                    }
                });
            }
        }
    }

    pub async fn invoke<T: FromRedisValue>(&mut self, call: ServerCall<'_>) -> RedisResult<T> {
        match (self, call) {
            (Self::One(connection), ServerCall::Script(script)) => script.invoke_async(connection).await,
            (Self::Cluster(connection), ServerCall::Script(script)) => script.invoke_async(connection).await,
            (Self::One(connection), ServerCall::Command(command)) => command.query_async(connection).await,
            (Self::Cluster(connection), ServerCall::Command(command)) => command.query_async(connection).await,
        }
    }

    /// An id that changes with a restart or a failover, after which the server may have lost data. `None`: unknown. Warns if the server
    /// evicts keys.
    pub async fn history(&mut self) -> Option<String> {
        let Self::One(connection) = self else { return None };
        let info: String = redis::cmd("INFO").query_async(connection).await.ok()?;
        let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
        let is_bounded = value("maxmemory:").is_some_and(|most| most != "0");
        if let Some(policy) = value("maxmemory_policy:").filter(|policy| is_bounded && *policy != "noeviction") {
            tracing::warn!(
                hint = "set `maxmemory-policy noeviction` there, and `maxmemory` to more than it needs",
                "the fleet's server has the policy {policy}: when its memory is full, it forgets delays that still apply"
            );
        }
        let is_history = |line: &&str| ["run_id:", "master_replid:"].iter().any(|name| line.starts_with(name));
        Some(info.lines().filter(is_history).collect()).filter(|history: &String| !history.is_empty())
    }
}

/// The error's text, with advice if known. It contains no password, as the server does not repeat passwords.
pub(super) fn words(error: &RedisError) -> String {
    let hint = match (error.kind(), error.code()) {
        (ErrorKind::AuthenticationFailed, _) | (_, Some("NOAUTH" | "WRONGPASS")) => {
            "; correct the user and the password in `fleet`"
        }
        (_, Some("NOPERM")) => "; docs/fleet.md lists the permissions that the user needs",
        (ErrorKind::RESP3NotSupported, _) => "; Redis 6 or Valkey is needed",
        _ => "",
    };
    format!("{}{hint}", crate::tls_words::in_plain(error))
}

/// The host of the URL, and each `node=` in its query.
fn nodes(url: &Url, scheme: &str) -> RedisResult<Vec<ConnectionInfo>> {
    let mut first = url.clone();
    // Cannot fail: the URL standard treats both schemes alike, as not special.
    let _ = first.set_scheme(scheme);
    // RESP3, which Redis 6 and Valkey speak, allows messages and answers over one connection.
    first.set_query(Some("protocol=resp3"));
    let more = url.query_pairs().filter(|(name, _)| name == "node").map(|(_, node)| {
        let mut url = first.clone();
        if let Ok(place) = Url::parse(&format!("{scheme}://{node}")) {
            // Cannot fail either: both have a host.
            let _ = (url.set_host(place.host_str()), url.set_port(place.port()));
        }
        url
    });
    let urls: Vec<Url> = std::iter::once(first.clone()).chain(more).collect();
    urls.into_iter().map(|url| Ok(url.into_connection_info()?.set_tcp_settings(tcp()))).collect()
}

/// The settings of `node` with another address.
fn at(node: ConnectionInfo, (host, port): HostPort) -> ConnectionInfo {
    let addr = match node.addr() {
        ConnectionAddr::TcpTls { insecure, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    node.set_addr(addr)
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Maximum number of calls at a time.
const CALLS: usize = 1024;
