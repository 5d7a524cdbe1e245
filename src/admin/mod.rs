//! The admin address: health, metrics and the API, on its own socket. `server` starts it.

mod api;
mod dashboard;
mod decisions;
mod guard;
mod histograms;
mod json;
mod metrics;
mod parameters;
mod problem;
mod process;
mod serve;
mod state;

pub use api::OPENAPI;
pub use json::explanation;
pub use state::{Admin, Reload};

use crate::signing::{DIRECTORY_PATH, card};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use dashboard::served;
use http::header;
use std::sync::Arc;

fn router(admin: Arc<Admin>) -> Router {
    let token = || from_fn_with_state(admin.clone(), guard::require_token);
    // These routes reveal no clients' data (metrics name users only if the token is sent): on loopback, they need no token.
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
        .route("/api/v1/openapi.json", get(([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/users", get(api::users))
        .route("/api/v1/explain", get(api::explain))
        .route("/api/v1/reload", post(api::reload))
        .route("/api/v1/authorities", get(api::authorities))
        .route("/api/v1/authorities/{authority}", get(api::authority))
        .route("/api/v1/authorities/{authority}/refresh", post(api::refresh))
        .layer(token());
    Router::new()
        .route("/", get(served("text/html; charset=utf-8", dashboard::PAGE)))
        .route("/dashboard/app.js", get(served("text/javascript; charset=utf-8", dashboard::SCRIPT)))
        .route("/dashboard/style.css", get(served("text/css; charset=utf-8", dashboard::STYLE)))
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(api::ready))
        .merge(shared)
        .merge(guarded)
        .fallback(api::not_found)
        .layer(from_fn_with_state(admin.clone(), guard::refuse_cross_site))
        // Public: served whatever the request's Host.
        .route(DIRECTORY_PATH, get(api::directory))
        .route(card::CARD_PATH, get(api::directory))
        .route(card::RANGES_PATH, get(api::directory))
        .with_state(admin)
}
