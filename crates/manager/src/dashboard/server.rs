//! The HTTP side: authentication, routes, and answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};
use serde_json::{Value, json};
use sluice_engine::WorkloadKey;
use sluice_sim::explain::hide_nodes;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tracing::error;

use super::answers::{document, guarded, text};
use super::assets::asset;
use super::changes::Streams;
use super::query;
use super::reads::Reads;
use super::rows::{State, WorkloadRow};
use super::snapshot::Snapshot;
use super::source::{Callers, MOST_ORDERS, Source, View};
use super::store::Store;
use super::tomorrow::Tomorrow;
use super::viewer::{Caller, Viewer};
use super::views::{displaced, items, nodes, now, topology, workload};
use crate::access::{Asking, OneEach, Rate, address};
use crate::percent::decoded;
use crate::supervise::blocking;
use crate::visibility::status::Refusal;

/// Answers that are made at once, and how long the others wait.
const AT_ONCE: usize = 8;
const TURN: Duration = Duration::from_secs(5);
/// The body of a request, in bytes.
const BODY: usize = 64 << 10;
/// Explanations, for one user and for all.
const EXPLANATIONS: Rate = Rate { burst: 5, per_second: 1 };
const ALL_EXPLANATIONS: Rate = Rate { burst: 20, per_second: 5 };
/// The group of Workloads, for refusals.
const GROUP: &str = "kueue.x-k8s.io";

/// The route of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Who,
    Now,
    Queue(String),
    Workloads,
    Workload(String, String),
    Explain(String, String),
    Starts(String),
    Start(String, String),
    Nodes,
    Displaced,
    Topologies,
    /// A topology, and the values that lead to a domain of it.
    Domains(String, Vec<String>),
    Changes,
    Tomorrow,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        let parts: Vec<String> =
            path.strip_prefix("/api/")?.split('/').map(decoded).collect::<Option<_>>()?;
        if parts.iter().any(String::is_empty) {
            return None;
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts[..] {
            ["who"] => Some(Self::Who),
            ["now"] => Some(Self::Now),
            ["queues", name] => Some(Self::Queue(name.to_owned())),
            ["queues", name, "starts"] => Some(Self::Starts(name.to_owned())),
            ["workloads"] => Some(Self::Workloads),
            ["workloads", namespace, name] => Some(Self::Workload(namespace.to_owned(), name.to_owned())),
            ["workloads", namespace, name, "explain"] => {
                Some(Self::Explain(namespace.to_owned(), name.to_owned()))
            }
            ["workloads", namespace, name, "start"] => {
                Some(Self::Start(namespace.to_owned(), name.to_owned()))
            }
            ["nodes"] => Some(Self::Nodes),
            ["displaced"] => Some(Self::Displaced),
            ["topologies"] => Some(Self::Topologies),
            ["topologies", name, ref path @ ..] => {
                Some(Self::Domains(name.to_owned(), path.iter().map(|&value| value.to_owned()).collect()))
            }
            ["changes"] => Some(Self::Changes),
            ["tomorrow"] => Some(Self::Tomorrow),
            _ => None,
        }
    }

    /// The namespace that it names.
    fn namespace(&self, query: &str) -> Option<String> {
        match self {
            Self::Workload(namespace, _) | Self::Explain(namespace, _) | Self::Start(namespace, _) => {
                Some(namespace.clone())
            }
            Self::Workloads => query::text(query, "namespace").ok().flatten(),
            _ => None,
        }
    }

    /// The view that must be available for it.
    fn view(&self) -> Option<View> {
        match self {
            Self::Who | Self::Changes | Self::Tomorrow => None,
            Self::Now | Self::Starts(_) => Some(View::Queues),
            Self::Queue(_)
            | Self::Workloads
            | Self::Workload(..)
            | Self::Explain(..)
            | Self::Start(..)
            | Self::Displaced => Some(View::Workloads),
            Self::Nodes | Self::Topologies | Self::Domains(..) => Some(View::Nodes),
        }
    }
}

/// The sources of answers.
pub struct Dashboard {
    store: Arc<Store>,
    callers: Arc<dyn Callers>,
    source: Arc<dyn Source>,
    /// The accepted values of the Host header, if they are restricted.
    hosts: Option<Vec<String>>,
    making: Arc<Semaphore>,
    streams: Arc<Streams>,
    explanations: OneEach,
    reads: Reads,
    tomorrow: Tomorrow,
}

impl Dashboard {
    /// Serves the store to these callers, with up to this number of pages that follow the changes.
    pub fn new(
        store: Arc<Store>,
        callers: Arc<dyn Callers>,
        source: Arc<dyn Source>,
        streams: usize,
    ) -> Self {
        Self {
            tomorrow: Tomorrow::new(Arc::clone(&store), Arc::clone(&source)),
            store,
            callers,
            source,
            hosts: None,
            making: Arc::new(Semaphore::new(AT_ONCE)),
            streams: Streams::new(streams),
            explanations: OneEach::new("explanations", EXPLANATIONS, ALL_EXPLANATIONS),
            reads: Reads::default(),
        }
    }

    /// Accepts only requests to one of these hosts: a foreign page can have a name of its own resolve to this one.
    #[must_use]
    pub fn only_for(mut self, hosts: Vec<String>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new().fallback(answer).with_state(Arc::new(self))
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let mut named = headers.get_all(header::HOST).iter();
        let named = named.next().filter(|_| named.next().is_none()).and_then(|host| host.to_str().ok());
        if named.is_some_and(|named| hosts.iter().any(|host| host == named)) {
            return Ok(());
        }
        Err(Refusal::Forbidden("the Host header is not that of this server".to_owned()))
    }

    async fn answer(
        self: &Arc<Self>,
        method: &Method,
        uri: &Uri,
        asking: Asking<'_>,
        body: Body,
    ) -> Result<Response, Refusal> {
        self.check_host(asking.headers)?;
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if !uri.path().starts_with("/api/") {
            let (media, bytes) = asset(uri.path()).ok_or(Refusal::NoPath)?;
            return if reads {
                Ok(([(header::CONTENT_TYPE, media)], bytes).into_response())
            } else {
                Err(Refusal::Method)
            };
        }
        let (route, query) = (Route::of(uri.path()), uri.query().unwrap_or_default());
        let named = route.as_ref().and_then(|route| route.namespace(query));
        let caller = self.callers.viewer(asking, named.as_deref()).await?;
        let route = route.ok_or(Refusal::NoPath)?;
        let wanted = if route == Route::Tomorrow { *method == Method::POST } else { reads };
        if !wanted {
            return Err(Refusal::Method);
        }
        if route != Route::Who && !caller.viewer.sees_any() {
            return Err(sees_none(&caller.viewer.user, caller.unasked));
        }
        if let Some(why) = route.view().and_then(|view| self.source.missing(view)) {
            return Err(Refusal::Other(StatusCode::NOT_FOUND, why));
        }
        self.route(route, caller, query, asking, body).await
    }

    async fn route(
        self: &Arc<Self>,
        route: Route,
        Caller { viewer, unasked }: Caller,
        query: &str,
        asking: Asking<'_>,
        body: Body,
    ) -> Result<Response, Refusal> {
        let names_nodes = viewer.nodes;
        let value = match route {
            Route::Who => {
                let Viewer { user, all, namespaces, .. } = &viewer;
                json!({"user": user, "all": all, "namespaces": namespaces, "unasked": unasked})
            }
            Route::Now => {
                let old = self.store.old();
                self.make(viewer, move |snapshot, viewer| Ok(now::now(snapshot, viewer, old))).await?
            }
            Route::Queue(name) => self.queue(viewer, name, query).await?,
            Route::Workloads => {
                let page = query::page(query)?;
                let search = items::Search {
                    text: query::text(query, "search")?,
                    namespace: query::text(query, "namespace")?,
                    state: query::state(query)?,
                };
                self.search(viewer, search, page).await?
            }
            Route::Workload(namespace, name) => self.workload(viewer, asking, (namespace, name)).await?,
            Route::Explain(namespace, name) => {
                seen(&viewer, &namespace)?;
                let all = self.callers.explains(asking, &namespace).await?;
                let _turn = self.explanations.take(&viewer.user)?;
                self.source.explain(&Viewer { all, ..viewer }, &namespace, &name).await?
            }
            Route::Starts(name) => self.starts(&viewer, &name).await?,
            Route::Start(namespace, name) => self.start(&viewer, &namespace, &name).await?,
            Route::Nodes => {
                let page = query::page(query)?;
                self.make(viewer, move |snapshot, viewer| Ok(nodes::nodes(snapshot, viewer, page))).await?
            }
            Route::Displaced => {
                let page = query::page(query)?;
                self.make(viewer, move |snapshot, viewer| Ok(displaced::displaced(snapshot, viewer, page)))
                    .await?
            }
            Route::Topologies => {
                let snapshot = taken(&self.store)?;
                let fits = self.source.fits(&snapshot).await;
                self.make(viewer, move |snapshot, viewer| {
                    Ok(topology::topologies(snapshot, viewer, fits.as_ref()))
                })
                .await?
            }
            Route::Domains(name, path) => {
                let page = query::page(query)?;
                self.make(viewer, move |snapshot, viewer| {
                    let found = topology::domains(snapshot, viewer, (&name, &path), page);
                    found.ok_or_else(|| Refusal::NoObject("topologies", GROUP, name.clone()))
                })
                .await?
            }
            Route::Changes => return self.streams.answer(&viewer.user, self.store.revisions()),
            Route::Tomorrow => {
                let json = asking.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
                if !json.is_some_and(|media| {
                    media.split(';').next().is_some_and(|m| m.trim() == "application/json")
                }) {
                    let why = "expected a body of the type application/json".to_owned();
                    return Err(Refusal::Other(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
                }
                let too_large = |_| {
                    Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, format!("expected at most {BODY} bytes"))
                };
                let body = to_bytes(body, BODY).await.map_err(too_large)?;
                return Ok(text(self.tomorrow.answer(&viewer, &body).await?));
            }
        };
        let value = if names_nodes { value } else { self.without_nodes(value).await? };
        Ok(document(&value))
    }

    /// An answer without the names of nodes, for a viewer who may not list nodes. Long answers have many texts.
    async fn without_nodes(&self, mut value: Value) -> Result<Value, Refusal> {
        let snapshot = taken(&self.store)?;
        let hiding = blocking("an answer of the dashboard", move || {
            hide_nodes(&mut value, &|name| snapshot.nodes.contains_key(name));
            value
        });
        hiding.await.map_err(|panic| not_made(&panic))
    }

    /// Makes an answer from the state, not on the threads that serve.
    async fn make<T: Send + 'static>(
        &self,
        viewer: Viewer,
        make: impl FnOnce(&Snapshot, &Viewer) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = tokio::time::timeout(TURN, Arc::clone(&self.making).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Refusal::TooMany("too many answers are being made: try again".to_owned()));
        };
        let store = Arc::clone(&self.store);
        let making = blocking("an answer of the dashboard", move || {
            let _turn = turn;
            make(&*taken(&store)?, &viewer)
        });
        making.await.unwrap_or_else(|panic| Err(not_made(&panic)))
    }

    async fn queue(&self, viewer: Viewer, name: String, query: &str) -> Result<Value, Refusal> {
        let wanted = (query::state(query)?, query::page(query)?);
        let order = self.source.order(&name).await;
        self.make(viewer, move |snapshot, viewer| {
            let found = items::queue(snapshot, viewer, &name, &order, wanted);
            found.ok_or_else(|| Refusal::NoObject("clusterqueues", GROUP, name.clone()))
        })
        .await
    }

    async fn search(
        &self,
        viewer: Viewer,
        search: items::Search,
        page: query::Page,
    ) -> Result<Value, Refusal> {
        let find =
            move |snapshot: &Snapshot, viewer: &Viewer| Ok(items::search(snapshot, viewer, &search, page));
        let hits = self.make(viewer.clone(), find).await?;
        let mut finders = Vec::new();
        for (queue, keys) in hits.waiting().into_iter().take(MOST_ORDERS) {
            finders.push((self.source.finder(&queue).await, keys));
        }
        self.make(viewer, move |_, viewer| {
            let places = finders.into_iter().flat_map(|(find, keys)| find(&keys)).collect();
            Ok(hits.shown(viewer, &places))
        })
        .await
    }

    async fn starts(&self, viewer: &Viewer, name: &str) -> Result<Value, Refusal> {
        let snapshot = taken(&self.store)?;
        let none = || Refusal::NoObject("clusterqueues", GROUP, name.to_owned());
        let seen = snapshot.seen_queues(viewer).queue(name);
        let found = snapshot.cluster_queues.get_key_value(name).filter(|_| seen);
        let (queue, _) = found.ok_or_else(none)?;
        let order = self.source.order(name).await.and_then(|order| keys(&order));
        self.tomorrow.starts(viewer, &snapshot, (queue.clone(), None), order).await
    }

    async fn start(&self, viewer: &Viewer, namespace: &str, name: &str) -> Result<Value, Refusal> {
        seen(viewer, namespace)?;
        let snapshot = taken(&self.store)?;
        let key = WorkloadKey { namespace: namespace.into(), name: name.into() };
        let row =
            snapshot.workloads.get(&key).filter(|row| matches!(row.state, State::Pending | State::Inactive));
        let none = || Refusal::NoObject("workloads", GROUP, name.to_owned());
        let queue = row.and_then(|row| snapshot.queue_of(row)).ok_or_else(none)?.clone();
        let order = self.source.order(&queue).await.and_then(|order| keys(&order));
        self.tomorrow.starts(viewer, &snapshot, (queue, Some(key)), order).await
    }

    async fn workload(
        &self,
        viewer: Viewer,
        asking: Asking<'_>,
        of: (String, String),
    ) -> Result<Value, Refusal> {
        seen(&viewer, &of.0)?;
        let object = self.reads.object(&*self.source, &viewer.user, of.clone()).await?;
        let row = WorkloadRow::of(&object);
        let queue = self.store.snapshot().and_then(|snapshot| snapshot.queue_of(&row).cloned());
        let finder = match queue.filter(|_| row.state == State::Pending) {
            Some(queue) => Some(self.source.finder(&queue).await),
            None => None,
        };
        // They are read with the rights of this program.
        let events = if self.callers.reads_events(asking, &of.0).await? {
            self.reads.events(&*self.source, of.0, &row.uid).await
        } else {
            None
        };
        let past = self.reads.past(&*self.source, &object).await;
        self.make(viewer, move |snapshot, viewer| {
            let events = events.as_ref().map(|events| &events[..]);
            let places = finder.map(|find| find(std::slice::from_ref(&row.key)));
            let position = places.and_then(|mut places| places.remove(&row.key));
            Ok(workload::workload(snapshot, viewer, &object, (events, &past), position))
        })
        .await
    }
}

/// The keys without their places; `None` if some are missing, as it would not be the order of all.
fn keys(order: &[(usize, WorkloadKey)]) -> Option<Vec<WorkloadKey>> {
    let is_whole = order.iter().enumerate().all(|(at, (place, _))| at == *place);
    is_whole.then(|| order.iter().map(|(_, key)| key.clone()).collect())
}

/// The state now, once everything is known.
fn taken(store: &Store) -> Result<Arc<Snapshot>, Refusal> {
    let not_yet = || Refusal::Unavailable("not everything has been listed yet".to_owned());
    store.snapshot().ok_or_else(not_yet)
}

fn not_made(panic: &JoinError) -> Refusal {
    error!(%panic, "an answer of the dashboard could not be made");
    Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be made".to_owned())
}

/// Refuses a viewer who may not read any Workloads, as far as that is known.
fn sees_none(user: &str, unasked: usize) -> Refusal {
    if unasked > 0 {
        let why = format!(
            "it is not known yet whether the user {user:?} may get Workloads in {unasked} of the namespaces: try again, or name yours"
        );
        return Refusal::Unavailable(why);
    }
    Refusal::Forbidden(format!("User {user:?} cannot get Workloads in any namespace"))
}

/// Refuses a viewer who may not read Workloads of the namespace, with the same message whether the Workload exists or not.
fn seen(viewer: &Viewer, namespace: &str) -> Result<(), Refusal> {
    if viewer.sees(namespace) {
        return Ok(());
    }
    let user = &viewer.user;
    Err(Refusal::Forbidden(format!("User {user:?} cannot get Workloads in the namespace {namespace:?}")))
}

async fn answer(
    Shared(dashboard): Shared<Arc<Dashboard>>,
    connection: Option<Extension<ConnectInfo<SocketAddr>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let asking = Asking { headers: &headers, from: address(connection.as_deref()) };
    let answered = dashboard.answer(&method, &uri, asking, body).await;
    guarded(answered.unwrap_or_else(axum::response::IntoResponse::into_response))
}

#[cfg(test)]
mod tests;
