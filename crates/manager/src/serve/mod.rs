//! HTTP/1.1 servers, with or without TLS, that clients cannot exhaust: a bounded number of connections with a bounded time for each step, small
//! heads, and no more descriptors than there are.
//!
//! Beyond the bound the least useful connection is closed for the new one (see [`connections`]): thousands of idle connections never keep a caller
//! with a request out. HTTP/2 is not offered: the API server speaks HTTP/1.1 to webhooks so that its requests spread over the replicas, and kubelets
//! and Prometheus work without it.

pub mod body;
pub mod connections;
pub mod descriptors;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::FutureExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, error, warn};

use crate::access::front_proxy::ClientCertificate;
use crate::shutdown::Stop;
use body::{Received, Sent};
use connections::{Connections, Id, Lifetime, Patience, Phase};

/// The bytes of a request's head, and of each direction's buffer. Tokens of service accounts are the largest things in it.
const HEAD_BYTES: usize = 32 << 10;
/// The headers of a request.
const HEADERS: usize = 64;
/// How long what is being answered may take after the stop signal of the server.
const GRACE: Duration = Duration::from_secs(2);
/// The pause after the system refused a connection: it has no descriptor left, or no memory.
const REFUSED: Duration = Duration::from_millis(50);

/// The TLS configuration of a server, exchangeable while it runs: each connection reads it again.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

impl Tls {
    /// Begins with this one.
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(ArcSwap::new(config)))
    }

    /// For connections from now on.
    pub fn exchange(&self, config: Arc<ServerConfig>) {
        self.0.store(config);
    }

    /// The one for a new connection.
    pub fn now(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

/// The bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// The time for each step.
    pub patience: Patience,
}

/// A connection, as its server knows it. Requests have it as an extension.
#[derive(Debug)]
pub struct ConnectionHandle {
    id: Id,
    connections: Arc<Mutex<Connections>>,
    news: Arc<Notify>,
}

impl ConnectionHandle {
    fn with<T>(&self, act: impl FnOnce(&mut Connections) -> T) -> T {
        act(&mut self.connections.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, phase: Phase) {
        self.with(|connections| connections.enter(self.id, phase, Instant::now()));
    }

    fn received(&self) {
        self.with(|connections| connections.received(self.id, Instant::now()));
    }

    /// The request now holds this number of bytes.
    pub fn hold(&self, bytes: usize) {
        self.with(|connections| connections.hold(self.id, bytes));
    }

    /// Closes other connections that hold this number of bytes together; see [`Connections::make_room`].
    pub fn make_room(&self, missing: usize) -> bool {
        self.with(|connections| connections.make_room(self.id, missing, Instant::now()))
    }

    /// One that is in no table.
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Self> {
        Arc::new(Self { id: 0, connections: Arc::default(), news: Arc::default() })
    }

    /// Waits until the connection must end.
    async fn over(&self) {
        loop {
            match self.with(|connections| connections.lifetime(self.id, Instant::now())) {
                Lifetime::Over => return,
                Lifetime::Open => self.news.notified().await,
                Lifetime::Until(then) => {
                    tokio::select! {
                        () = self.news.notified() => {}
                        () = tokio::time::sleep_until(then.into()) => {}
                    }
                }
            }
        }
    }
}

/// Takes the connection out of the table, however it ends.
struct Leaving(Arc<ConnectionHandle>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.with(|connections| connections.remove(self.0.id));
    }
}

/// Serves until stopped.
pub async fn serve(listener: TcpListener, tls: Option<Tls>, router: Router, bounds: Bounds, mut stop: Stop) {
    let slots = Arc::new(Semaphore::new(bounds.connections));
    let connections = Arc::new(Mutex::new(Connections::new(bounds.patience)));
    let mut running = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.stopped() => break,
            accepted = listener.accept() => accepted,
            Some(ended) = running.join_next() => {
                if let Err(panic) = ended {
                    error!(%panic, "a connection failed");
                }
                continue;
            }
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(why) => {
                warn!(%why, "a connection could not be accepted");
                connections.lock().unwrap_or_else(PoisonError::into_inner).shed(Instant::now());
                tokio::time::sleep(REFUSED).await;
                continue;
            }
        };
        let slot = tokio::select! {
            () = stop.stopped() => break,
            slot = slot(&slots, &connections) => slot,
        };
        let (id, news) = connections.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now());
        let entry = Arc::new(ConnectionHandle { id, connections: Arc::clone(&connections), news });
        let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "it is joined above: the panic of one connection ends no other"
        )]
        running.spawn(connection(stream, from, tls, router, entry, slot, stop));
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, async { while running.join_next().await.is_some() {} }).await;
}

/// Waits for room for one more; closes another connection if possible.
async fn slot(slots: &Arc<Semaphore>, connections: &Mutex<Connections>) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(slot) = Arc::clone(slots).try_acquire_owned() {
            return Some(slot);
        }
        connections.lock().unwrap_or_else(PoisonError::into_inner).shed(Instant::now());
        // If none can be closed now, all are being answered; a finished one may be closed later.
        let waiting = tokio::time::timeout(REFUSED, Arc::clone(slots).acquire_owned());
        if let Ok(slot) = waiting.await {
            return slot.ok();
        }
    }
}

async fn connection(
    stream: TcpStream,
    from: SocketAddr,
    tls: Option<Tls>,
    router: Router,
    entry: Arc<ConnectionHandle>,
    _slot: Option<OwnedSemaphorePermit>,
    stop: Stop,
) {
    let leaving = Leaving(Arc::clone(&entry));
    let _ = stream.set_nodelay(true);
    let talk = async {
        match tls {
            None => http(stream, from, None, router, &entry, stop).await,
            Some(tls) => match TlsAcceptor::from(tls.now()).accept(stream).await {
                Ok(stream) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    let client = certificates.and_then(<[_]>::first).cloned();
                    let client = client.map(|first| ClientCertificate(first.into_owned()));
                    http(stream, from, client, router, &entry, stop).await;
                }
                Err(why) => debug!(%from, %why, "a TLS handshake failed"),
            },
        }
    };
    tokio::select! {
        () = talk => {}
        () = leaving.0.over() => debug!(%from, "a connection took too long, or was closed in favour of another"),
    }
}

async fn http<S>(
    stream: S,
    from: SocketAddr,
    client: Option<ClientCertificate>,
    router: Router,
    entry: &Arc<ConnectionHandle>,
    mut stop: Stop,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(|body| Body::new(Received::new(body, Arc::clone(entry))));
        request.extensions_mut().insert(ConnectInfo(from));
        request.extensions_mut().insert(Arc::clone(entry));
        if let Some(client) = &client {
            request.extensions_mut().insert(client.clone());
        }
        let entry = Arc::clone(entry);
        router.call(request).map(|answered| answered.map(|response| Sent::of(response, entry)))
    });
    let mut settings = http1::Builder::new();
    settings
        .timer(TokioTimer::new())
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .max_header_size(HEAD_BYTES)
        .header_read_timeout(None);
    let conversation = settings.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(conversation);
    let ended = tokio::select! {
        ended = &mut conversation => ended,
        () = stop.stopped() => {
            conversation.as_mut().graceful_shutdown();
            conversation.await
        }
    };
    if let Err(why) = ended {
        debug!(%from, %why, "a connection ended abnormally");
    }
}

#[cfg(test)]
mod tests;
