//! The connection to the fleet's server: made again for as long as it takes. A connection that breaks is replaced, and
//! calls wait for that; a server that does not answer for [`PATIENCE`] is out of reach, and nobody waits for it.

use super::message::Message;
use super::server::{Connection, Server, words};
use crate::config::{SecretUrl, Settings};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::{ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError, Script, ScriptInvocation};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until, timeout, timeout_at};

/// The server, as far as it can be asked.
pub(super) struct Link {
    settings: Arc<ArcSwap<Settings>>,
    /// This instance's name in the fleet.
    pub me: Box<str>,
    live: watch::Sender<Option<Live>>,
    /// Which connection there is or was a moment ago, counted from 1; 0: the server is out of reach.
    current: AtomicU64,
    made: AtomicU64,
    /// Which run of which server it is, as that tells: another may have forgotten.
    run: Mutex<Option<String>>,
    /// When all who lost another server at the same time can be taken to have told this one what they know.
    settled_at: Mutex<Option<Instant>>,
    /// How many the fleet had when last seen.
    instances: AtomicU32,
    /// Bounds the calls at a time.
    places: Semaphore,
    calls: AtomicU64,
    lost: AtomicU64,
    /// Whether the server can be asked; `None` until the first attempt has ended.
    is_up: watch::Sender<Option<bool>>,
    loss_told: AtomicBool,
}

#[derive(Clone)]
struct Live {
    number: u64,
    connection: Connection,
    /// Of the server.
    run: Option<String>,
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

/// Why a connection is given up.
struct Broken {
    why: String,
    /// It could not be asked since then.
    since: Instant,
}

impl Link {
    pub fn new(settings: Arc<ArcSwap<Settings>>) -> Self {
        Link {
            settings,
            me: format!("{:016x}", fastrand::u64(..)).into(),
            live: watch::Sender::new(None),
            current: AtomicU64::new(0),
            made: AtomicU64::new(0),
            run: Mutex::default(),
            settled_at: Mutex::default(),
            instances: AtomicU32::new(1),
            places: Semaphore::new(CALLS),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            is_up: watch::Sender::new(None),
            loss_told: AtomicBool::new(false),
        }
    }

    /// Which connection there is, and from when turns may be asked for over it; 0: none.
    pub fn current(&self) -> (u64, Option<Instant>) {
        match self.current.load(Ordering::Acquire) {
            0 => (0, None),
            number => (number, *self.settled_at.lock()),
        }
    }

    pub fn is_lost(&self) -> bool {
        self.current.load(Ordering::Acquire) == 0
    }

    pub fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> FleetFigures {
        FleetFigures {
            is_up: !self.is_lost(),
            instances: self.instances(),
            calls: self.calls.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub fn is_up(&self) -> watch::Receiver<Option<bool>> {
        self.is_up.subscribe()
    }

    /// One answer, within [`PATIENCE`], over another connection if the first breaks. That an answer is late says nothing
    /// about the connection.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        let _place = self.places.acquire().await.map_err(|_| Lost)?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut connections = self.live.subscribe();
        while !self.is_lost() {
            let Some(Live { number, mut connection, .. }) = connections.borrow_and_update().clone() else {
                timeout_at(deadline, connections.changed()).await.map_err(|_| Lost)?.map_err(|_| Lost)?;
                continue;
            };
            self.calls.fetch_add(1, Ordering::Relaxed);
            match timeout_at(deadline, script.invoke_async(&mut connection)).await.map_err(|_| Lost)? {
                Ok(answer) => return Ok(answer),
                // Another version's answer.
                Err(error) if error.kind() == ErrorKind::Parse => return Err(Lost),
                Err(error) => {
                    if connection.is_one() && is_gone(&error) {
                        self.drop_connection(number);
                    }
                    timeout_at(deadline, sleep(AGAIN)).await.map_err(|_| Lost)?;
                }
            }
        }
        Err(Lost)
    }

    /// Connects, hands on what the server sends, notes that this instance is there; for ever.
    pub async fn keep(self: Arc<Self>, messages: UnboundedSender<Message>) {
        let mut server = None;
        let mut pause = FIRST_PAUSE;
        let mut broken: Option<Broken> = None;
        loop {
            let mut attempt = std::pin::pin!(timeout(CONNECTING, self.connect(&mut server)));
            let connected = match broken.take() {
                None => attempt.await,
                Some(Broken { why, since }) => tokio::select! {
                    biased;
                    () = sleep_until((since + PATIENCE).into()) => {
                        self.part(&why);
                        let _ = messages.send(Message::Parted);
                        attempt.await
                    }
                    connected = &mut attempt => match connected {
                        Ok(Err(_)) | Err(_) if since.elapsed() < PATIENCE => {
                            broken = Some(Broken { why, since });
                            connected
                        }
                        connected => connected,
                    },
                },
            };
            match connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECTING:?}"))) {
                Ok((url, live, pushes)) => {
                    self.take_up(&url, live.clone());
                    // The gate is gone with whoever receives them.
                    let _ = messages.send(Message::Joined);
                    broken = self.serve(&url, live, pushes, &messages).await;
                    self.live.send_replace(None);
                    pause = FIRST_PAUSE;
                }
                Err(why) if broken.is_none() => {
                    self.part(&why);
                    let _ = messages.send(Message::Parted);
                }
                Err(_) => {}
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Says goodbye.
    pub async fn leave(&self) {
        let live = self.live.borrow().clone();
        if let Some(Live { mut connection, .. }) = live {
            // Lost is as good as gone.
            let _ = timeout(PATIENCE, self.register(&mut connection, 0)).await;
        }
    }

    async fn connect(
        &self,
        server: &mut Option<(SecretUrl, Server)>,
    ) -> Result<(SecretUrl, Live, UnboundedReceiver<PushInfo>), String> {
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
        let own = format!("{TO_ONE}{}", self.me);
        let channels = [TO_ALL, own.as_str()];
        let (mut second, mut third) = (connection.clone(), connection.clone());
        let (subscribed, registered, run) = tokio::join!(
            connection.subscribe(&channels),
            // A server that only reads, or has no memory left, is found out here.
            self.register(&mut second, GONE_AFTER.as_millis() as u64),
            third.run(),
        );
        subscribed.and(registered).map_err(|error| words(&error))?;
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((url, Live { number, connection, run }, pushes))
    }

    fn take_up(&self, url: &SecretUrl, live: Live) {
        let before = std::mem::replace(&mut *self.run.lock(), live.run.clone());
        // Who starts anew has lost nothing and need not wait for others who have; nor need anybody where the server has
        // been there all the time.
        let is_same = live.run.is_some() && live.run == before;
        *self.settled_at.lock() = (live.number > 1 && !is_same).then(|| Instant::now() + SETTLING);
        self.current.store(live.number, Ordering::Release);
        self.live.send_replace(Some(live));
        self.is_up.send_replace(Some(true));
        self.loss_told.store(false, Ordering::Relaxed);
        tracing::info!("joined the fleet at {url}, {} instance(s)", self.instances());
    }

    /// Returns when the connection is given up. `None`: the configuration names another server.
    async fn serve(
        &self,
        url: &SecretUrl,
        mut live: Live,
        mut pushes: UnboundedReceiver<PushInfo>,
        messages: &UnboundedSender<Message>,
    ) -> Option<Broken> {
        let is_one = live.connection.is_one();
        let mut connections = self.live.subscribe();
        let mut beat = std::pin::pin!(self.beat(url, live.connection.clone()));
        loop {
            tokio::select! {
                broken = &mut beat => return broken,
                _ = connections.changed() => {
                    if connections.borrow_and_update().is_none() {
                        return Some(Broken { why: "the connection broke".into(), since: Instant::now() });
                    }
                }
                push = pushes.recv() => match push {
                    Some(PushInfo { kind: PushKind::Message, data }) => {
                        if let Some(message) = Message::parse(&data, &self.me) {
                            let _ = messages.send(message);
                        }
                    }
                    // One of a cluster's: its client finds the new one, which may know less.
                    Some(PushInfo { kind: PushKind::Disconnection, .. }) if !is_one => {
                        live.number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
                        self.take_up(url, live.clone());
                        let _ = messages.send(Message::Joined);
                    }
                    Some(PushInfo { kind: PushKind::Disconnection, .. }) | None => {
                        return Some(Broken { why: "it closed the connection".into(), since: Instant::now() });
                    }
                    // What subscribing is answered with, and what we have not subscribed to.
                    Some(_) => {}
                },
            }
        }
    }

    /// Tells now and then that this instance is there, until that is not answered.
    async fn beat(&self, url: &SecretUrl, mut connection: Connection) -> Option<Broken> {
        loop {
            sleep(REGISTER_EVERY).await;
            if self.settings.load().fleet.as_ref().map(|fleet| &fleet.url) != Some(url) {
                return None;
            }
            let since = Instant::now();
            self.calls.fetch_add(1, Ordering::Relaxed);
            let why = match timeout(PATIENCE, self.register(&mut connection, GONE_AFTER.as_millis() as u64)).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => words(&error),
                Err(_) => format!("no answer within {PATIENCE:?}"),
            };
            return Some(Broken { why, since });
        }
    }

    async fn register(&self, connection: &mut Connection, millis: u64) -> Result<(), RedisError> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
        let instances = SCRIPT.key(INSTANCES).arg(&*self.me).arg(millis).invoke_async(connection).await?;
        self.instances.store(instances, Ordering::Relaxed);
        Ok(())
    }

    fn drop_connection(&self, number: u64) {
        self.live.send_if_modified(|live| live.take_if(|live| live.number == number).is_some());
    }

    fn part(&self, why: &str) {
        if self.current.swap(0, Ordering::AcqRel) != 0 {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.is_up.send_replace(Some(false));
        if !self.loss_told.swap(true, Ordering::Relaxed) {
            let url = self.settings.load().fleet.as_ref().map(|fleet| fleet.url.to_string()).unwrap_or_default();
            tracing::warn!("the fleet's server {url} is out of reach: {why}; until it is back, `on_fleet_loss` holds");
        }
        // Calls that wait for another connection need wait no longer.
        self.live.send_replace(None);
    }
}

/// Another connection may do better.
fn is_gone(error: &RedisError) -> bool {
    error.is_io_error() || error.is_connection_dropped() || error.code() == Some("READONLY")
}

/// For one answer, connecting anew included. A slow server is not a lost one.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
const CONNECTING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);
const CALLS: usize = 1024;
/// All notice within this time that a server has been replaced, and tell it what they hold.
const SETTLING: Duration = Duration::from_secs(1);
pub(super) const TO_ALL: &str = "politely:all";
pub(super) const TO_ONE: &str = "politely:to:";
const INSTANCES: &str = "politely:instances";
const REGISTER_EVERY: Duration = Duration::from_secs(1);
const GONE_AFTER: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
