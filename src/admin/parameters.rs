//! Parameters of a request's target, read by axum, with errors reported like all others.

use super::problem::{ApiProblem, problem};
use crate::policy::Authority;
use axum::extract::{FromRequestParts, Path, Query};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

/// The fields of the query.
pub(super) struct QueryFields<T>(pub T);

/// The authority in the path.
pub(super) struct PathAuthority(pub Authority);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryFields<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let read = Query::from_request_parts(parts, state).await;
        read.map(|Query(read)| QueryFields(read)).map_err(|error| problem(StatusCode::BAD_REQUEST, error.body_text()))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathAuthority {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiProblem> {
        let wrong = |detail| problem(StatusCode::BAD_REQUEST, detail);
        let read = Path::<String>::from_request_parts(parts, state).await;
        let Path(name) = read.map_err(|error| wrong(error.body_text()))?;
        Authority::named(&name).map(PathAuthority).map_err(|_| {
            wrong(format!("`{name}` is not an authority; write https%3A%2F%2Fexample.com, or example.com for https"))
        })
    }
}
