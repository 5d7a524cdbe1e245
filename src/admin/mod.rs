//! The admin address: health, metrics and the API, on a socket of its own. Started by `server`.

mod api;
mod asked;
mod dashboard;
mod decisions;
mod guard;
mod json;
mod metrics;
mod process;
mod serve;

pub use json::explanation;

use crate::config::{self, AdminToken, Changes, ListenAddress};
use crate::gate::Gate;
use crate::proxy::Proxy;
use crate::signing::DIRECTORY_PATH;
use arc_swap::ArcSwap;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use guard::CallerToken;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Reloads the configuration; the error is the diagnostics. `None`: there is none to reload.
pub type Reload = Box<dyn Fn() -> Option<Result<Changes, String>> + Send + Sync>;

/// What every handler reads.
pub struct Admin {
    proxy: Arc<Proxy>,
    /// Where the proxy listens, and whether for TLS.
    pub listeners: ArcSwap<Vec<(SocketAddr, bool)>>,
    token: CallerToken,
    /// On other interfaces all but health takes the token.
    is_on_loopback: bool,
    /// Set by whoever knows where the configuration is.
    pub reload: OnceLock<Reload>,
    pub last_reload: LastReload,
    /// Whether nobody is answered any more: the process ends.
    ended: watch::Sender<bool>,
    started: Instant,
}

/// What became of the last reload; the start counts as one.
pub struct LastReload {
    is_successful: AtomicBool,
    /// In seconds since 1970.
    succeeded_at: AtomicU64,
}

impl LastReload {
    fn begin() -> Self {
        let last = Self { is_successful: AtomicBool::new(true), succeeded_at: AtomicU64::new(0) };
        last.note(true);
        last
    }

    /// There was one just now. `is_successful`: all of the configuration is in force.
    pub fn note(&self, is_successful: bool) {
        self.is_successful.store(is_successful, Relaxed);
        if is_successful {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.succeeded_at.store(now.as_secs(), Relaxed);
        }
    }
}

impl Admin {
    /// Reads the token, or makes one if none is configured.
    ///
    /// # Errors
    /// The configured token cannot be read, or is empty.
    pub fn new(proxy: Arc<Proxy>, settings: &config::AdminSettings) -> io::Result<Self> {
        let token = CallerToken::of(&AdminToken::of(&proxy.settings.load()))?;
        let is_on_loopback = match &settings.address {
            Some(ListenAddress::Socket(address)) => address.ip().is_loopback(),
            Some(ListenAddress::Inherited(_)) | None => false,
        };
        Ok(Admin {
            proxy,
            listeners: ArcSwap::default(),
            token,
            is_on_loopback,
            reload: OnceLock::new(),
            last_reload: LastReload::begin(),
            ended: watch::Sender::new(false),
            started: Instant::now(),
        })
    }

    /// What callers have to show. `None`: nobody can.
    pub fn token(&self) -> Option<&str> {
        self.token.text()
    }

    /// Ends what serves; who is being answered is given a moment.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    fn gate(&self) -> &Gate {
        &self.proxy.gate
    }
}

fn router(admin: Arc<Admin>) -> Router {
    let token = || from_fn_with_state(admin.clone(), guard::token);
    // Of no client, or only counts; for programs that would have to be told the token.
    let mut shared = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/ca.pem", get(api::ca))
        .route("/proxy.pac", get(api::pac));
    if !admin.is_on_loopback {
        shared = shared.layer(token());
    }
    let guarded = Router::new()
        .route("/api/v1/config", get(api::config))
        .route("/api/v1/decisions", get(decisions::decisions))
        .route("/api/v1/held", get(api::held))
        .route("/api/v1/openapi.json", get(api::openapi))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/explain", get(api::explain))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/authorities", get(api::authorities))
        .route("/api/v1/authorities/{authority}", get(api::authority))
        .route("/api/v1/authorities/{authority}/refresh", post(api::refresh))
        .layer(token());
    Router::new()
        .route("/", get(dashboard::page))
        .route("/dashboard/app.js", get(dashboard::script))
        .route("/dashboard/style.css", get(dashboard::style))
        .route("/healthz", get(api::health))
        .route("/readyz", get(api::ready))
        .merge(shared)
        .merge(guarded)
        .fallback(api::not_found)
        .layer(from_fn_with_state(admin.clone(), guard::same_site))
        // It is for all the world, by whatever name it gets here.
        .route(DIRECTORY_PATH, get(api::directory))
        .with_state(admin)
}
