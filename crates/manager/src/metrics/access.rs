//! Who may read metrics: users that the API server authenticates and allows to GET `/metrics`, as with controller-runtime
//! (docs/reference/08-tooling.md).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sluice_client::error_chain::Chain;
use tracing::warn;

use crate::access::{Access, AccessError, Attributes, address, bearer};

/// How long an answer of the API server is used.
pub const REMEMBER: Duration = Duration::from_mins(1);

/// Lets a request pass, or answers 401 or 403; 500 when the API server cannot be asked.
pub async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else {
        return (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response();
    };
    let from = address(request.extensions().get());
    match allowed(&access, (token, from), request.uri().path()).await {
        Ok(Some(true)) => next.run(request).await,
        Ok(Some(false)) => (StatusCode::FORBIDDEN, "Forbidden\n").into_response(),
        Ok(None) => (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response(),
        Err(AccessError::TooMany) => {
            (StatusCode::TOO_MANY_REQUESTS, "too many unknown readers\n").into_response()
        }
        Err(error) => {
            warn!(error = %Chain(&error), "a reader of metrics could not be checked");
            (StatusCode::INTERNAL_SERVER_ERROR, "the API server cannot be asked\n").into_response()
        }
    }
}

/// Whether the owner of a token may read a path; nothing if it has no owner.
async fn allowed(
    access: &Access,
    (token, from): (&str, Option<IpAddr>),
    path: &str,
) -> Result<Option<bool>, AccessError> {
    let Some(user) = access.user_of(token, from).await? else { return Ok(None) };
    access.may(&user, &Attributes::Path { verb: "get", path: path.to_owned() }).await.map(Some)
}
