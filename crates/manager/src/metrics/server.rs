//! `/metrics` over TLS, for users with the right to read it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinError;

use super::access::guard;
use crate::access::Access;
use crate::serve::{self, Bounds, Tls};
use crate::shutdown::Stop;

/// Makes the text of a scrape; an error if it panics.
pub type Scrape = Arc<dyn Fn() -> BoxFuture<'static, Result<String, JoinError>> + Send + Sync>;

/// Serves until stopped.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    access: Access,
    scrape: Scrape,
    bounds: Bounds,
    stop: Stop,
) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .layer(Extension(scrape))
        .layer(middleware::from_fn_with_state(Arc::new(access), guard));
    serve::serve(listener, Some(tls), router, bounds, stop).await;
}

async fn metrics(Extension(scrape): Extension<Scrape>, State(()): State<()>) -> Response {
    // After an answer that is no success, Prometheus counts the target as down, and alerts say so.
    match scrape().await {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written: see the manager's log\n")
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::supervise::blocking;

    #[tokio::test]
    async fn a_scrape_that_panics_is_answered_with_500() {
        let scrapes: [(Scrape, StatusCode); 2] = [
            (Arc::new(|| blocking("a scrape", String::new).boxed()), StatusCode::OK),
            (
                Arc::new(|| blocking("a scrape", || -> String { panic!("a bug") }).boxed()),
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
        ];
        for (scrape, status) in scrapes {
            assert_eq!(metrics(Extension(scrape), State(())).await.status(), status);
        }
    }
}
