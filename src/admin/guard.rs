//! Access control, called by `router` for each request. Refuses requests from other sites' pages in a browser, and requests to foreign host
//! names that point here (DNS rebinding). Shows other clients' data only to callers with the token.

use super::Admin;
use super::problem::problem;
use crate::config::AdminToken;
use crate::policy::{Host, HostPattern};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The token that callers have to send. `None`: the token could not be stored, so every request that needs it is refused.
///
/// # Errors
/// The operator's token cannot be read.
pub(super) fn token(file: &AdminToken) -> io::Result<Option<String>> {
    match file.read_or_make() {
        Err(error) if !file.is_configured => {
            let path = file.path.display();
            tracing::warn!(
                "the admin API refuses all requests: cannot store a token in {path} ({error}); make room, then \
                 reload; or set `store.directory`, or `admin.token_file` to a file of your own, and restart"
            );
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// Whether the request has our token.
pub(super) fn has_token(ours: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(ours) = ours else { return false };
    let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let shown = shown.split_at_checked(BEARER.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER));
    shown.is_some_and(|(_, token)| token.ct_eq(ours.as_bytes()).into())
}

pub(super) async fn require_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if has_token(admin.token(), request.headers()) {
        return next.run(request).await;
    }
    let problem = problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong; `politely status` prints it");
    ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

pub(super) async fn refuse_cross_site(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let host = if let [host] = hosts[..] { host.to_str().ok() } else { None };
    let named = &admin.proxy.settings.load().admin.hosts;
    let Some((host, by)) = host.and_then(|host| Some((host, HostKind::of(host, named)?))) else {
        return problem(StatusCode::MISDIRECTED_REQUEST, WRONG_NAME).into_response();
    };
    if is_cross_site(headers, host, by) {
        return problem(StatusCode::FORBIDDEN, "requests from pages of other sites are refused").into_response();
    }
    next.run(request).await
}

/// The kind of name in a request's Host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostKind {
    /// An address, which cannot be made to point elsewhere, or `localhost`, which is not looked up.
    Own,
    /// A name in `admin.hosts`, possibly behind TLS.
    Named,
}

impl HostKind {
    /// The kind of this name. `None`: any site could make the name point here.
    fn of(host: &str, named: &[HostPattern]) -> Option<Self> {
        let name = without_port(host);
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok() {
            return Some(Self::Own);
        }
        let name = Host::parse(name).ok()?;
        named.iter().any(|pattern| pattern.matches(&name)).then_some(Self::Named)
    }
}

/// A Host field without its port; IPv6 keeps its brackets.
pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

fn is_cross_site(headers: &HeaderMap, host: &str, by: HostKind) -> bool {
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    let foreign = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    let origins = headers.get_all(header::ORIGIN).iter();
    let from_us = |origin: &[u8]| {
        let by_tls = || origin.strip_prefix(b"https://").filter(|_| by == HostKind::Named);
        let origin = origin.strip_prefix(b"http://").or_else(by_tls);
        origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_bytes()))
    };
    foreign || origins.map(|origin| origin.as_bytes()).any(|origin| !from_us(origin))
}

const BEARER: &[u8] = b"Bearer ";
const WRONG_NAME: &str = "the admin address does not have this name; use an IP address or localhost, or add the name to \
                          `admin.hosts` in its configuration";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_addresses_localhost_and_configured_names_are_accepted() {
        let named = ["proxy.example", "*.cluster.local"].map(|host| HostPattern::parse(host).unwrap());
        let is_ours = |host| HostKind::of(host, &named) == Some(HostKind::Own);
        for host in ["proxy.example", "PROXY.example.:3129", "politely.default.svc.cluster.local:3129"] {
            assert_eq!(HostKind::of(host, &named), Some(HostKind::Named), "{host}");
            assert_eq!(HostKind::of(host, &[]), None, "{host}");
        }
        for host in ["cluster.local", "a.proxy.example", "proxy.example.evil.example", "evil.example:3129"] {
            assert_eq!(HostKind::of(host, &named), None, "{host}");
        }
        for host in ["127.0.0.1", "127.0.0.1:3129", "[::1]:3129", "[::1]", "localhost", "LOCALHOST:1", "192.0.2.1:80"] {
            assert!(is_ours(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:3129", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:x"]
        {
            assert!(!is_ours(host), "{host}");
        }
    }

    #[test]
    fn browser_headers_reveal_pages_of_other_sites() {
        let host = "127.0.0.1:3129";
        for (fields, cross) in [
            (headers(&[]), false),
            (headers(&[("sec-fetch-site", "none")]), false),
            (headers(&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:3129")]), false),
            (headers(&[("sec-fetch-site", "same-site")]), true),
            (headers(&[("sec-fetch-site", "cross-site")]), true),
            (headers(&[("origin", "http://127.0.0.1:8000")]), true),
            (headers(&[("origin", "https://127.0.0.1:3129")]), true),
            (headers(&[("origin", "null")]), true),
        ] {
            assert_eq!(is_cross_site(&fields, host, HostKind::Own), cross, "{fields:?}");
        }
        let behind_tls = headers(&[("origin", "https://proxy.example"), ("sec-fetch-site", "same-origin")]);
        assert!(!is_cross_site(&behind_tls, "proxy.example", HostKind::Named));
        assert!(is_cross_site(&behind_tls, "other.example", HostKind::Named));
    }

    #[test]
    fn the_whole_token_is_required() {
        let has_token = |headers: &HeaderMap| has_token(Some("s3cret"), headers);
        for (value, good) in
            [("Bearer s3cret", true), ("bearer s3cret", true), ("Bearer s3cre", false), ("s3cret", false), ("", false)]
        {
            assert_eq!(has_token(&headers(&[("authorization", value)])), good, "{value}");
        }
        assert!(!has_token(&headers(&[])));
    }
}
