//! `/`: the API's data as a page for people. The page holds no data and asks the API like any client, so loading it requires no token.

use axum::response::IntoResponse;
use http::header;

pub(super) const PAGE: &str = include_str!("index.html");
pub(super) const SCRIPT: &str = include_str!("app.js");
pub(super) const STYLE: &str = concat!(include_str!("colors.css"), include_str!("style.css"));

pub(super) fn served(kind: &'static str, text: &'static str) -> impl IntoResponse + Clone + Send + Sync + 'static {
    let fields = [
        (header::CONTENT_TYPE, kind),
        // The page shows URLs that crawlers requested. Whatever they contain, only our script runs.
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (fields, text)
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
