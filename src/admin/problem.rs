//! Errors of the API as problem details (RFC 9457), like the proxy's refusals.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;

pub(super) struct ApiProblem {
    status: StatusCode,
    detail: String,
}

pub(super) fn problem(status: StatusCode, detail: impl Into<String>) -> ApiProblem {
    ApiProblem { status, detail: detail.into() }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let Self { status, detail } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
        (status, [(header::CONTENT_TYPE, "application/problem+json")], Json(body)).into_response()
    }
}
