//! The connection to the fleet's server: made again for as long as it takes. A connection that breaks is replaced, and
//! calls wait for that; a server that does not answer for [`PATIENCE`] is out of reach, and nobody waits for it.

use super::Reach;
use super::message::Message;
use super::server::{Connection, words};
use crate::config::{SecretUrl, Settings};
use arc_swap::ArcSwap;
use redis::{ErrorKind, FromRedisValue, PushInfo, PushKind, Script, ScriptInvocation};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout};

/// The server, as far as it can be asked.
pub(in crate::gate) struct Link {
    settings: Arc<ArcSwap<Settings>>,
    /// This instance's name in the fleet.
    pub me: Box<str>,
    live: watch::Sender<Live>,
    /// How many the fleet had when last seen.
    instances: AtomicU32,
    calls: AtomicU64,
    lost: AtomicU64,
}

#[derive(Clone, Default)]
pub(in crate::gate) struct Live {
    /// Whether the first attempt has ended.
    is_tried: bool,
    /// `None`: the server is out of reach. One that has broken stays until there is another.
    connection: Option<Connection>,
    /// Which server is or was asked, and over which connection; none other than the first is taken for one that
    /// remembers, unless it says so.
    reach: Reach,
    history: Option<String>,
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

impl Link {
    pub fn new(settings: Arc<ArcSwap<Settings>>) -> Self {
        Link {
            settings,
            me: format!("{:016x}", fastrand::u64(..)).into(),
            live: watch::Sender::default(),
            instances: AtomicU32::new(1),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Whether, how, and from when the server can be asked.
    pub fn reach(&self) -> Reach {
        let live = self.live.borrow();
        let link = if live.connection.is_some() { live.reach.link } else { 0 };
        Reach { link, ..live.reach }
    }

    pub fn is_lost(&self) -> bool {
        self.live.borrow().connection.is_none()
    }

    pub fn instances(&self) -> u32 {
        self.instances.load(Ordering::Relaxed)
    }

    pub fn figures(&self) -> FleetFigures {
        let (calls, lost) = (self.calls.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed));
        FleetFigures { is_up: !self.is_lost(), instances: self.instances(), calls, lost }
    }

    /// Tells of each new connection, and of the loss of the server.
    pub fn changes(&self) -> watch::Receiver<Live> {
        self.live.subscribe()
    }

    /// Returns when the first attempt to connect has ended.
    pub async fn tried(&self) {
        // The sender lives as long as we do.
        let _ = self.live.subscribe().wait_for(|live| live.is_tried).await;
    }

    /// One answer, within [`PATIENCE`], over another connection if the first breaks. That an answer is late says nothing
    /// about the connection.
    pub async fn call<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        timeout(PATIENCE, self.ask(script)).await.unwrap_or(Err(Lost))
    }

    async fn ask<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, Lost> {
        loop {
            let connection = self.live.borrow().connection.clone();
            match connection.ok_or(Lost)?.invoke(script).await {
                Ok(answer) => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    return Ok(answer);
                }
                // Another version's answer.
                Err(error) if error.kind() == ErrorKind::Parse => return Err(Lost),
                // There may be another connection by then.
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// Connects, hands on what the server sends, notes that this instance is there; for ever.
    pub async fn keep(self: Arc<Self>, messages: UnboundedSender<Message>) {
        let (mut why, mut since) = (format!("no answer within {PATIENCE:?}"), Instant::now());
        loop {
            let connected = tokio::select! {
                connected = timeout(CONNECTING, self.connect(&messages)) => connected,
                never = self.part_at(since + PATIENCE, &why, &messages) => never,
            };
            match connected.unwrap_or_else(|_| Err(format!("no connection within {CONNECTING:?}"))) {
                Ok((url, connection, closed)) => {
                    (why, since) = tokio::select! {
                        broken = self.beat(&url, connection) => broken,
                        () = closed.notified() => ("it closed the connection".into(), Instant::now()),
                    };
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

    async fn connect(
        &self,
        messages: &UnboundedSender<Message>,
    ) -> Result<(SecretUrl, Connection, Arc<Notify>), String> {
        let settings = self.settings.load_full();
        let Some(url) = settings.fleet.as_ref().map(|fleet| fleet.url.clone()) else {
            return Err(String::from("`fleet` has gone from the configuration"));
        };
        let closed = Arc::new(Notify::new());
        let pushes = {
            let (me, messages, closed) = (self.me.clone(), messages.clone(), closed.clone());
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.notify_one();
                }
                // Whoever receives them is gone with the gate.
                Message::parse(&push, &me).map_or(Ok(()), |message| messages.send(message))
            }
        };
        let mut connection = Connection::open(&url, settings.egress.ca_file.as_deref(), pushes, PATIENCE).await?;
        let own = format!("politely:to:{}", self.me);
        let (channels, mut second, mut third) =
            (["politely:all", own.as_str()], connection.clone(), connection.clone());
        // A server that only reads, or has no memory left, is found out here.
        let (subscribed, registered, history) =
            tokio::join!(connection.subscribe(&channels), self.register(&mut second), third.history());
        subscribed.map_err(|error| words(&error)).and(registered)?;
        self.take_up(&url, connection.clone(), history);
        let _ = messages.send(Message::Joined);
        Ok((url, connection, closed))
    }

    fn take_up(&self, url: &SecretUrl, connection: Connection, history: Option<String>) {
        let live = self.live.borrow().clone();
        let remembers = live.connection.is_some() && history.is_some() && live.history == history;
        let mut reach = Reach { connection: live.reach.connection + 1, ..live.reach };
        if remembers {
            tracing::info!("the connection to the fleet's server is there again");
        } else {
            tracing::info!("joined the fleet at {url}, {} instance(s)", self.instances());
            reach.link += 1;
            // Who starts anew has lost nothing, and need not wait for others who have.
            reach.settled_at = (reach.link > 1).then(|| Instant::now() + SETTLING);
        }
        self.live.send_replace(Live { is_tried: true, connection: Some(connection), reach, history });
    }

    /// Tells now and then that this instance is there, until that is not answered: why, and since when.
    async fn beat(&self, url: &SecretUrl, mut connection: Connection) -> (String, Instant) {
        loop {
            sleep(REGISTER_EVERY).await;
            let since = Instant::now();
            if self.settings.load().fleet.as_ref().map(|fleet| &fleet.url) != Some(url) {
                return ("the configuration names another server".into(), since);
            }
            if let Err(why) = self.register(&mut connection).await {
                return (why, since);
            }
        }
    }

    async fn register(&self, connection: &mut Connection) -> Result<(), String> {
        static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("instances.lua")));
        let mut script = SCRIPT.key("politely:instances");
        script.arg(&*self.me).arg(GONE_AFTER.as_millis() as u64);
        let answer = timeout(PATIENCE, connection.invoke(&script)).await;
        let instances = answer.map_err(|_| format!("no answer within {PATIENCE:?}"))?.map_err(|error| words(&error))?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.instances.store(instances, Ordering::Relaxed);
        Ok(())
    }

    async fn part_at(&self, at: Instant, why: &str, messages: &UnboundedSender<Message>) -> ! {
        sleep_until(at.into()).await;
        self.part(why, messages);
        std::future::pending().await
    }

    fn part(&self, why: &str, messages: &UnboundedSender<Message>) {
        let live = self.live.borrow().clone();
        if live.is_tried && live.connection.is_none() {
            return;
        }
        self.lost.fetch_add(u64::from(live.is_tried), Ordering::Relaxed);
        let url = self.settings.load().fleet.as_ref().map(|fleet| fleet.url.to_string()).unwrap_or_default();
        tracing::warn!("the fleet's server {url} is out of reach: {why}; until it is back, `on_fleet_loss` holds");
        // Calls that wait for another connection need wait no longer.
        self.live.send_replace(Live { is_tried: true, connection: None, history: None, ..live });
        let _ = messages.send(Message::Parted);
    }
}

/// For one answer, connecting anew included. A slow server is not a lost one.
const PATIENCE: Duration = Duration::from_secs(2);
const CONNECTING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(1);
/// All notice within this time that a server has been replaced, and tell it what they hold.
const SETTLING: Duration = Duration::from_secs(1);
const REGISTER_EVERY: Duration = Duration::from_secs(1);
const GONE_AFTER: Duration = Duration::from_secs(10);
