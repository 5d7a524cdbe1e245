//! `/api/v1/decisions`: the recent refusals, and requests that were only reported, as JSON or live (`text/event-stream`, HTML §9.2).

use super::parameters::QueryFields;
use super::{Admin, json};
use crate::proxy::RecentDecision;
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use http::{HeaderMap, header};
use serde::Deserialize;
use std::convert::Infallible;
use std::sync::Arc;

#[derive(Deserialize)]
pub(super) struct DecisionsQuery {
    /// Selects the decisions with a greater number.
    after: Option<u64>,
    /// Maximum number of decisions; the newest are returned.
    limit: Option<usize>,
}

pub(super) async fn decisions(
    State(admin): State<Arc<Admin>>,
    QueryFields(wanted): QueryFields<DecisionsQuery>,
    headers: HeaderMap,
) -> Response {
    let field = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    if field(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream")) {
        // A reconnecting reader sends the number of the last decision that it received.
        let seen = field(header::HeaderName::from_static("last-event-id")).and_then(|number| number.parse().ok());
        let after = seen.or(wanted.after).unwrap_or_default();
        return Sse::new(events(admin, after)).keep_alive(KeepAlive::default()).into_response();
    }
    let decisions = admin.proxy.decisions.after(wanted.after.unwrap_or_default());
    let first = decisions.len().saturating_sub(wanted.limit.unwrap_or(usize::MAX));
    Json(decisions[first..].iter().map(|decision| json::decision(decision)).collect::<Vec<_>>()).into_response()
}

/// Decisions after `after`, then new ones, until the proxy stops.
fn events(admin: Arc<Admin>, after: u64) -> impl Stream<Item = Result<Event, Infallible>> {
    let decisions = admin.proxy.decisions.follow(after);
    let ended = async move { admin.ended().await };
    decisions.take_until(Box::pin(ended)).map(|decision| Ok(event(&decision)))
}

fn event(decision: &RecentDecision) -> Event {
    Event::default().event("decision").id(decision.number.to_string()).data(json::decision(decision).to_string())
}
