//! A stand-in for an OpenTelemetry collector: a server of the test's own that decodes requests with OpenTelemetry's protobuf, and gives the test's
//! answers.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::serve::connections::Patience;
use crate::serve::{Bounds, Tls, serve};
use crate::shutdown::{Stopper, pair};

/// One request.
pub struct Asked {
    pub path: String,
    pub headers: HeaderMap,
    pub body: ExportTraceServiceRequest,
}

/// Makes the answers.
type Answers = Arc<dyn Fn() -> Response + Send + Sync>;

/// A server until it is dropped.
pub struct StandIn {
    pub port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    _stopper: Stopper,
}

impl StandIn {
    /// Gives these answers.
    #[expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]
    pub async fn start(tls: Option<Tls>, answer: impl Fn() -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let state: (Arc<Mutex<Vec<Asked>>>, Answers) = (Arc::clone(&asked), Arc::new(answer));
        let router = Router::new().fallback(take).with_state(state);
        let (stopper, stop) = pair();
        let bounds = Bounds { connections: 16, patience: Patience::default() };
        tokio::spawn(serve(listener, tls, router, bounds, stop));
        Self { port, asked, _stopper: stopper }
    }

    /// Takes everything.
    pub async fn willing() -> Self {
        Self::start(None, || Response::new(axum::body::Body::empty())).await
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn take(
    State((asked, answer)): State<(Arc<Mutex<Vec<Asked>>>, Answers)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = ExportTraceServiceRequest::decode(body).unwrap();
    asked.lock().unwrap().push(Asked { path: uri.path().to_owned(), headers, body });
    answer()
}
