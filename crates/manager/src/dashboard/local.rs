//! `sluice dashboard`: the same pages on a laptop, from what the kubeconfig's user may read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::names::dns1123_subdomain_error;
use sluice_api::slim;
use sluice_api::visibility::{MAX_LIMIT, PendingWorkload, PendingWorkloadsSummary};
use sluice_client::error_chain::Chain;
use sluice_client::settings::{self, SettingsError};
use sluice_engine::WorkloadKey;
use sluice_sim::Options;
use sluice_sim::live::Extent;
use tokio::net::TcpListener;
use tracing::warn;

use super::in_manager::{LEAST_MEMORY, MOST_MEMORY, are_names, begin, bounds, events, workload};
use super::lately::Lately;
use super::opening::{Way, is_key, key};
use super::polled::Polled;
use super::server::Dashboard;
use super::snapshot::Snapshot;
use super::source::{Begin, Callers, Found, MOST_ORDERS, Source, View};
use super::store::Store;
use super::viewer::{Caller, Viewer};
use super::views::items::Order;
use super::views::topology::Fits;
use crate::access::{Asking, bearer};
use crate::api_call::{Call, CallError};
use crate::memory::{Memory, Reservation};
use crate::percent::encoded;
use crate::serve;
use crate::shutdown::pair;
use crate::signals::Signals;
use crate::visibility::status::Refusal;

/// Connections at once, and pages that follow the changes.
const CONNECTIONS: usize = 64;
const STREAMS: usize = 16;
/// LocalQueues that are asked about the order of their ClusterQueue, at most and at once.
const MOST_LOCAL_QUEUES: usize = 200;
const AT_ONCE: usize = 8;
/// The order of a queue; an explanation.
const ASKING: Duration = Duration::from_secs(10);
const EXPLAINING: Duration = Duration::from_mins(1);
/// The order of a queue is asked for at most once in this time.
const MOMENT: Duration = Duration::from_secs(2);
/// After a round that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// `sluice dashboard`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct DashboardArgs {
    /// The port on 127.0.0.1; without it one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Do not open a browser
    #[arg(long)]
    pub no_open: bool,
    /// Configuration file of the manager, for simulations; without one, they use the defaults with every framework on, and say so
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Feature gates, as given to the manager: A=true,B=false; not together with featureGates in the file
    #[arg(long, value_name = "GATES")]
    pub feature_gates: Option<String>,
}

/// The user who has the key.
struct KeyOwner {
    key: String,
    polled: Arc<Polled>,
}

impl Callers for KeyOwner {
    fn viewer<'a>(&'a self, asking: Asking<'a>, _named: Option<&'a str>) -> Found<'a, Caller> {
        let known = bearer(asking.headers).is_some_and(|given| is_key(given, &self.key));
        Box::pin(async move {
            let caller = || Caller { viewer: self.polled.viewer(), unasked: 0 };
            if known { Ok(caller()) } else { Err(Refusal::Unauthorized) }
        })
    }

    /// The manager decides, which is asked with the owner's rights.
    fn explains<'a>(&'a self, asking: Asking<'a>, _namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move { Ok(self.viewer(asking, None).await?.viewer.all) })
    }

    /// They are read with the owner's rights.
    fn reads_events<'a>(&'a self, asking: Asking<'a>, _namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move { self.viewer(asking, None).await.map(|_| true) })
    }
}

/// The data of a laptop.
struct Laptop {
    client: Client,
    polled: Arc<Polled>,
    /// What simulations take for the manager's configuration, and whether it is an assumption.
    configuration: (Configuration, bool),
    memory: Memory,
    orders: Lately<String, Order>,
}

/// The Workloads that wait in a queue, from the visibility API, with their places in its ClusterQueue.
async fn waiting(client: &Client, queue: &str) -> Result<Vec<(usize, WorkloadKey)>, CallError> {
    let uri = format!("/apis/visibility.kueue.x-k8s.io/v1beta2/{queue}/pendingworkloads?limit={MAX_LIMIT}");
    let summary: PendingWorkloadsSummary = Call::get(uri).send_as(client, ASKING).await?;
    let place = |one: PendingWorkload| {
        let key = WorkloadKey { namespace: one.metadata.namespace.into(), name: one.metadata.name.into() };
        Some((usize::try_from(one.position_in_cluster_queue).ok()?, key))
    };
    Ok(summary.items.into_iter().filter_map(place).collect())
}

/// The manager's configuration as the arguments say it, and whether it is an assumption. The kinds that a file declares are known from then on.
fn configured(args: &DashboardArgs) -> Result<(Configuration, bool), SettingsError> {
    let environment = settings::environment(args.feature_gates.clone());
    let (configuration, _) = settings::load(args.config.as_deref(), &environment)?;
    let assumed = args.config.is_none();
    Ok((if assumed { Options::with_every_kind(configuration) } else { configuration }, assumed))
}

impl Laptop {
    fn new(client: Client, polled: Arc<Polled>, configuration: (Configuration, bool)) -> Self {
        let orders = Lately::new(MOMENT, 2 * MOST_ORDERS);
        Self { client, polled, configuration, memory: Memory::default(), orders }
    }

    /// The part of a ClusterQueue's order that its LocalQueues give which the user may read; nothing if the user may read none of them.
    async fn order_of_local_queues(&self, queue: &str) -> Order {
        let own = self.polled.local_queues_of(queue).into_iter().take(MOST_LOCAL_QUEUES);
        let asked = futures::stream::iter(own).map(|(namespace, name)| async move {
            let place = format!("namespaces/{}/localqueues/{}", encoded(&namespace), encoded(&name));
            waiting(&self.client, &place).await.ok()
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
        if answers.is_empty() {
            return None;
        }
        let mut all: Vec<_> = answers.into_iter().flatten().collect();
        all.sort();
        Some(Arc::new(all))
    }
}

impl Source for Laptop {
    fn missing(&self, view: View) -> Option<String> {
        self.polled.missing(view)
    }

    /// From the visibility API, if it is served. If the user may not read it for ClusterQueues, their LocalQueues are read.
    fn order<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Order> {
        Box::pin(async move {
            // A name that no queue can have would be another path.
            if dns1123_subdomain_error(queue).is_some() {
                return None;
            }
            let ask = async {
                match waiting(&self.client, &format!("clusterqueues/{}", encoded(queue))).await {
                    Ok(order) => Some(Arc::new(order)),
                    Err(error) if error.code() == Some(403) => self.order_of_local_queues(queue).await,
                    Err(_) => None,
                }
            };
            self.orders.get(queue.to_owned(), ask).await
        })
    }

    fn workload<'a>(&'a self, namespace: &'a str, name: &'a str) -> Found<'a, slim::Workload> {
        Box::pin(workload(&self.client, namespace, name))
    }

    fn events<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Option<Vec<Value>>> {
        Box::pin(events(&self.client, namespace, uid))
    }

    fn explain<'a>(&'a self, _viewer: &'a Viewer, namespace: &'a str, name: &'a str) -> Found<'a, Value> {
        Box::pin(async move {
            if !are_names(namespace, name) {
                return Err(Refusal::NoObject("workloads", "kueue.x-k8s.io", name.to_owned()));
            }
            let place =
                format!("/apis/visibility.sluice.dev/v1alpha1/namespaces/{namespace}/workloads/{name}");
            let uri = format!("{place}/explain?output=both&all=true&kind=workload");
            let answer: Value = Call::get(uri).send_as(&self.client, EXPLAINING).await.map_err(|error| {
                let code = error.code().and_then(|code| axum::http::StatusCode::from_u16(code).ok());
                let why = format!("the manager of the cluster gives no explanation: {}", Chain(&error));
                code.map_or(Refusal::Unavailable(why.clone()), |code| Refusal::Other(code, why))
            })?;
            Ok(serde_json::json!({"text": answer["text"], "explanation": answer["explanation"]}))
        })
    }

    /// Only the engine knows.
    fn fits<'a>(&'a self, _snapshot: &'a Snapshot) -> BoxFuture<'a, Option<Fits>> {
        Box::pin(async { None })
    }

    fn reserve(&self) -> Option<Reservation> {
        self.memory.reserve(LEAST_MEMORY, MOST_MEMORY)
    }

    fn begin<'a>(&'a self, extent: Extent<'a>, bytes: usize) -> Found<'a, Begin> {
        Box::pin(begin(&self.client, self.configuration.clone(), extent, (true, bytes)))
    }
}

/// Serves until a signal. `say` prints a line.
///
/// # Errors
/// When the configuration file cannot be read or is wrong, the port is taken, or the cluster cannot be read at the beginning.
pub async fn run(
    args: &DashboardArgs,
    client: Client,
    namespace: String,
    say: impl Fn(&str) -> io::Result<()>,
) -> anyhow::Result<u8> {
    let configuration = configured(args)?;
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.with_context(|| format!("listening on 127.0.0.1:{}", args.port))?;
    let port = listener.local_addr().context("reading the port")?.port();
    let key = key().context("making a key")?;
    let store = Arc::<Store>::default();
    let polled = Arc::new(Polled::new(client.clone(), namespace, Arc::clone(&store)));
    let pause = polled.round().await.context("reading the cluster")?;
    let callers = Arc::new(KeyOwner { key: key.clone(), polled: Arc::clone(&polled) });
    let source = Arc::new(Laptop::new(client, Arc::clone(&polled), configuration));
    let hosts = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
    let dashboard = Dashboard::new(store, callers, source, STREAMS).only_for(hosts.into());
    let url = format!("http://127.0.0.1:{port}/#key={key}");
    say(&format!("The dashboard is at {url}"))?;
    say("Anyone who has this address can see what the kubeconfig's user may read. End it with Ctrl-C.")?;
    let _way = if args.no_open { None } else { open(&url, &say)? };
    let (_stopper, stop) = pair();
    tokio::select! {
        () = serve::serve(listener, None, dashboard.router(), bounds(CONNECTIONS), stop) => {}
        () = follow(&polled, pause) => {}
        _ = signals.next() => {}
    }
    Ok(0)
}

/// A browser that cannot be opened is no reason to end.
fn open(url: &str, say: &impl Fn(&str) -> io::Result<()>) -> io::Result<Option<Way>> {
    let way = Way::to(url, &std::env::temp_dir()).and_then(|way| way.open().map(|()| way));
    if let Ok(way) = way {
        return Ok(Some(way));
    }
    say("No browser could be opened: open the address yourself.")?;
    Ok(None)
}

/// Reads again and again. What was read last is shown while the API server does not answer.
async fn follow(polled: &Polled, mut pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        pause = again(polled).await;
    }
}

/// Reads once; how long to wait before the next time.
async fn again(polled: &Polled) -> Duration {
    match polled.round().await {
        Ok(pause) => pause,
        Err(error) => {
            warn!(error = %Chain(&error), "the cluster could not be read: the data shown is old");
            polled.failed();
            AGAIN
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Bytes;
    use axum::http::{Method, Uri};
    use serde_json::json;
    use sluice_engine::input::Input;

    use super::*;
    use crate::dashboard::store::tests::local_queue;
    use crate::fake_api::{client, failed, found};

    const GROUP: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2";

    /// A user who may read the Workloads of `a`, in which three LocalQueues use `cq`; one of them they may not read. `code` is the visibility API's
    /// status for ClusterQueues, 200 for an answer.
    async fn laptop(code: u16) -> Laptop {
        let client = client(move |_: Method, uri: Uri, _: Bytes| async move {
            let item = |namespace: &str, name: &str, at: usize| {
                json!({
                    "metadata": {"name": name, "namespace": namespace}, "priority": 0, "localQueueName": "lq",
                    "positionInClusterQueue": at, "positionInLocalQueue": 0,
                })
            };
            let summary = |items: Value| {
                found(
                    &json!({"kind": "PendingWorkloadsSummary", "apiVersion": "visibility.kueue.x-k8s.io/v1beta2", "metadata": {}, "items": items}),
                )
            };
            let path = uri.path();
            match path.strip_prefix(GROUP) {
                Some("/clusterqueues/cq/pendingworkloads") if code == 200 => {
                    summary(json!([item("b", "first", 0), item("a", "second", 1)]))
                }
                Some("/clusterqueues/cq/pendingworkloads") => failed(code, "no"),
                Some("/namespaces/a/localqueues/one/pendingworkloads") => {
                    summary(json!([item("a", "fourth", 3), item("a", "ninth", 8)]))
                }
                Some("/namespaces/a/localqueues/two/pendingworkloads") => {
                    summary(json!([item("a", "second", 1)]))
                }
                None if path.ends_with("/selfsubjectreviews") => failed(404, "NotFound"),
                None if path.contains("/namespaces/a/") => found(&json!({"items": []})),
                _ => failed(403, "Forbidden"),
            }
        });
        let store = Arc::<Store>::default();
        let polled = Arc::new(Polled::new(client.clone(), "a".to_owned(), Arc::clone(&store)));
        polled.round().await.unwrap();
        let queues = [
            ("a", "one", "cq"),
            ("a", "two", "cq"),
            ("a", "refused", "cq"),
            ("a", "other", "another"),
            ("b", "hidden", "cq"),
        ];
        for (namespace, name, target) in queues {
            store.note(&Input::Applied(local_queue(namespace, name, target)));
        }
        store.fresh();
        Laptop::new(client, polled, configured(&DashboardArgs::default()).unwrap())
    }

    #[tokio::test]
    async fn the_configuration_of_the_file_is_simulated_and_without_one_it_is_said_to_be_the_default() {
        let client = client(|_: Method, _: Uri, _: Bytes| async { found(&json!({"items": []})) });
        let store = Arc::<Store>::default();
        let polled = Arc::new(Polled::new(client.clone(), "a".to_owned(), store));
        let begun = async |args: &DashboardArgs| {
            let laptop = Laptop::new(client.clone(), Arc::clone(&polled), configured(args).unwrap());
            let begin = laptop.begin(Extent::All, 1 << 20).await.ok().unwrap();
            (begin.configuration, begin.assumed)
        };
        let (configuration, assumed) = begun(&DashboardArgs::default()).await;
        assert!(assumed && !configuration.manage_jobs_without_queue_name);
        assert_eq!(configuration.job_kinds(), Options::default_configuration().job_kinds());
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n\
                    integrations: {frameworks: [batch/job]}\n";
        std::fs::write(file.path(), text).unwrap();
        let named = DashboardArgs { config: Some(file.path().to_owned()), ..DashboardArgs::default() };
        let (configuration, assumed) = begun(&named).await;
        assert!(!assumed && configuration.manage_jobs_without_queue_name);
        assert_ne!(configuration.job_kinds(), Options::default_configuration().job_kinds());
        let missing = DashboardArgs { config: Some("/none/at/all".into()), ..DashboardArgs::default() };
        assert!(configured(&missing).unwrap_err().to_string().contains("/none/at/all"));
    }

    fn known(order: Order) -> Option<Vec<(usize, String)>> {
        Some(order?.iter().map(|(at, key)| (*at, format!("{}/{}", key.namespace, key.name))).collect())
    }

    #[tokio::test]
    async fn when_the_network_drops_what_was_read_is_of_the_time_when_it_was_read() {
        let up = Arc::new(AtomicBool::new(true));
        let is_up = Arc::clone(&up);
        let client = client(move |_: Method, uri: Uri, _: Bytes| {
            let up = is_up.load(Ordering::Relaxed);
            async move {
                match uri.path() {
                    _ if !up => failed(503, "gone"),
                    path if path.ends_with("/selfsubjectreviews") => failed(404, "NotFound"),
                    _ => found(&json!({"items": []})),
                }
            }
        });
        let store = Arc::<Store>::default();
        let polled = Polled::new(client, "a".to_owned(), Arc::clone(&store));
        let before = jiff::Timestamp::now();
        assert_ne!(again(&polled).await, AGAIN);
        let read = jiff::Timestamp::now();
        assert_eq!(store.old(), None);
        up.store(false, Ordering::Relaxed);
        assert_eq!(again(&polled).await, AGAIN);
        let old = store.old().unwrap();
        assert!(before <= old && old <= read, "{old}");
        again(&polled).await;
        assert_eq!(store.old(), Some(old), "it grows older");
        up.store(true, Ordering::Relaxed);
        again(&polled).await;
        assert_eq!(store.old(), None);
    }

    #[tokio::test]
    async fn places_come_from_local_queues_for_users_who_may_not_ask_about_cluster_queues() {
        let places = |all: &[(usize, &str)]| {
            Some(all.iter().map(|(at, key)| (*at, (*key).to_owned())).collect::<Vec<_>>())
        };
        let order = known(laptop(403).await.order("cq").await);
        assert_eq!(order, places(&[(1, "a/second"), (3, "a/fourth"), (8, "a/ninth")]));
        assert_eq!(known(laptop(200).await.order("cq").await), places(&[(0, "b/first"), (1, "a/second")]));
        // The order is unknown if none of the LocalQueues may be read, and if the API is not served.
        assert_eq!(known(laptop(403).await.order("another").await), None);
        assert_eq!(known(laptop(404).await.order("cq").await), None);
    }
}
