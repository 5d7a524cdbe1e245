//! The connection to the fleet's server: made again for as long as it takes. A connection that breaks is replaced, and
//! calls wait for that; a server that does not answer for [`PATIENCE`] is out of reach, and nobody waits for it.

use super::message::Message;
use super::server::{Connection, Server, words};
use crate::config::{SecretUrl, Settings};
use arc_swap::ArcSwap;
use redis::{ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError, Script, ScriptInvocation};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout};

/// The server, as far as it can be asked.
pub(super) struct Link {
    settings: Arc<ArcSwap<Settings>>,
    /// This instance's name in the fleet.
    pub me: Box<str>,
    live: watch::Sender<Live>,
    /// Whether the server can be asked; `None` until the first attempt has ended.
    is_up: watch::Sender<Option<bool>>,
    /// How many the fleet had when last seen.
    instances: AtomicU32,
    /// Bounds the calls at a time.
    places: Semaphore,
    connections: AtomicU64,
    calls: AtomicU64,
    lost: AtomicU64,
}

#[derive(Clone, Default)]
struct Live {
    /// Which connection there is or was a moment ago, counted from 1; 0: the server is out of reach.
    number: u64,
    /// `None` while another is made.
    connection: Option<Connection>,
    /// When all who lost another server at the same time can be taken to have told this one what they know.
    settled_at: Option<Instant>,
}

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

/// Why a connection is given up, and since when it could not be asked.
type Broken = (String, Instant);

impl Link {
    pub fn new(settings: Arc<ArcSwap<Settings>>) -> Self {
        Link {
            settings,
            me: format!("{:016x}", fastrand::u64(..)).into(),
            live: watch::Sender::default(),
            is_up: watch::Sender::default(),
            instances: AtomicU32::new(1),
            places: Semaphore::new(CALLS),
            connections: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Which connection there is, and from when turns may be asked for over it; 0: none.
    pub fn current(&self) -> (u64, Option<Instant>) {
        let live = self.live.borrow();
        (live.number, live.settled_at)
    }

    pub fn is_lost(&self) -> bool {
        self.live.borrow().number == 0
    }

    pub fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> FleetFigures {
        let (calls, lost) = (self.calls.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed));
        FleetFigures { is_up: !self.is_lost(), instances: self.instances(), calls, lost }
    }

    pub fn is_up(&self) -> watch::Receiver<Option<bool>> {
        self.is_up.subscribe()
    }

    /// One answer, within [`PATIENCE`], over another connection if the first breaks. That an answer is late says nothing
    /// about the connection.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        let _place = self.places.acquire().await.map_err(|_| Lost)?;
        timeout(PATIENCE, self.ask(script)).await.unwrap_or(Err(Lost))
    }

    async fn ask<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        let mut lives = self.live.subscribe();
        loop {
            let Live { number, connection, .. } = lives.borrow_and_update().clone();
            match connection {
                _ if number == 0 => return Err(Lost),
                None => lives.changed().await.map_err(|_| Lost)?,
                Some(mut connection) => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    match connection.invoke(script).await {
                        Ok(answer) => return Ok(answer),
                        // Another version's answer.
                        Err(error) if error.kind() == ErrorKind::Parse => return Err(Lost),
                        Err(_) => sleep(AGAIN).await,
                    }
                }
            }
        }
    }

    /// Connects, hands on what the server sends, notes that this instance is there; for ever.
    pub async fn keep(self: Arc<Self>, messages: UnboundedSender<Message>) {
        let mut server = None;
        let (mut why, mut since) = (format!("no answer within {PATIENCE:?}"), Instant::now());
        loop {
            let connected = tokio::select! {
                connected = timeout(CONNECTING, self.connect(&mut server)) => connected,
                never = self.part_at(since + PATIENCE, &why, &messages) => never,
            };
            match connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECTING:?}"))) {
                Ok((url, connection, pushes)) => {
                    self.take_up(&url, connection.clone(), &messages);
                    (why, since) = self.serve(&url, connection, pushes, &messages).await;
                    self.live.send_modify(|live| live.connection = None);
                }
                Err(error) => {
                    why = error;
                    if self.is_lost() || since.elapsed() >= PATIENCE || self.settings.load().fleet.is_none() {
                        self.part(&why, &messages);
                    }
                }
            }
            sleep(if self.is_lost() { PAUSE } else { AGAIN }.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    /// Says goodbye.
    pub async fn leave(&self) {
        let connection = self.live.borrow().connection.clone();
        if let Some(mut connection) = connection {
            // Lost is as good as gone.
            let _ = timeout(PATIENCE, self.register(&mut connection, Duration::ZERO)).await;
        }
    }

    async fn connect(
        &self,
        server: &mut Option<(SecretUrl, Server)>,
    ) -> Result<(SecretUrl, Connection, UnboundedReceiver<PushInfo>), String> {
        let settings = self.settings.load_full();
        let Some(url) = settings.fleet.as_ref().map(|fleet| fleet.url.clone()) else {
            return Err(String::from("`fleet` has gone from the configuration"));
        };
        if server.as_ref().is_none_or(|(known, _)| *known != url) {
            *server = Some((url.clone(), Server::new(&url, settings.egress.ca_file.as_deref())?));
        }
        let (sender, pushes) = unbounded_channel();
        let (_, to) = server.as_mut().expect("made above");
        let mut connection = to.connect(sender, PATIENCE).await.map_err(|error| words(&error))?;
        let own = format!("politely:to:{}", self.me);
        let (channels, mut second) = (["politely:all", own.as_str()], connection.clone());
        // A server that only reads, or has no memory left, is found out here.
        let (subscribed, registered) =
            tokio::join!(connection.subscribe(&channels), self.register(&mut second, GONE_AFTER));
        subscribed.and(registered).map_err(|error| words(&error))?;
        Ok((url, connection, pushes))
    }

    fn take_up(&self, url: &SecretUrl, connection: Connection, messages: &UnboundedSender<Message>) {
        let number = self.connections.fetch_add(1, Ordering::Relaxed) + 1;
        // Who starts anew has lost nothing, and need not wait for others who have.
        let settled_at = (number > 1).then(|| Instant::now() + SETTLING);
        self.live.send_replace(Live { number, connection: Some(connection), settled_at });
        tracing::info!("joined the fleet at {url}, {} instance(s)", self.instances());
        self.is_up.send_replace(Some(true));
        // The gate is gone with whoever receives them.
        let _ = messages.send(Message::Joined);
    }

    /// Returns when the connection is given up.
    async fn serve(
        &self,
        url: &SecretUrl,
        connection: Connection,
        mut pushes: UnboundedReceiver<PushInfo>,
        messages: &UnboundedSender<Message>,
    ) -> Broken {
        let mut beat = std::pin::pin!(self.beat(url, connection.clone()));
        loop {
            let push = tokio::select! {
                broken = &mut beat => return broken,
                push = pushes.recv() => push,
            };
            match push {
                Some(PushInfo { kind: PushKind::Message, data }) => {
                    let _ = Message::parse(&data, &self.me).map(|message| messages.send(message));
                }
                // The new one may know less.
                Some(PushInfo { kind: PushKind::Disconnection, .. }) if connection.is_mended() => {
                    self.take_up(url, connection.clone(), messages);
                }
                Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => {
                    return ("it closed the connection".into(), Instant::now());
                }
                // What subscribing is answered with, and what we have not subscribed to.
                Some(_) => {}
            }
        }
    }

    /// Tells now and then that this instance is there, until that is not answered.
    async fn beat(&self, url: &SecretUrl, mut connection: Connection) -> Broken {
        loop {
            sleep(REGISTER_EVERY).await;
            let since = Instant::now();
            if self.settings.load().fleet.as_ref().map(|fleet| &fleet.url) != Some(url) {
                return ("the configuration names another server".into(), since);
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
            match timeout(PATIENCE, self.register(&mut connection, GONE_AFTER)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return (words(&error), since),
                Err(_) => return (format!("no answer within {PATIENCE:?}"), since),
            }
        }
    }

    async fn register(&self, connection: &mut Connection, until_gone: Duration) -> Result<(), RedisError> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
        let mut script = SCRIPT.key("politely:instances");
        let instances = connection.invoke(script.arg(&*self.me).arg(until_gone.as_millis() as u64)).await?;
        self.instances.store(instances, Ordering::Relaxed);
        Ok(())
    }

    async fn part_at(&self, at: Instant, why: &str, messages: &UnboundedSender<Message>) -> ! {
        sleep_until(at.into()).await;
        self.part(why, messages);
        std::future::pending().await
    }

    fn part(&self, why: &str, messages: &UnboundedSender<Message>) {
        let was_up = *self.is_up.borrow();
        if was_up == Some(false) {
            return;
        }
        self.lost.fetch_add(u64::from(was_up == Some(true)), Ordering::Relaxed);
        // Calls that wait for another connection need wait no longer.
        self.live.send_replace(Live::default());
        let _ = messages.send(Message::Parted);
        let url = self.settings.load().fleet.as_ref().map(|fleet| fleet.url.to_string()).unwrap_or_default();
        tracing::warn!("the fleet's server {url} is out of reach: {why}; until it is back, `on_fleet_loss` holds");
        self.is_up.send_replace(Some(false));
    }
}

/// For one answer, connecting anew included. A slow server is not a lost one.
const PATIENCE: Duration = Duration::from_secs(2);
const CONNECTING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(1);
const CALLS: usize = 1024;
/// All notice within this time that a server has been replaced, and tell it what they hold.
const SETTLING: Duration = Duration::from_secs(1);
const REGISTER_EVERY: Duration = Duration::from_secs(1);
const GONE_AFTER: Duration = Duration::from_secs(10);
