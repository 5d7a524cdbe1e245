//! The admin address: health, metrics and the API, on a socket of its own. Started by `server`.

mod api;
mod dashboard;
mod decisions;
mod guard;
mod json;
mod metrics;
mod serve;

pub use json::explanation;

use crate::config;
use crate::gate::Gate;
use crate::proxy::Proxy;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use guard::Token;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Loads the configuration anew; the error is the diagnostics.
pub type Reload = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What every handler reads.
pub struct Admin {
    proxy: Arc<Proxy>,
    /// Where the proxy listens, and whether for TLS.
    listeners: Vec<(SocketAddr, bool)>,
    token: Option<Token>,
    /// Set by whoever knows where the configuration is.
    pub reload: OnceLock<Reload>,
    started: Instant,
}

impl Admin {
    /// Reads the token, if one is configured.
    ///
    /// # Errors
    /// The token cannot be read, or is empty.
    pub fn new(proxy: Arc<Proxy>, listeners: Vec<(SocketAddr, bool)>, settings: &config::Admin) -> io::Result<Self> {
        let token = settings.token_file.as_deref().map(Token::read).transpose()?;
        Ok(Admin { proxy, listeners, token, reload: OnceLock::new(), started: Instant::now() })
    }

    fn gate(&self) -> &Gate {
        &self.proxy.gate
    }
}

fn router(admin: Arc<Admin>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/ca.pem", get(api::ca))
        .route("/proxy.pac", get(api::pac))
        .route("/api/v1/config", get(api::config))
        .route("/api/v1/decisions", get(decisions::decisions))
        .route("/api/v1/openapi.json", get(api::openapi))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/explain", get(api::explain))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/authorities", get(api::authorities))
        .route("/api/v1/authorities/{authority}", get(api::authority))
        .route("/api/v1/authorities/{authority}/refresh", post(api::refresh))
        .layer(from_fn_with_state(admin.clone(), guard::token));
    Router::new()
        .route("/", get(dashboard::page))
        .route("/dashboard/app.js", get(dashboard::script))
        .route("/dashboard/style.css", get(dashboard::style))
        .route("/healthz", get(api::health))
        .route("/readyz", get(api::ready))
        .merge(guarded)
        .fallback(api::not_found)
        .layer(from_fn_with_state(admin.clone(), guard::same_site))
        .with_state(admin)
}
