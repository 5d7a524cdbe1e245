//! Who may ask: no page of another site through a browser, no name that was made to point here (DNS rebinding), and no
//! data of other clients without the token. Called for each request by `router`.

use super::Admin;
use super::problem::problem;
use crate::config::AdminToken;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// What callers have to show.
pub(super) struct CallerToken {
    /// `None`: there is nowhere to keep one, and nobody has it.
    token: Option<Box<str>>,
    is_configured: bool,
}

impl CallerToken {
    /// # Errors
    /// The operator's own cannot be read.
    pub fn of(file: &AdminToken) -> io::Result<Self> {
        let is_configured = file.is_configured;
        match file.read_or_make() {
            Ok(token) => Ok(CallerToken { token: Some(token.into()), is_configured }),
            Err(error) if is_configured => Err(error),
            Err(error) => {
                let path = file.path.display();
                tracing::warn!(
                    "the admin API refuses all requests: cannot store a token in {path} ({error}); set `admin.token_file` \
                     to a file of your own"
                );
                Ok(CallerToken { token: None, is_configured })
            }
        }
    }

    pub fn text(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        let Some(ours) = &self.token else { return false };
        let shown = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
        let shown = shown.split_at_checked(BEARER.len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER));
        shown.is_some_and(|(_, token)| token.ct_eq(ours.as_bytes()).into())
    }
}

pub(super) async fn token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if admin.token.is_shown(request.headers()) {
        return next.run(request).await;
    }
    let problem = problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong; `politely status` prints it");
    ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

pub(super) async fn same_site(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    // Where a token is configured, another name in front of us is the operator's business.
    let hosts: Vec<_> = headers.get_all(header::HOST).iter().collect();
    let host = if let [host] = hosts[..] { host.to_str().ok() } else { None };
    if !host.is_some_and(|host| admin.token.is_configured || is_ours(host)) {
        return problem(StatusCode::MISDIRECTED_REQUEST, "use an IP address or localhost as the host name")
            .into_response();
    }
    if is_cross_site(headers, host.unwrap_or_default()) {
        return problem(StatusCode::FORBIDDEN, "requests from pages of other sites are refused").into_response();
    }
    next.run(request).await
}

/// An address cannot be made to point elsewhere, and `localhost` is not looked up.
fn is_ours(host: &str) -> bool {
    let name = without_port(host);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// The name or address that a Host field begins with; IPv6 keeps its brackets.
pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

fn is_cross_site(headers: &HeaderMap, host: &str) -> bool {
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    let foreign = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    let origins = headers.get_all(header::ORIGIN).iter();
    let from_us = |origin: &[u8]| {
        origin.strip_prefix(b"http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_bytes()))
    };
    foreign || origins.map(|origin| origin.as_bytes()).any(|origin| !from_us(origin))
}

const BEARER: &[u8] = b"Bearer ";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_addresses_and_localhost_are_hosts_of_ours() {
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
    fn pages_of_other_sites_are_told_by_what_browsers_say() {
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
            assert_eq!(is_cross_site(&fields, host), cross, "{fields:?}");
        }
    }

    #[test]
    fn the_token_has_to_be_the_whole_one() {
        let token = CallerToken { token: Some("s3cret".into()), is_configured: true };
        for (value, good) in
            [("Bearer s3cret", true), ("bearer s3cret", true), ("Bearer s3cre", false), ("s3cret", false), ("", false)]
        {
            assert_eq!(token.is_shown(&headers(&[("authorization", value)])), good, "{value}");
        }
        assert!(!token.is_shown(&headers(&[])));
    }
}
