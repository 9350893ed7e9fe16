//! A reverse proxy in front of the API server that causes faults: refusals for a while, broken connections, and a cut right after a write was carried
//! out. It also reports which writes arrived. Several runs can each have their own fault ([`Fault`]).

mod disruption;
mod scope;
mod step;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use kube::{Api, Client, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

use crate::kubectl::apply;
use crate::plane::{ControlPlane, START_DEADLINE, client_of};
use crate::wait::{Progress, eventually};
pub use disruption::{Disruption, Harm};
use disruption::{Disruptions, expired_watch, refuse};
pub use scope::{Fault, Scope};
use scope::{Scopes, Sent, Verdict};
pub use step::Step;

/// A write that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// The path without the query.
    pub path: String,
    /// The query, as in `fieldManager=kueue-admission&force=true`.
    pub query: String,
    /// The API server's answer.
    pub status: u16,
}

impl Write {
    /// Whether a write is counted separately: leases, events, and reviews, which store nothing.
    pub fn is_housekeeping(&self) -> bool {
        step::is_housekeeping(&self.path)
    }
}

/// The account of [`FaultProxy::administrator`].
const ADMINISTRATOR: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: administrator, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: administrator-NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: administrator}]
";

/// Which requests a refusal is for.
type Matches = Box<dyn Fn(&Method, &str) -> bool + Send>;

struct Refusal {
    status: StatusCode,
    until: Instant,
    matches: Matches,
}

#[derive(Default)]
struct ProxyState {
    refusal: Option<Refusal>,
    cut: bool,
    writes_until_cut: Option<usize>,
    writes: Vec<Write>,
    /// The paths of those that are sent to the API server and not noted yet.
    under_way: Vec<String>,
    /// How many of them had no answer.
    unanswered: usize,
    refused: usize,
    scopes: Scopes,
    disruptions: Disruptions,
    connections: Vec<AbortHandle>,
}

struct Shared {
    state: Mutex<ProxyState>,
    upstream: Client,
}

/// The proxy. It speaks plain HTTP on 127.0.0.1, so give its clients a token, not a certificate
/// ([`ControlPlane::kubeconfig_through`]). It ends when it is dropped, and belongs to the runtime it was started in.
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy in front of the plane's API server, without any fault.
    ///
    /// # Errors
    ///
    /// If the plane's certificate authority cannot be read, or no port can be opened on 127.0.0.1.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let mut config = Config::new(plane.url().parse().context("reading the API server's address")?);
        config.root_cert_file = Some(plane.ca_path());
        // Refusals must reach the client under test.
        config.default_retry = false;
        let upstream = Client::try_from(config).context("making the proxy's client")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("opening the proxy's port")?;
        let address = listener.local_addr().context("reading the proxy's port")?;
        let shared = Arc::new(Shared { state: Mutex::default(), upstream });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig that acts through this proxy with an administrator's rights, as an account of its own in this namespace.
    ///
    /// # Errors
    ///
    /// If the account cannot be made, has no token (see [`ControlPlane::kubeconfig_through`]), or has no rights after five minutes.
    pub async fn administrator(&self, plane: &ControlPlane, namespace: &str) -> Result<PathBuf> {
        apply(plane, &ADMINISTRATOR.replace("NAMESPACE", namespace)).await?;
        let kubeconfig = plane.kubeconfig_through(&self.url(), namespace, "administrator").await?;
        let namespaces: Api<Namespace> = Api::all(client_of(&kubeconfig).await?);
        // The API server takes notice of a binding a moment after it was made.
        eventually("the administrator's rights", START_DEADLINE, || async {
            namespaces.get(namespace).await?;
            Ok(Progress::Done(()))
        })
        .await?;
        Ok(kubeconfig)
    }

    /// Answers every request with this status (429, 500, …) for a while.
    ///
    /// # Errors
    ///
    /// If `status` is no HTTP status: below 100 or above 999.
    pub fn refuse(&self, status: u16, period: Duration) -> Result<()> {
        self.refuse_matching(status, period, |_, _| true)
    }

    /// Answers those requests with this status for a while; the closure gets the method and the path.
    ///
    /// # Errors
    ///
    /// If `status` is no HTTP status: below 100 or above 999.
    pub fn refuse_matching(
        &self,
        status: u16,
        period: Duration,
        matches: impl Fn(&Method, &str) -> bool + Send + 'static,
    ) -> Result<()> {
        let status = StatusCode::from_u16(status).context("reading the status")?;
        let refusal = Refusal { status, until: Instant::now() + period, matches: Box::new(matches) };
        self.shared.state().refusal = Some(refusal);
        Ok(())
    }

    /// How many requests were refused so far.
    pub fn refused(&self) -> usize {
        self.shared.state().refused
    }

    /// Disturbs some requests for a while, in addition to other faults.
    pub fn disrupt(&self, disruption: Disruption) {
        self.shared.state().disruptions.begin(disruption);
    }

    /// How many requests were harmed by disruptions so far.
    pub fn harmed(&self) -> usize {
        self.shared.state().disruptions.harmed
    }

    /// Breaks every open connection, including watches. New ones are served.
    pub fn drop_connections(&self) {
        self.shared.state().drop_connections();
    }

    /// Breaks every connection and serves no new one, until [`FaultProxy::heal`].
    pub fn cut(&self) {
        self.shared.state().cut();
    }

    /// Cuts right after the `count`-th write from now was carried out, whose answer is withheld. Housekeeping does not count.
    pub fn cut_after_writes(&self, count: usize) {
        let mut state = self.shared.state();
        state.writes_until_cut = Some(count);
        if count == 0 {
            state.cut();
        }
    }

    /// Whether it is cut now.
    pub fn is_cut(&self) -> bool {
        self.shared.state().cut
    }

    /// Ends every fault.
    pub fn heal(&self) {
        let mut state = self.shared.state();
        state.refusal = None;
        state.cut = false;
        state.writes_until_cut = None;
        state.disruptions.end();
    }

    /// The writes that were answered since the start or the last [`FaultProxy::forget_writes`], in order.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.state().writes.clone()
    }

    /// The paths of the writes that are sent to the API server and not noted in [`FaultProxy::writes`] yet. Their effects may be seen before.
    pub fn writes_under_way(&self) -> Vec<String> {
        self.shared.state().under_way.clone()
    }

    /// How many writes, without housekeeping, the API server did not answer since the start or the last [`FaultProxy::forget_writes`], or only after the
    /// client had given them up. They are not in [`FaultProxy::writes`], and may have been carried out.
    pub fn unanswered_writes(&self) -> usize {
        self.shared.state().unanswered
    }

    /// Counts the steps for a namespace and the cluster-wide objects of the same name, from now on; one of them meets this fault.
    pub fn begin_scope(&self, name: &str, fault: Option<Fault>) {
        self.shared.state().scopes.begin(name, fault);
    }

    /// Lets everything of a scope through from now on.
    pub fn heal_scope(&self, name: &str) {
        self.shared.state().scopes.heal(name);
    }

    /// The result of a scope's writes so far.
    pub fn scope(&self, name: &str) -> Scope {
        self.shared.state().scopes.get(name)
    }

    /// Restarts counting.
    pub fn forget_writes(&self) {
        let mut state = self.shared.state();
        state.writes.clear();
        state.unanswered = 0;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProxyState {
    fn drop_connections(&mut self) {
        self.connections.drain(..).for_each(|connection| connection.abort());
    }

    fn cut(&mut self) {
        self.cut = true;
        self.drop_connections();
    }

    /// The status with which to refuse this request, if it must be refused.
    fn refusal(&mut self, method: &Method, path: &str) -> Option<StatusCode> {
        let refusal = self.refusal.as_ref()?;
        if refusal.until <= Instant::now() {
            self.refusal = None;
            return None;
        }
        let status = (refusal.matches)(method, path).then_some(refusal.status)?;
        self.refused += 1;
        Some(status)
    }

    /// Notes a write; returns true if it was the last one before the cut.
    fn note(&mut self, write: Write) -> bool {
        let counts = !write.is_housekeeping();
        self.writes.push(write);
        let Some(left) = self.writes_until_cut.as_mut().filter(|_| counts) else {
            return false;
        };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let mut state = shared.state();
        if state.cut {
            continue;
        }
        state.connections.retain(|connection| !connection.is_finished());
        let task = tokio::spawn(serve(stream, Arc::clone(&shared)));
        state.connections.push(task.abort_handle());
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| handle(Arc::clone(&shared), request));
    // A broken connection is what this is for.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A write that is sent to the API server and not noted yet, until this is dropped.
struct UnderWay<'a> {
    shared: &'a Shared,
    path: String,
    answered: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(shared: &'a Shared, path: &str) -> Self {
        shared.state().under_way.push(path.to_owned());
        Self { shared, path: path.to_owned(), answered: false }
    }

    /// It was answered, and is noted.
    fn ends(mut self) {
        self.answered = true;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(at) = state.under_way.iter().position(|path| *path == self.path) {
            state.under_way.swap_remove(at);
        }
        state.unanswered += usize::from(!self.answered && !step::is_housekeeping(&self.path));
    }
}

/// The error that breaks a connection.
type Broken = Box<dyn std::error::Error + Send + Sync>;

fn is_write(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let refusal = shared.state().refusal(&method, &path);
    if let Some(status) = refusal {
        return Ok(refuse(status));
    }
    let harm = shared.state().disruptions.judge(&method, &path, &query);
    match harm {
        Some(Harm::Refuse(code)) => return Ok(refuse(StatusCode::from_u16(code)?)),
        Some(Harm::ExpireWatch) => return Ok(expired_watch()),
        Some(Harm::LoseRequest) => return Err("the request is lost".into()),
        Some(Harm::Slow(delay)) => tokio::time::sleep(delay).await,
        Some(Harm::LoseAnswer) | None => {}
    }
    let (mut head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let write = is_write(&method);
    let sent = Sent { method: &method, path: &path, query: &query, body: &body };
    let mut verdict = if write { shared.state().scopes.judge(sent) } else { Verdict::Pass };
    if verdict == Verdict::Lose {
        return Err("the write is lost".into());
    }
    // They are about this connection, not the next.
    for name in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    // The upstream client puts the API server's address in front.
    head.uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    let mut under_way = write.then(|| UnderWay::begin(&shared, &path));
    let response = shared.upstream.send(Request::from_parts(head, Body::from(body.to_vec()))).await?;
    if write {
        let status = response.status();
        verdict = shared.state().scopes.note(sent, status.is_success(), verdict);
        let write = Write { method, path, query, status: status.as_u16() };
        let last = shared.state().note(write);
        if let Some(answered) = under_way.take() {
            answered.ends();
        }
        if last {
            shared.state().cut();
            // This task is aborted by the cut; the answer is never sent.
            return std::future::pending().await;
        }
    }
    if verdict == Verdict::CarryOutAndLose || harm == Some(Harm::LoseAnswer) {
        return Err("the answer is lost".into());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &str) -> Write {
        Write { method: Method::PATCH, path: path.to_owned(), query: String::new(), status: 200 }
    }

    #[test]
    fn leases_events_and_reviews_are_housekeeping() {
        assert!(write("/apis/coordination.k8s.io/v1/namespaces/a/leases/b").is_housekeeping());
        assert!(write("/apis/events.k8s.io/v1/namespaces/a/events").is_housekeeping());
        assert!(!write("/apis/kueue.x-k8s.io/v1beta2/namespaces/events-team/workloads/b").is_housekeeping());
    }

    #[tokio::test]
    async fn a_write_is_under_way_until_it_is_noted_or_has_no_answer() {
        let upstream = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let shared = Shared { state: Mutex::default(), upstream };
        let under_way = || shared.state().under_way.clone();
        let [first, second, again] = ["/a", "/b", "/a"].map(|path| UnderWay::begin(&shared, path));
        first.ends();
        assert_eq!((under_way().len(), shared.state().unanswered), (2, 0));
        drop(second);
        assert_eq!(under_way(), ["/a"]);
        drop(again);
        assert_eq!(under_way(), [""; 0]);
        drop(UnderWay::begin(&shared, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"));
        assert_eq!(shared.state().unanswered, 2);
    }

    #[test]
    fn only_real_writes_count_towards_the_cut() {
        let mut state = ProxyState { writes_until_cut: Some(2), ..ProxyState::default() };
        assert!(!state.note(write("/apis/batch/v1/namespaces/a/jobs/b")));
        assert!(!state.note(write("/api/v1/namespaces/a/events")));
        assert!(state.note(write("/apis/batch/v1/namespaces/a/jobs/c")));
    }
}
