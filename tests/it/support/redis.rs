//! A redis-server for one test, on a free loopback port.

use crate::support::{TestCa, eventually, free_port, test_ca, within};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::{Child, Command};

/// A running server; dropping it kills it.
pub struct Redis {
    child: Child,
    port: u16,
    options: Vec<String>,
    scheme: &'static str,
    credentials: &'static str,
    directory: Arc<tempfile::TempDir>,
}

/// The password for [`Redis::with_password_and_tls`].
pub const PASSWORD: &str = "s3cret:/?#[]@";
pub const PASSWORD_IN_URL: &str = "s3cret%3A%2F%3F%23%5B%5D%40";

impl Redis {
    /// `None`: redis-server is not installed; the test then prints that and ends.
    pub async fn start() -> Option<Self> {
        Self::with(Vec::new(), "redis", "", tempdir()).await
    }

    pub async fn with_options(options: &[&str]) -> Option<Self> {
        Self::with(options.iter().map(|option| (*option).to_owned()).collect(), "redis", "", tempdir()).await
    }

    /// Like [`start`](Self::start), for a user with the rights that the manual names.
    pub async fn with_user() -> Option<Self> {
        let manual = include_str!("../../../docs/fleet.md");
        let rights = manual.lines().find_map(|line| line.strip_prefix("A user of its own needs `"));
        let rights = rights.and_then(|rights| rights.split('`').next()).expect("the manual says so");
        let options = format!("--user only on >secret {rights} --user default off");
        Self::with(options.split(' ').map(str::to_owned).collect(), "redis", "only:secret", tempdir()).await
    }

    /// Like [`start`](Self::start), with [`PASSWORD`], and TLS with a certificate of the test authority.
    pub async fn with_password_and_tls() -> Option<Self> {
        let directory = tempdir();
        let (certificate, key) = test_ca().pem_pair("localhost");
        let file = |name: &str, text: &str| -> PathBuf {
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("the directory is writable");
            path
        };
        let (certificate, key) = (file("server.pem", &certificate), file("server.key", &key));
        let options = [
            "--requirepass",
            PASSWORD,
            "--tls-auth-clients",
            "no",
            "--tls-cert-file",
            certificate.to_str().expect("UTF-8"),
            "--tls-key-file",
            key.to_str().expect("UTF-8"),
            "--tls-ca-cert-file",
            TestCa::pem_file(test_ca()).to_str().expect("UTF-8"),
        ];
        let options = options.map(str::to_owned).to_vec();
        Self::with(options, "rediss", PASSWORD_IN_URL, directory).await
    }

    /// A node for a cluster that is yet to be created.
    pub async fn cluster_node() -> Option<Self> {
        let directory = tempdir();
        let at = directory.path().to_str().expect("UTF-8").to_owned();
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "4000", "--dir", &at];
        Self::with(options.map(str::to_owned).to_vec(), "redis", "", directory).await
    }

    pub async fn replica_of(master: &Self) -> Option<Self> {
        let port = master.port.to_string();
        let options = ["--replicaof", "127.0.0.1", &port].map(str::to_owned);
        Self::with(options.to_vec(), "redis", "", tempdir()).await
    }

    /// A sentinel for a master called `main`; over TLS if the master uses it, by the name in its certificate. Requires no password
    /// itself.
    pub async fn sentinel_of(master: &Self) -> Option<Self> {
        let directory = tempdir();
        let file = directory.path().join("sentinel.conf");
        let is_tls = master.scheme == "rediss";
        let (names, host) = if is_tls { ("yes", "localhost") } else { ("no", "127.0.0.1") };
        let mut text = format!(
            "sentinel resolve-hostnames {names}\nsentinel announce-hostnames {names}\n\
             sentinel monitor main {host} {} 1\nsentinel down-after-milliseconds main 4000\n\
             sentinel failover-timeout main 5000\n",
            master.port
        );
        if is_tls {
            text += &format!("sentinel auth-pass main \"{PASSWORD}\"\n");
        }
        std::fs::write(&file, text).expect("the directory is writable");
        let mut options = vec![file.to_str().expect("UTF-8").to_owned(), "--sentinel".to_owned()];
        if is_tls {
            options.extend(["--tls-replication", "yes"].map(str::to_owned));
            options.extend(master.options.iter().filter(|it| *it != "--requirepass" && *it != PASSWORD).cloned());
        }
        Self::with(options, master.scheme, "", directory).await
    }

    async fn with(
        options: Vec<String>,
        scheme: &'static str,
        credentials: &'static str,
        directory: Arc<tempfile::TempDir>,
    ) -> Option<Self> {
        let Some(program) = program() else {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "redis-server is not installed, and CI has to have it"
            );
            eprintln!("skipped: redis-server is not installed");
            return None;
        };
        for _ in 0..20 {
            let port = free_port();
            let child = spawn(&program, port, scheme, &options, directory.path());
            let mut redis =
                Self { child, port, options: options.clone(), scheme, credentials, directory: directory.clone() };
            if redis.is_up().await {
                return Some(redis);
            }
        }
        panic!("redis-server finds no free port");
    }

    /// The URL for `fleet:`.
    pub fn url(&self) -> String {
        self.url_with(self.credentials)
    }

    /// The URL with another password, or user and password.
    pub fn url_with(&self, password: &str) -> String {
        let password = match password {
            "" => String::new(),
            password if password.contains(':') => format!("{password}@"),
            password => format!(":{password}@"),
        };
        format!("{}://{password}localhost:{}/0", self.scheme, self.port)
    }

    pub fn address(&self) -> std::net::SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A connection for inspecting the server.
    pub async fn connection(&self) -> redis::aio::MultiplexedConnection {
        self.try_connection().await.expect("it listens")
    }

    /// Like [`connection`](Self::connection), but may fail.
    pub async fn try_connection(&self) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
        let client = redis::Client::open(self.url()).expect("a good URL");
        // The crate's own limits, a second and half of one, are short for a busy machine.
        let patient = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        within("a connection to redis-server", client.get_multiplexed_async_connection_with_config(&patient)).await
    }

    /// How many scripts have run so far.
    pub async fn script_calls(&self) -> u64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut self.connection().await).await.expect("it answers");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.map_or(0, |line| line.split(',').next().expect("one field").parse().expect("a number"))
    }

    /// Simulates a step of the server's clock by so many milliseconds: to a clock that was set back, all stored times are in the
    /// future, and keys expire later. (libfaketime and Debian's redis-server deadlock.)
    pub async fn step_clock(&self, by: i64) {
        let step = redis::Script::new(
            "for _, key in ipairs(redis.call('KEYS', 'politely:*')) do
                 local left, kind = redis.call('PTTL', key), redis.call('TYPE', key).ok
                 if kind == 'string' and string.find(key, ':copy$') then
                     local at, fresh_until, copy = cmsgpack.unpack(redis.call('GET', key))
                     redis.call('SET', key, cmsgpack.pack(at - ARGV[1], fresh_until - ARGV[1], copy), 'PX', left)
                 elseif kind == 'string' and string.find(key, ':pace$') then
                     local kept = cmsgpack.unpack(redis.call('GET', key))
                     for _, field in ipairs({'at', 'last', 'fetch', 'hold', 'busy', 'owed'}) do
                         kept[field] = kept[field] > 0 and kept[field] - ARGV[1] * 1000 or 0
                     end
                     redis.call('SET', key, cmsgpack.pack(kept), 'PX', left)
                 elseif kind == 'zset' then
                     for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                         redis.call('ZINCRBY', key, -ARGV[1], member)
                     end
                 end
                 redis.call('PEXPIRE', key, left - ARGV[1])
             end",
        );
        let () = step.arg(by).invoke_async(&mut self.connection().await).await.expect("it runs");
    }

    pub fn signal(&self, signal: libc::c_int) {
        let pid = libc::pid_t::try_from(self.child.id().expect("not waited for yet")).expect("a process id");
        // SAFETY: `kill` takes two integers; the child is not waited for yet, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "the child can be signalled");
    }

    /// Sends SIGKILL: all its data is lost.
    pub async fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        within("the end of redis-server", self.child.wait()).await.expect("our child");
    }

    /// Starts an empty server in its place.
    pub async fn restart(&mut self) {
        let program = program().expect("it was there before");
        self.child = spawn(&program, self.port, self.scheme, &self.options, self.directory.path());
        assert!(self.is_up().await, "its port is free again");
    }

    /// Waits until it is ready. False: it ended, as another program has its port. A listening port alone proves nothing: it may be
    /// another program's, and a cluster node listens before it finds its second port taken.
    async fn is_up(&mut self) -> bool {
        let log = self.directory.path().join(log_of(self.port));
        let mut up = false;
        eventually("redis-server listens", || {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            up = READY.iter().any(|ready| said.contains(ready));
            up || self.child.try_wait().is_ok_and(|status| status.is_some())
        })
        .await;
        up && self.child.try_wait().is_ok_and(|status| status.is_none())
    }
}

/// The log lines by which a server and a sentinel report that they are ready.
const READY: [&str; 2] = ["Ready to accept connections", "Sentinel ID is"];

/// The name of its log file.
fn log_of(port: u16) -> String {
    format!("{port}.log")
}

/// `at`: the directory for its files, such as those sent to a replica.
fn spawn(program: &str, port: u16, scheme: &str, options: &[String], at: &Path) -> Child {
    let log = log_of(port);
    // The log of the server before a restart.
    let _ = std::fs::remove_file(at.join(&log));
    let port = port.to_string();
    let ports =
        if scheme == "rediss" { ["--port", "0", "--tls-port", &port] } else { ["--port", &port, "--tls-port", "0"] };
    let mut command = Command::new(program);
    // Nothing is saved: a restart loses everything.
    // A configuration file must come first; sentinels do not accept the servers' options.
    let (file, options) = match options.first() {
        Some(first) if !first.starts_with("--") => options.split_at(1),
        _ => options.split_at(0),
    };
    command.args(file).args(["--bind", "127.0.0.1"]).args(ports).args(options).args(["--logfile", &log]);
    if file.is_empty() {
        command.args(["--save", "", "--appendonly", "no"]);
    }
    command.current_dir(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("it was found")
}

fn tempdir() -> Arc<tempfile::TempDir> {
    Arc::new(tempfile::tempdir().expect("a temporary directory"))
}

fn program() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["redis-server", "valkey-server"];
    std::env::split_paths(&path)
        .flat_map(|directory| names.map(|name| directory.join(name)))
        .find(|program| program.is_file())
        .and_then(|program| program.to_str().map(str::to_owned))
}
