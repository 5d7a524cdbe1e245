//! Parameters of a request's target, read as axum reads them, with errors reported like all others.

use super::json::problem;
use axum::extract::{FromRequestParts, Path, Query};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

/// The fields of the query.
pub(super) struct QueryFields<T>(pub T);

/// The authority in the path.
pub(super) struct PathAuthority(pub String);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryFields<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let read = Query::from_request_parts(parts, state).await;
        read.map(|Query(read)| QueryFields(read)).map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathAuthority {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(name)| PathAuthority(name)).map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}
