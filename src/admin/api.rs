//! The handlers of the API.

use super::guard::without_port;
use super::json;
use super::parameters::{PathAuthority, QueryFields};
use super::problem::{ApiProblem, problem};
use super::{Admin, Reload};
use crate::config::Changes;
use crate::policy::{Authority, Budget, Entry, Request, SiteFile};
use crate::proxy::{UserFigures, Who};
use crate::rfc3339;
use crate::robots::{ProductToken, Purpose};
use crate::signing::{DIRECTORY_PATH, Published, card};
use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

pub(super) async fn ready(State(admin): State<Arc<Admin>>) -> Result<&'static str, ApiProblem> {
    if admin.proxy.is_leaving() { Err(problem(StatusCode::SERVICE_UNAVAILABLE, "stopping")) } else { Ok("ready\n") }
}

pub(super) async fn not_found() -> ApiProblem {
    problem(StatusCode::NOT_FOUND, "no such page; try /api/v1/status")
}

pub(super) async fn ca(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/x-pem-file")], admin.proxy.leaves.ca().trusted_pem())
}

/// Serves the directory of signing keys, or another document of the agent.
pub(super) async fn directory(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<impl IntoResponse, ApiProblem> {
    let none = || problem(StatusCode::NOT_FOUND, "requests are not signed (identity.signature)");
    let (signer, now) = (admin.proxy.upstream.signer().ok_or_else(none)?, SystemTime::now());
    let published = match uri.path() {
        DIRECTORY_PATH => Some(signer.directory().publish(now)),
        path => card::document(&admin.proxy.settings.load(), path, now),
    };
    let none = || problem(StatusCode::NOT_FOUND, "no addresses are published (identity.addresses)");
    let Published { fields, body } = published.ok_or_else(none)?;
    let field = |(name, value): (&'static str, String)| Some((HeaderName::from_static(name), value.try_into().ok()?));
    Ok((fields.into_iter().filter_map(field).collect::<HeaderMap>(), body))
}

/// Serves a PAC file that sends all traffic to the proxy.
pub(super) async fn pac(State(admin): State<Arc<Admin>>, headers: HeaderMap) -> Result<impl IntoResponse, ApiProblem> {
    // Prefers a listener without TLS, which more programs can use.
    let listeners = admin.listeners.load();
    let listener = listeners.iter().min_by_key(|(_, is_tls)| *is_tls);
    let (listener, is_tls) = listener.ok_or_else(|| problem(StatusCode::NOT_FOUND, "the proxy has no listener"))?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let address = if listener.ip().is_unspecified() {
        // A listener on all addresses can be reached at the host name that the caller used.
        format!("{}:{}", without_port(host), listener.port())
    } else {
        listener.to_string()
    };
    let how = if *is_tls { "HTTPS" } else { "PROXY" };
    let script = format!("function FindProxyForURL(url, host) {{\n  return \"{how} {address}\";\n}}\n");
    Ok(([(header::CONTENT_TYPE, "application/x-ns-proxy-autoconfig")], script))
}

pub(super) async fn status(State(admin): State<Arc<Admin>>) -> Json<Value> {
    let (figures, counts) = (admin.gate().figures(), admin.proxy.counters.read());
    let mode = format!("{:?}", admin.proxy.settings.load().mode).to_ascii_lowercase();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": admin.proxy.upstream.instance(),
        "via": admin.proxy.upstream.name(),
        "signature": admin.proxy.upstream.signer().map(|signer| json!({
            "agent": signer.directory().agent().as_str(),
            "key": signer.directory().ids().next(),
            "listed": signer.directory().ids().collect::<Vec<_>>(),
        })),
        "uptime": admin.started.elapsed().as_secs(),
        "listen": admin.listeners.load().iter().map(|(address, _)| *address).collect::<Vec<_>>(),
        "mode": mode,
        "reload_failure": admin.last_reload.failure.lock().as_ref().map(|(at, why)| json!({
            "at": rfc3339::seconds(*at),
            "error": why,
        })),
        "ca": json::ca(&admin.proxy.leaves.ca()),
        "requests": { "forwarded": counts.forwarded, "failed": counts.failed, "client_gone": counts.client_gone, "refused": counts.refused,
            "reported": counts.reported },
        "distrusted": {
            "total": counts.distrusted.values().sum::<u64>(),
            "clients": admin.proxy.distrusted.latest().iter().filter(|one| one.is_sure).map(|one| json::distrusted(one)).collect::<Vec<_>>(),
        },
        "waiting": figures.waiting,
        "users": busiest(&admin, USERS_SHOWN),
        "budgets": admin.gate().budgets().iter().take(DEFAULT_LIMIT).map(json::budget).collect::<Vec<_>>(),
        "fleet": figures.fleet.map(|fleet| json!({
            "up": fleet.is_up,
            "instances": fleet.instances,
            "missing": fleet.missing,
            "round_trips": fleet.calls,
            "losses": fleet.lost,
        })),
        "cache": admin.proxy.cache.as_ref().map(|cache| cache.figures()),
        "evidence": admin.proxy.evidence.as_ref().map(|evidence| {
            let mut figures = json!(evidence.figures());
            figures["directory"] = json!(evidence.directory());
            figures
        }),
        "robots": {
            "authorities": figures.robots.authorities,
            "files": figures.robots.files,
            "memory": figures.robots.bytes(),
            "fetched": figures.robots.fetched[SiteFile::Robots.kind()],
            "failed": figures.robots.failed[SiteFile::Robots.kind()],
        },
        "authorities": latest(&admin, DEFAULT_LIMIT),
    }))
}

#[derive(Deserialize)]
pub(super) struct ListQuery {
    limit: Option<usize>,
}

pub(super) async fn authorities(
    State(admin): State<Arc<Admin>>,
    QueryFields(shown): QueryFields<ListQuery>,
) -> Json<Value> {
    Json(latest(&admin, shown.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)))
}

fn latest(admin: &Admin, most: usize) -> Value {
    let hosts = admin.gate().latest(most).into_iter();
    hosts.map(|(authority, entry)| json::authority(admin.gate(), &authority, &entry)).collect()
}

/// Lists users, the busiest first.
pub(super) async fn users(State(admin): State<Arc<Admin>>, QueryFields(shown): QueryFields<ListQuery>) -> Json<Value> {
    Json(busiest(&admin, shown.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT)))
}

fn busiest(admin: &Admin, most: usize) -> Value {
    let (settings, busiest) = (admin.proxy.settings.load(), admin.proxy.counters.busiest(most));
    let budgets: HashMap<&str, Budget> =
        settings.access.users.iter().filter_map(|user| Some((user.name.as_ref(), user.budget?))).collect();
    let shown = |figures: &UserFigures| {
        let budget = match &figures.who {
            Who::User(name) => budgets.get(&**name).map(|budget| admin.gate().spent_by(name, *budget)),
            _ => None,
        };
        json::user(figures, budget.as_ref())
    };
    busiest.iter().map(shown).collect()
}

/// Lists held requests in order of arrival.
pub(super) async fn held(State(admin): State<Arc<Admin>>, QueryFields(shown): QueryFields<ListQuery>) -> Json<Value> {
    let held = admin.gate().all_held(shown.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT));
    Json(held.iter().map(json::held).collect())
}

pub(super) async fn authority(
    State(admin): State<Arc<Admin>>,
    PathAuthority(authority): PathAuthority,
) -> Result<Json<Value>, ApiProblem> {
    let entry = admin.gate().entry(SiteFile::Robots, &authority).await;
    let none = || problem(StatusCode::NOT_FOUND, format!("no robots.txt is known for {authority}"));
    let entry = entry.ok_or_else(none)?;
    Ok(robots_detail(&admin, &authority, &entry).await)
}

pub(super) async fn refresh(
    State(admin): State<Arc<Admin>>,
    PathAuthority(authority): PathAuthority,
) -> Result<Json<Value>, ApiProblem> {
    let refreshed = admin.gate().refresh(&authority).await;
    let entry = refreshed.map_err(|refusal| problem(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()))?;
    Ok(robots_detail(&admin, &authority, &entry).await)
}

async fn robots_detail(admin: &Admin, authority: &Authority, entry: &Entry) -> Json<Value> {
    let of = async |file| admin.gate().entry(file, authority).await;
    let tdmrep = of(SiteFile::TdmRep).await;
    let license = match entry.license_url() {
        Some(url) => of(SiteFile::license(url)).await,
        None => None,
    };
    let others = [tdmrep.as_deref(), license.as_deref()];
    let mut value = json::authority_in_full(admin.gate(), authority, entry, others);
    value["offer"] = json!(admin.proxy.offers.of(authority));
    Json(value)
}

pub(super) async fn explain(
    State(admin): State<Arc<Admin>>,
    QueryFields(asked): QueryFields<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiProblem> {
    let named = |name: &'static str| asked.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str());
    let wrong = |key: &str, error: &dyn Display| problem(StatusCode::BAD_REQUEST, format!("`{key}`: {error}"));
    let missing = "`url` is missing: /api/v1/explain?url=https://example.com/page";
    let url = named("url").next().ok_or_else(|| problem(StatusCode::BAD_REQUEST, missing))?;
    let (authority, target) = Authority::and_target(url).map_err(|error| wrong(url, &error))?;
    let tokens = named("product_token").map(ProductToken::parse).collect::<Result<Vec<_>, _>>();
    let purposes = named("purpose").map(Purpose::parse).collect::<Result<Vec<_>, _>>();
    let tokens = tokens.map_err(|error| wrong("product_token", &error))?;
    let purposes = purposes.map_err(|error| wrong("purpose", &error))?;
    let settings = admin.proxy.settings.load();
    let none = |name| wrong("user", &format!("there is no user `{name}` in access.users"));
    let user = named("user").next().map(|name| settings.user(name).ok_or_else(|| none(name))).transpose()?;
    let rules = settings.hosts_of(user.as_deref()).get(authority.host()).rules.clone().asked_for(&tokens, &purposes);
    let own_tokens = user.as_ref().map_or(&[][..], |user| &user.product_tokens);
    let request = Request { product_tokens: own_tokens, ..Request::new(&authority, target.as_bytes()) };
    let refused = settings.refuses(user.as_deref(), &authority, "GET");
    let explained = admin.gate().explain(&request, &rules, refused.as_ref()).await;
    let not_asked = |why| format!("cannot read {}: {why}", authority.robots_url());
    let explained = explained.map_err(|why| problem(StatusCode::SERVICE_UNAVAILABLE, not_asked(why)))?;
    let mut explanation = json::explanation(&explained);
    explanation["pace"] = json::pace(admin.gate().pace(&authority).unwrap_or_default());
    explanation["offer"] = json!(admin.proxy.offers.of(&authority));
    explanation["remembered"] = admin.proxy.reservations.get(&request, &rules).map(json::remembered).into();
    Ok(Json(explanation))
}

/// Shows the settings in force, without secrets.
pub(super) async fn config(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    Json(admin.proxy.settings.load().shown())
}

pub(super) async fn reload(State(admin): State<Arc<Admin>>) -> Result<Json<Value>, ApiProblem> {
    let asked = admin.clone();
    let reload = move || asked.reload.get().and_then(|reload: &Reload| reload());
    match tokio::task::spawn_blocking(reload).await {
        Ok(Some(Ok(Changes { changed, needs_restart }))) => {
            // False if a key needs a restart: all other changes are in force.
            let reloaded = needs_restart.is_empty();
            let settings = admin.proxy.settings.load();
            Ok(Json(json!({
                "reloaded": reloaded, "changed": changed, "needs_restart": needs_restart, "warnings": settings.warnings(),
            })))
        }
        Ok(Some(Err(faults))) => Err(problem(StatusCode::UNPROCESSABLE_ENTITY, faults)),
        Ok(None) => Err(problem(StatusCode::CONFLICT, "this proxy has no configuration file to reload")),
        Err(error) => Err(problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// The OpenAPI description of the API.
pub const OPENAPI: &str = include_str!("openapi.json");
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 10_000;
/// Maximum number of users in the status: enough for each team of a large shared proxy.
const USERS_SHOWN: usize = 500;
