//! The connection to the fleet's server. If it is lost, it is opened again, however many attempts that takes. Calls wait while a broken
//! connection is replaced. A server that does not answer for [`PATIENCE`] is lost, and no call waits for it.

mod live;
mod registration;
mod view;

use super::keeps::Keeps;
use super::membership::BeatReply;
use super::message::{Message, MessageSender};
use super::place::KeptPlace;
use super::reach::ServerLost;
use super::scripts::{self, InstanceNews};
use super::sentinels::{HostPort, Sentinels};
use super::server::{ServerCall, ServerConnection, words};
use crate::config::{SecretUrl, Settings};
use crate::policy::Refusal;
use arc_swap::ArcSwap;
use futures_util::future::OptionFuture;
use live::Live;
use redis::{ErrorKind, FromRedisValue, PushInfo, PushKind};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until, timeout};

/// The link to the server.
pub(super) struct ServerLink {
    keeps: Keeps,
    settings: Arc<ArcSwap<Settings>>,
    /// Names this process in reservations and messages. Unlike the place's name, it is not reused after a restart.
    pub me: Box<str>,
    place: KeptPlace,
    live: watch::Sender<Live>,
    /// The server's messages, and changes of the link.
    messages: MessageSender,
    calls: AtomicU64,
    lost: AtomicU64,
}

/// The URL of a connection, the connection, the Sentinels that have named its server, and a notification of its end.
type Connected = (SecretUrl, ServerConnection, Option<(Sentinels, HostPort)>, Arc<Notify>);

impl ServerLink {
    pub fn new(keeps: Keeps, settings: Arc<ArcSwap<Settings>>, place: KeptPlace, messages: MessageSender) -> Self {
        ServerLink {
            keeps,
            settings,
            me: format!("{:016x}", fastrand::u64(..)).into(),
            place,
            live: watch::Sender::new(Live::new(Instant::now())),
            messages,
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Returns the answer within [`PATIENCE`], over another connection if the first breaks, unless the server is lost. If the answer is
    /// late, the server counts as lost only if it has answered nothing else meanwhile.
    pub async fn call<'a, T: FromRedisValue>(&self, call: impl Into<ServerCall<'a>>) -> Result<T, ServerLost> {
        let call = call.into();
        let heard = self.calls.load(Ordering::Relaxed);
        let late = |_| {
            if self.calls.load(Ordering::Relaxed) == heard {
                self.part(&no_answer());
            }
            Err(ServerLost)
        };
        tokio::select! {
            answer = timeout(PATIENCE, self.ask(call)) => answer.unwrap_or_else(late),
            () = self.is_such(|live| live.connection.is_none()) => Err(ServerLost),
        }
    }

    async fn ask<T: FromRedisValue>(&self, call: ServerCall<'_>) -> Result<T, ServerLost> {
        loop {
            let connection = self.live.borrow().connection.clone();
            match connection.ok_or(ServerLost)?.invoke(call).await {
                Ok(answer) => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    return Ok(answer);
                }
                // The answer has the format of another version.
                Err(error) if error.kind() == ErrorKind::Parse => return Err(ServerLost),
                // Tries again, as there may be another connection by then.
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    /// Ends [`keep`](Self::keep). Waits until the server knows that this instance leaves, or cannot be reached.
    pub async fn leave(&self) {
        self.live.send_modify(|live| live.leaves = true);
        let _ = timeout(CONNECTING, self.is_such(|live| live.connection.is_none())).await;
    }

    /// Connects, forwards the server's messages and registers this instance, until it leaves the fleet.
    pub async fn keep(&self) {
        tokio::select! {
            never = self.keep_connected() => never,
            () = self.is_such(|live| live.leaves) => {}
        }
        // From here on, this instance does not register any more.
        let connection = self.live.borrow().connection.clone();
        if let Some(mut connection) = connection {
            // If this call is lost, the instance counts as missing.
            let script = scripts::register(self.keeps, &self.place.name, InstanceNews::Ends);
            let _ = timeout(PATIENCE, connection.invoke::<BeatReply>((&script).into())).await;
        }
        self.live.send_modify(|live| live.connection = None);
    }

    async fn keep_connected(&self) -> ! {
        let (mut why, mut since) = (no_answer(), Instant::now());
        loop {
            let connected = tokio::select! {
                connected = timeout(CONNECTING, self.connect()) => connected,
                never = async {
                    sleep_until((since + PATIENCE).into()).await;
                    self.part(&why);
                    std::future::pending().await
                } => never,
            };
            match connected.unwrap_or_else(|_| Err(format!("connecting timed out after {CONNECTING:?}"))) {
                Ok((url, connection, mut sentinels, closed)) => {
                    let named = OptionFuture::from(sentinels.as_mut().map(|(all, named)| all.name_another(named)));
                    (why, since) = tokio::select! {
                        broken = self.beat(&url, connection) => broken,
                        () = closed.notified() => ("it closed the connection".into(), Instant::now()),
                        Some(()) = named => ("the Sentinels name another server".into(), Instant::now()),
                    };
                }
                Err(error) => {
                    why = error;
                    if self.is_lost() || since.elapsed() >= PATIENCE || self.url().is_none() {
                        self.part(&why);
                    }
                }
            }
            sleep(if self.is_lost() { PAUSE } else { AGAIN }.mul_f64(0.5 + fastrand::f64())).await;
        }
    }

    async fn connect(&self) -> Result<Connected, String> {
        let url = self.url().ok_or("its URL is no longer in the configuration")?;
        let closed = Arc::new(Notify::new());
        let pushes = {
            let (me, messages, closed) = (self.me.clone(), self.messages.clone(), closed.clone());
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.notify_one();
                }
                if let Some(message) = Message::parse(&push, &me) {
                    // The receiver is dropped with the gate.
                    let _ = messages.send(message);
                }
                Ok::<_, Infallible>(())
            }
        };
        let ca_file = self.settings.load().egress.ca_file.clone();
        let (mut connection, sentinels) = ServerConnection::open(&url, ca_file.as_deref(), pushes, PATIENCE).await?;
        let (mut second, mut third) = (connection.clone(), connection.clone());
        // Before the first attempt has ended, this instance has not started any requests, so it has no debts to report.
        let news = if self.live.borrow().is_tried { InstanceNews::Tells } else { InstanceNews::Starts };
        // The scripts are loaded first, as a call of a missing script takes three round trips. The registration writes, so connecting to a
        // read-only or full server fails here.
        let ((), subscribed, registered, history) = tokio::join!(
            biased;
            connection.clone().load(scripts::all()),
            connection.subscribe("politely:all"),
            self.register(&mut second, news),
            OptionFuture::from((self.keeps == Keeps::Paces).then(|| third.history()))
        );
        subscribed.map_err(|error| words(&error)).and(registered)?;
        // Reads the server's clock a few more times: the first answer came after the scripts were loaded, and any answer may be late on a
        // busy machine.
        let readings = if self.keeps == Keeps::Paces { 4 } else { 0 };
        for _ in 0..readings {
            self.register(&mut second, news).await?;
        }
        self.adopt(&url, connection.clone(), history.flatten());
        Ok((url, connection, sentinels, closed))
    }

    fn adopt(&self, url: &SecretUrl, connection: ServerConnection, history: Option<String>) {
        let mut remembers = false;
        self.live.send_modify(|live| {
            remembers = live.connection.is_some() && history.is_some() && live.history == history;
            if !remembers {
                live.server += 1;
                // An instance that has not run without this server has no debts to report. It waits only if other instances are known to
                // report debts.
                let waits = live.is_tried || live.membership.telling > 0;
                live.settled_at = waits.then(|| Instant::now() + SETTLING);
            }
            (live.is_tried, live.connection, live.history) = (true, Some(connection), history);
        });
        let instances = self.live.borrow().membership.connected;
        // Logged only when the connection is in use, so that a reader of the log can rely on the line.
        match self.keeps {
            _ if remembers => tracing::info!("reconnected to the fleet's server"),
            Keeps::Paces => tracing::info!(instances, "joined the fleet at {url}"),
            Keeps::Copies => tracing::info!("copies of robots.txt are shared at {url}"),
        }
        self.announce();
    }

    /// Registers regularly until the server is lost. Returns why, and when the last call without an answer began.
    async fn beat(&self, url: &SecretUrl, mut connection: ServerConnection) -> (String, Instant) {
        loop {
            sleep(REGISTER_EVERY).await;
            let since = Instant::now();
            if self.url().as_ref() != Some(url) {
                return ("the configuration names another server".into(), since);
            }
            let tells = self.keeps == Keeps::Paces && !self.live.borrow().has_told();
            let news = if tells { InstanceNews::Tells } else { InstanceNews::HasTold };
            match self.register(&mut connection, news).await {
                // A call without an answer may have declared the server lost just before this answer.
                Ok(true) if !self.is_lost() => {}
                Ok(true) => return (no_answer(), since),
                Ok(false) => {
                    return ("it does not know this instance any more, and may have lost its data".into(), since);
                }
                Err(why) => return (why, since),
            }
        }
    }

    /// Counts the server as lost, and logs why.
    fn part(&self, why: &str) {
        let (mut was_tried, mut is_logged) = (false, false);
        // This also ends the calls that wait for a connection.
        let is_news = self.live.send_if_modified(|live| {
            was_tried = std::mem::replace(&mut live.is_tried, true);
            live.history = None;
            let was_there = live.connection.take().is_some();
            if was_there {
                live.settled_at = Some(Instant::now() + SETTLING);
            }
            let is_news = was_there || !was_tried;
            is_logged = live.logs(why, is_news);
            is_news
        });
        if is_logged {
            let url = self.url().map(|url| url.to_string()).unwrap_or_default();
            let then = match self.reach().refusal() {
                _ if self.keeps == Keeps::Copies => "each instance fetches robots.txt for itself until it is back",
                Some(Refusal::FleetLost { is_uncounted: true, .. }) => {
                    "requests are refused until the server answers, unless `fleet.instances` is set"
                }
                _ => "`on_fleet_loss` applies until it is back",
            };
            tracing::warn!("the fleet's server {url} is unreachable: {why}; {then}");
        }
        if is_news {
            self.lost.fetch_add(u64::from(was_tried), Ordering::Relaxed);
            self.announce();
        }
    }

    fn announce(&self) {
        match self.keeps {
            Keeps::Paces => _ = self.messages.send(Message::Link),
            Keeps::Copies => self.copy_came(""),
        }
    }

    /// Announces that the server has a newer copy of this authority's robots.txt. "": of any.
    pub fn copy_came(&self, authority: &str) {
        let _ = self.messages.send(Message::Robots { authority: authority.into() });
    }

    fn url(&self) -> Option<SecretUrl> {
        self.keeps.url(&self.settings.load())
    }
}

fn no_answer() -> String {
    format!("no answer within {PATIENCE:?}")
}

/// Time for one answer, including reconnecting, until the server counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);
const CONNECTING: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_secs(1);
/// Time within which all instances should notice that the server is lost, was replaced or is back: an instance without a server tries again
/// after at most one and a half times [`PAUSE`].
const SETTLING: Duration = PAUSE.saturating_mul(2);
const REGISTER_EVERY: Duration = Duration::from_secs(1);
