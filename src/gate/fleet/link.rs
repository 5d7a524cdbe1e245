//! The connection to the fleet's server: made again for as long as it takes, given up at the first fault, so that no
//! request waits for a server that does not answer. Called by the other modules here.

use super::message::Message;
use crate::config;
use crate::tls::roots;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, FromRedisValue, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, Script, ScriptInvocation, TlsCertificates,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout};

/// The server, as far as it can be asked.
pub(super) struct Link {
    client: Result<Client, String>,
    /// The URL, for people: without its secrets.
    shown: String,
    /// This instance's name in the fleet.
    pub me: Box<str>,
    live: Mutex<Option<Live>>,
    /// Which connection there is, counted from 1; 0: none.
    current: AtomicU64,
    made: AtomicU64,
    /// How many the fleet had when last seen.
    instances: AtomicU32,
    calls: AtomicU64,
    lost: AtomicU64,
    /// The connection has been given up.
    broken: Notify,
    /// Whether there is one; `None` until the first attempt has ended.
    is_up: watch::Sender<Option<bool>>,
}

#[derive(Clone)]
struct Live {
    number: u64,
    connection: MultiplexedConnection,
}

/// What the server sends unasked, and when it came.
type Push = (PushInfo, Instant);

/// The server cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gate) struct Lost;

/// The fleet, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetFigures {
    pub is_up: bool,
    /// Instances when last seen, this one included.
    pub instances: u32,
    /// Round trips to its server.
    pub calls: u64,
    /// Times it was lost.
    pub lost: u64,
}

impl Link {
    /// `ca_file`: roots beside the system's, to verify the server by where the URL says TLS.
    pub fn new(fleet: &config::Fleet, ca_file: Option<&Path>) -> Self {
        Link {
            client: client(fleet, ca_file),
            shown: fleet.url.to_string(),
            me: format!("{:016x}", fastrand::u64(..)).into(),
            live: Mutex::default(),
            current: AtomicU64::new(0),
            made: AtomicU64::new(0),
            instances: AtomicU32::new(1),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            broken: Notify::new(),
            is_up: watch::Sender::new(None),
        }
    }

    /// Which connection there is; 0: none.
    pub fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    pub fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> FleetFigures {
        FleetFigures {
            is_up: self.current() != 0,
            instances: self.instances(),
            calls: self.calls.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub fn is_up(&self) -> watch::Receiver<Option<bool>> {
        self.is_up.subscribe()
    }

    /// One round trip. Its failure is that of the connection: whoever asks next is told at once.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        let mut live = self.live.lock().clone().ok_or(Lost)?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        match timeout(PATIENCE, script.invoke_async(&mut live.connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.give_up(live.number, &words(&error))),
            Err(_) => Err(self.give_up(live.number, &format!("no answer within {PATIENCE:?}"))),
        }
    }

    /// Connects, hands on what the server sends, notes that this instance is there; for ever.
    pub async fn keep(self: Arc<Self>, messages: UnboundedSender<Message>) {
        let mut pause = FIRST_PAUSE;
        let mut told = false;
        loop {
            let connected = match timeout(PATIENCE * 2, self.connect()).await {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {:?}", PATIENCE * 2)),
            };
            match connected {
                Ok((connection, pushes)) => {
                    self.take_up(connection);
                    (pause, told) = (FIRST_PAUSE, true);
                    // The gate is gone with whoever receives them.
                    let _ = messages.send(Message::Joined);
                    self.serve(pushes, &messages).await;
                    let _ = messages.send(Message::Parted);
                }
                Err(why) => {
                    if !std::mem::replace(&mut told, true) {
                        tell_lost(&self.shown, &why);
                    }
                    self.is_up.send_replace(Some(false));
                }
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Says goodbye.
    pub async fn leave(&self) {
        // Lost is as good as gone.
        let _ = self.register(0).await;
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, UnboundedReceiver<Push>), String> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let (sender, pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE))
            .set_push_sender(move |push| sender.send((push, Instant::now())));
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| words(&error))?;
        let channels = [TO_ALL, &format!("{TO_ONE}{}", self.me)];
        connection.subscribe(&channels).await.map_err(|error| words(&error))?;
        // A server that only reads, or has no memory left, is found out here.
        let instances = instances_script()
            .key(INSTANCES)
            .arg(&*self.me)
            .arg(GONE_AFTER.as_millis() as u64)
            .invoke_async(&mut connection)
            .await
            .map_err(|error| words(&error))?;
        self.instances.store(instances, Ordering::Relaxed);
        Ok((connection, pushes))
    }

    fn take_up(&self, connection: MultiplexedConnection) {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut live = self.live.lock();
        *live = Some(Live { number, connection });
        self.current.store(number, Ordering::Release);
        self.is_up.send_replace(Some(true));
        tracing::info!("joined the fleet at {}, {} instance(s)", self.shown, self.instances());
    }

    /// Returns when the connection is given up.
    async fn serve(&self, mut pushes: UnboundedReceiver<Push>, messages: &UnboundedSender<Message>) {
        let number = self.current();
        let mut register_at = Instant::now();
        loop {
            tokio::select! {
                () = self.broken.notified() => {}
                push = pushes.recv() => match push {
                    Some((PushInfo { kind: PushKind::Message, data }, at)) => {
                        if let Some(message) = Message::parse(&data, &self.me, at) {
                            let _ = messages.send(message);
                        }
                    }
                    Some((PushInfo { kind: PushKind::Disconnection, .. }, _)) | None => {
                        self.give_up(number, "it closed the connection");
                    }
                    // What subscribing is answered with, and what we have not subscribed to.
                    Some(_) => {}
                },
                () = sleep_until(register_at.into()) => {
                    register_at = Instant::now() + REGISTER_EVERY;
                    if let Ok(instances) = self.register(GONE_AFTER.as_millis() as u64).await {
                        self.instances.store(instances, Ordering::Relaxed);
                    }
                }
            }
            if self.current() != number {
                return;
            }
        }
    }

    async fn register(&self, millis: u64) -> Result<u32, Lost> {
        self.call(instances_script().key(INSTANCES).arg(&*self.me).arg(millis)).await
    }

    fn give_up(&self, number: u64, why: &str) -> Lost {
        let mut live = self.live.lock();
        if live.take_if(|live| live.number == number).is_some() {
            self.current.store(0, Ordering::Release);
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.is_up.send_replace(Some(false));
            tell_lost(&self.shown, why);
            self.broken.notify_one();
        }
        Lost
    }
}

fn tell_lost(shown: &str, why: &str) {
    tracing::warn!("the fleet's server {shown} is out of reach: {why}; until it is back, `on_fleet_loss` holds");
}

fn client(fleet: &config::Fleet, ca_file: Option<&Path>) -> Result<Client, String> {
    let url = fleet.url.expose();
    let said = |error: RedisError| words(&error);
    let info = url.as_str().into_connection_info().map_err(said)?;
    // Answers to SUBSCRIBE and to commands over one connection need the newer protocol: Redis 6, Valkey.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let info = info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true));
    if url.scheme() == "rediss" {
        let roots = roots::bundle(ca_file).map_err(|error| error.to_string())?;
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(roots.pem.into()) };
        return Client::build_with_tls(info, certificates).map_err(said);
    }
    Client::open(info).map_err(said)
}

/// An error, with what to do about it where that is known. The server does not repeat passwords.
fn words(error: &RedisError) -> String {
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

fn instances_script() -> &'static Script {
    static SCRIPT: std::sync::LazyLock<Script> =
        std::sync::LazyLock::new(|| Script::new(include_str!("instances.lua")));
    &SCRIPT
}

/// For one round trip in all.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);
pub(super) const TO_ALL: &str = "politely:all";
pub(super) const TO_ONE: &str = "politely:to:";
const INSTANCES: &str = "politely:instances";
const REGISTER_EVERY: Duration = Duration::from_secs(1);
const GONE_AFTER: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
