//! A stand-in for the API server inside the test's process: a function answers what the real parts of the manager send. And a server that is down.

use std::future::Future;
use std::net::Ipv4Addr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpSocket;

/// A client whose requests `answer` answers. If `answer` panics, the task that sent the request panics.
pub(crate) fn client<A>(answer: impl Fn(Method, Uri, Bytes) -> A + Clone + Send + Sync + 'static) -> Client
where
    A: Future<Output = Response> + Send + 'static,
{
    Client::new(Router::new().fallback(answer), "default")
}

/// A port of 127.0.0.1 that refuses connections as long as the socket is kept: no other program gets it.
pub(crate) fn refusing_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// An object or a list.
pub(crate) fn found(value: &Value) -> Response {
    Response::new(Body::from(value.to_string()))
}

/// A Status.
pub(crate) fn failed(code: u16, reason: &str) -> Response {
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
    (StatusCode::from_u16(code).unwrap(), status.to_string()).into_response()
}

/// A list of one page.
pub(crate) fn list(version: &str, items: &[Value]) -> Value {
    json!({"metadata": {"resourceVersion": version}, "items": items})
}
