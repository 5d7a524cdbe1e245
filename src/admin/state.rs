//! State shared by the handlers of the admin address.

use super::guard;
use crate::config::{AdminToken, Changes, ListenAddress};
use crate::gate::Gate;
use crate::proxy::Proxy;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Reloads the configuration; an error is the text of the diagnostics. `None`: there is no file to reload.
pub type Reload = Box<dyn Fn() -> Option<Result<Changes, String>> + Send + Sync>;

/// State shared by all handlers.
pub struct Admin {
    pub(super) proxy: Arc<Proxy>,
    /// The proxy's addresses, and whether each speaks TLS.
    pub listeners: ArcSwap<Vec<(SocketAddr, bool)>>,
    token: OnceLock<String>,
    /// If false, `/metrics`, `/ca.pem` and `/proxy.pac` require the token, too.
    pub(super) is_on_loopback: bool,
    /// Reloads the configuration. The code that loaded the configuration sets this.
    pub reload: OnceLock<Reload>,
    pub last_reload: LastReload,
    /// True once the process shuts down.
    pub(super) ended: watch::Sender<bool>,
    pub(super) started: Instant,
}

/// The result of the last reload; the start counts as one.
#[derive(Default)]
pub struct LastReload {
    /// When the last reload failed, and why, in one line. `None`: all of the configuration is in force.
    pub(super) failure: Mutex<Option<(SystemTime, String)>>,
    /// Time of the last successful reload, in seconds since 1970.
    pub(super) succeeded_at: AtomicU64,
}

impl LastReload {
    /// Records a reload. `why`: the reason if it failed.
    pub fn note(&self, why: Option<String>) {
        let now = SystemTime::now();
        if why.is_none() {
            self.succeeded_at.store(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(), Relaxed);
        }
        *self.failure.lock() = why.map(|why| (now, why));
    }
}

impl Admin {
    /// Reads the token, or makes one if none is configured.
    ///
    /// # Errors
    /// The configured token cannot be read, or is empty.
    pub fn new(proxy: Arc<Proxy>) -> io::Result<Self> {
        let settings = proxy.settings.load_full();
        let token = guard::token(&AdminToken::of(&settings))?;
        let token = token.map_or_else(OnceLock::new, OnceLock::from);
        let last_reload = LastReload::default();
        last_reload.note(None);
        Ok(Admin {
            proxy,
            listeners: ArcSwap::default(),
            token,
            is_on_loopback: settings.admin.address.as_ref().and_then(ListenAddress::is_loopback) == Some(true),
            reload: OnceLock::new(),
            last_reload,
            ended: watch::Sender::new(false),
            started: Instant::now(),
        })
    }

    /// The token that callers have to send. `None`: the token could not be stored.
    pub fn token(&self) -> Option<&str> {
        self.token.get().map(String::as_str)
    }

    /// Makes the token, if it could not be stored before.
    pub fn store_token(&self) {
        if self.token.get().is_none()
            && let Ok(Some(token)) = guard::token(&AdminToken::of(&self.proxy.settings.load()))
        {
            // Reloads never run concurrently.
            let _ = self.token.set(token);
        }
    }

    /// Stops serving. Requests in flight have half a second to finish.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.proxy.gate
    }
}
