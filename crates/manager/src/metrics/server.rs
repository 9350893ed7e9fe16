//! `/metrics` over TLS, for users with the right to read it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures::future::BoxFuture;
use tokio::net::TcpListener;

use super::access::guard;
use crate::access::Access;
use crate::serve::{self, Bounds, Tls};
use crate::shutdown::Stop;

/// Makes the text of a scrape.
pub type Scrape = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

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
    let text = scrape().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
