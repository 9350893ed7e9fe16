//! The dashboard that the manager serves: on every replica, from what its watches deliver.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::journal::WorkloadLine;
use sluice_api::names::{dns1123_label_error, dns1123_subdomain_error};
use sluice_api::slim;
use sluice_client::bounded::{self, Budget, Unread};
use sluice_client::error_chain::Chain;
use sluice_engine::input::Kind;
use sluice_engine::{Engine, FitSearch, Name, WorkloadKey};
use sluice_sim::explain::MOST_EVENTS;
use sluice_sim::live::{self, Extent, Keep};
use tracing::warn;

use super::fits::LatelyFit;
use super::lately::Lately;
use super::past::Past;
use super::snapshot::Snapshot;
use super::source::{Begin, Finder, Found, MOST_ORDERS, Source, View};
use super::viewer::Viewer;
use super::views::items::{Order, Places};
use super::views::topology::Fits;
use crate::api_call::Call;
use crate::engine_thread::Handle;
use crate::explain::{Asked, Explains, Format};
use crate::memory::{Memory, Reservation};
use crate::percent::encoded;
use crate::serve::Bounds;
use crate::serve::connections::Patience;
use crate::visibility::board::Page;
use crate::visibility::publish::{Found as Known, Published};
use crate::visibility::status::Refusal;

/// The timeout for reading one object.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Reading the whole world.
const READING: Duration = Duration::from_secs(30);
/// The order of a queue is copied at most once in this time.
const MOMENT: Duration = Duration::from_millis(250);
/// The highest number of waiting Workloads of one ClusterQueue.
const MOST_WAITING: usize = 100_000;
/// The highest memory of a simulation, in bytes: 25,000 Workloads and their jobs take about one gigabyte, and less than this is enough for a few
/// hundred only.
pub(super) const MOST_MEMORY: usize = 3 << 30;
pub(super) const LEAST_MEMORY: usize = 24 << 20;
/// The memory for the events about one object.
const MOST_OF_EVENTS: usize = 4 << 20;

/// The bounds of the server. Streams count as being sent as long as they live.
pub fn bounds(connections: usize) -> Bounds {
    let sending = super::changes::LIFE + Duration::from_mins(1);
    Bounds { connections, patience: Patience { sending, ..Patience::default() } }
}

/// What the manager provides.
pub struct InManager {
    /// The order of queues.
    pub published: Arc<Published>,
    /// Copies of it.
    pub orders: Orders,
    /// The API server.
    pub client: Client,
    /// Makes explanations.
    pub explains: Arc<dyn Explains>,
    /// The engine, which knows what fits into a topology.
    pub engine: Handle<Engine>,
    /// The latest answer about what fits.
    pub fits: LatelyFit,
    /// Its configuration.
    pub configuration: Configuration,
    /// The memory for simulations.
    pub memory: Memory,
    /// The journal, if there is one.
    pub past: Option<Past>,
}

/// The orders of a few queues, each as it was a moment ago.
#[derive(Debug)]
pub struct Orders(Lately<String, Order>);

impl Default for Orders {
    fn default() -> Self {
        Self(Lately::new(MOMENT, MOST_ORDERS))
    }
}

impl Source for InManager {
    fn missing(&self, _view: View) -> Option<String> {
        None
    }

    fn order<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Order> {
        Box::pin(async move {
            let copy = async {
                let Known::Found(order) = self.published.cluster_queue(queue) else { return None };
                let all = order.page(Page { offset: 0, limit: MOST_WAITING });
                let keys = all.map(|place| place.waiting.standing.key().clone());
                Some(Arc::new(keys.enumerate().collect()))
            };
            self.orders.0.get(queue.to_owned(), copy).await
        })
    }

    fn finder<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Finder> {
        let (published, queue) = (Arc::clone(&self.published), queue.to_owned());
        let find = move |keys: &[WorkloadKey]| {
            let Known::Found(order) = published.cluster_queue(&queue) else { return Places::new() };
            let place = |key: &WorkloadKey| Some((key.clone(), usize::try_from(order.place_of(key)?).ok()?));
            keys.iter().filter_map(place).collect()
        };
        Box::pin(async { Box::new(find) as Finder })
    }

    fn workload<'a>(&'a self, namespace: &'a str, name: &'a str) -> Found<'a, slim::Workload> {
        Box::pin(workload(&self.client, namespace, name))
    }

    fn events<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Option<Vec<Value>>> {
        Box::pin(events(&self.client, namespace, uid))
    }

    fn past<'a>(&'a self, uid: &'a str, since: Timestamp) -> BoxFuture<'a, Vec<WorkloadLine>> {
        Box::pin(async move {
            match &self.past {
                Some(past) => past.of(uid, since).await,
                None => Vec::new(),
            }
        })
    }

    fn explain<'a>(&'a self, viewer: &'a Viewer, namespace: &'a str, name: &'a str) -> Found<'a, Value> {
        Box::pin(async move {
            let kind = Some("workload".to_owned());
            let asked = Asked {
                output: Format::Both,
                all: viewer.all,
                nodes: viewer.nodes,
                user: viewer.user.clone(),
                kind,
                change: None,
                any_replica: true,
            };
            let (namespace, name_of) = (namespace.to_owned(), name.to_owned());
            let answer = self.explains.explain_to(namespace, name_of, asked, viewer.queues).await;
            let text = answer.map_err(|refused| match refused.0 {
                StatusCode::NOT_FOUND => not_found(name),
                StatusCode::TOO_MANY_REQUESTS => Refusal::TooMany(refused.1),
                StatusCode::SERVICE_UNAVAILABLE => Refusal::Unavailable(refused.1),
                code => Refusal::Other(code, refused.1),
            })?;
            let unreadable = |_| {
                Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, "the explanation is not JSON".to_owned())
            };
            serde_json::from_str(&text).map_err(unreadable)
        })
    }

    fn fits<'a>(&'a self, snapshot: &'a Snapshot) -> BoxFuture<'a, Option<Fits>> {
        let flavors = snapshot.flavors.iter().filter(|(_, flavor)| flavor.topology.is_some());
        let flavors: Vec<Name> = flavors.map(|(name, _)| name.clone()).collect();
        Box::pin(self.fits.get(async move {
            // One pass over the nodes of one flavor at a time on the engine's thread.
            let open = (flavors.into_iter(), None::<FitSearch>, Fits::new());
            let asking = self.engine.pages(open, |(left, search, found), engine: &mut Engine| {
                let next = search.take().or_else(|| left.next().map(FitSearch::new));
                let Some(mut now) = next else { return true };
                if engine.search_fits(&mut now) {
                    found.push(now.into_found());
                } else {
                    *search = Some(now);
                }
                false
            });
            asking.await.map(|(.., fits)| fits)
        }))
    }

    fn reserve(&self) -> Option<Reservation> {
        self.memory.reserve(LEAST_MEMORY, MOST_MEMORY)
    }

    fn begin<'a>(&'a self, extent: Extent<'a>, bytes: usize) -> Found<'a, Begin> {
        let configuration = self.configuration.clone();
        Box::pin(begin(&self.client, (configuration, false), extent, (false, bytes)))
    }
}

fn not_found(name: &str) -> Refusal {
    Refusal::NoObject("workloads", "kueue.x-k8s.io", name.to_owned())
}

/// Whether a namespace and an object of it can have these names: others would be other paths.
pub(super) fn are_names(namespace: &str, name: &str) -> bool {
    dns1123_label_error(namespace).or_else(|| dns1123_subdomain_error(name)).is_none()
}

/// Reads a Workload.
pub(super) async fn workload(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<slim::Workload, Refusal> {
    if !are_names(namespace, name) {
        return Err(not_found(name));
    }
    let collection = Kind::Workload.collection(Kind::Workload.version(), Some(namespace));
    let read = Call::get(format!("{collection}/{name}")).send_as(client, TIMEOUT).await;
    read.map_err(|error| match error.code() {
        Some(404 | 400) => not_found(name),
        Some(403) => Refusal::Forbidden(format!("the Workload {namespace}/{name} cannot be read")),
        _ => unreachable(&error),
    })
}

/// Reads the events about an object.
pub(super) async fn events(client: &Client, namespace: &str, uid: &str) -> Option<Vec<Value>> {
    let place = format!("/api/v1/namespaces/{}/events", encoded(namespace));
    let query = format!("&fieldSelector=involvedObject.uid%3D{}", encoded(uid));
    let budget = Budget::new(MOST_OF_EVENTS);
    let reading = bounded::objects(client, &place, &query, MOST_EVENTS, &budget, Some);
    let Ok(part) = tokio::time::timeout(TIMEOUT, reading).await else {
        warn!("the events of a Workload could not be read within {TIMEOUT:?}");
        return None;
    };
    match part.unread {
        None | Some(Unread::Spent(_)) => Some(part.found),
        // A user who may see Workloads may have no right to events.
        Some(Unread::Api { source, .. }) if is_forbidden(&source) => None,
        Some(error) => {
            warn!(error = %Chain(&error), "the dashboard cannot read the events of a Workload");
            None
        }
    }
}

/// Says in the log what the caller need not know.
fn unreachable(error: &(dyn std::error::Error + 'static)) -> Refusal {
    warn!(error = %Chain(error), "the dashboard cannot read from the API server");
    Refusal::Unavailable("the API server cannot be asked".to_owned())
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Reads the objects that a simulation begins with, in at most this number of bytes. A manager has no right to read objects whose pods are the jobs.
/// With the configuration comes whether it is an assumption.
pub(super) async fn begin(
    client: &Client,
    (configuration, assumed): (Configuration, bool),
    extent: Extent<'_>,
    (any, most): (bool, usize),
) -> Result<Begin, Refusal> {
    let simulated = |kind: &sluice_api::job::JobKind| {
        (any || !kind.integration().pods_are_jobs) && sluice_jobs::is_simulated(*kind)
    };
    let kinds: Vec<_> = configuration.job_kinds().into_iter().filter(simulated).collect();
    let budget = &Budget::new(most);
    let list = |place: String, query: &'static str, keep: Keep| async move {
        let read = |object| keep(object);
        let part = bounded::objects(client, &place, query, usize::MAX, budget, read).await;
        part.unread.map_or(Ok(part.found.into()), Err)
    };
    match tokio::time::timeout(READING, live::read(extent, &kinds, list)).await {
        Ok(Ok(live)) => Ok(Begin { live, configuration, assumed, left: budget.left() }),
        Ok(Err(Unread::Api { path, source })) if is_forbidden(&source) => {
            Err(Refusal::Forbidden(format!("a simulation needs the right to list {path}")))
        }
        Ok(Err(error @ Unread::Spent(_))) => {
            let why = format!(
                "{error}, by the memory that is free: give the program more memory, or use kubectl kueue simulate --from-cluster"
            );
            Err(Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Ok(Err(error)) => Err(unreachable(&error)),
        Err(_) => {
            let why = format!("the objects could not be read within {READING:?}");
            Err(Refusal::Other(StatusCode::GATEWAY_TIMEOUT, why))
        }
    }
}

#[cfg(test)]
mod tests;
