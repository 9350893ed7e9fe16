//! `/metrics` over TLS, for those whom the API server lets.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use futures::future::BoxFuture;
use tracing::warn;

use super::access::{Access, guard};
use crate::error_chain::Chain;
use crate::shutdown::Stop;

/// Makes the text of a scrape.
pub type Scrape = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// Serves until stopped.
pub async fn serve(listener: TcpListener, tls: RustlsConfig, access: Access, scrape: Scrape, mut stop: Stop) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .layer(Extension(scrape))
        .layer(middleware::from_fn_with_state(Arc::new(access), guard));
    let handle = Handle::new();
    let stopping = handle.clone();
    tokio::spawn(async move {
        stop.stopped().await;
        stopping.graceful_shutdown(Some(Duration::from_secs(1)));
    });
    let server = match axum_server::from_tcp_rustls(listener, tls) {
        Ok(server) => server.handle(handle),
        Err(error) => {
            warn!(error = %Chain(&error), "the metrics server could not start");
            return;
        }
    };
    if let Err(error) = server.serve(router.into_make_service()).await {
        warn!(error = %Chain(&error), "the metrics server ended");
    }
}

async fn metrics(Extension(scrape): Extension<Scrape>, State(()): State<()>) -> Response {
    let text = scrape().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
