//! `sluice dashboard`: the same pages on a laptop, from what the kubeconfig's user may read.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::HeaderMap;
use clap::Args;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::Value;
use sluice_api::slim;
use sluice_api::visibility::MAX_LIMIT;
use sluice_client::error_chain::Chain;
use sluice_engine::WorkloadKey;
use sluice_sim::Options;
use sluice_sim::live::Extent;
use tokio::net::TcpListener;
use tracing::warn;

use super::in_manager::{begin, bounds, events, workload};
use super::opening::{Way, is_key, key};
use super::polled::Polled;
use super::server::Dashboard;
use super::snapshot::Snapshot;
use super::source::{Begin, Callers, Found, Source, View};
use super::store::Store;
use super::viewer::Viewer;
use super::views::items::Order;
use super::views::topology::Fits;
use crate::access::bearer;
use crate::api_call::Call;
use crate::percent::encoded;
use crate::serve;
use crate::shutdown::pair;
use crate::signals::Signals;
use crate::visibility::status::Refusal;

/// Connections at once, and pages that follow the changes.
const CONNECTIONS: usize = 64;
const STREAMS: usize = 16;
/// The order of a queue; an explanation.
const ASKING: Duration = Duration::from_secs(10);
const EXPLAINING: Duration = Duration::from_mins(1);
/// More would need gigabytes.
const MOST_SIMULATED: usize = 20_000;
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
}

/// Who has the key.
struct Owner {
    key: String,
    polled: Arc<Polled>,
}

impl Callers for Owner {
    fn viewer<'a>(&'a self, headers: &'a HeaderMap) -> Found<'a, Viewer> {
        let known = bearer(headers).is_some_and(|given| is_key(given, &self.key));
        Box::pin(async move { if known { Ok(self.polled.viewer()) } else { Err(Refusal::Unauthorized) } })
    }

    /// The manager decides, which is asked with the owner's rights.
    fn explains<'a>(&'a self, headers: &'a HeaderMap, _namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move { Ok(self.viewer(headers).await?.all) })
    }
}

/// What a laptop knows.
struct Laptop {
    client: Client,
    polled: Arc<Polled>,
}

impl Source for Laptop {
    fn missing(&self, view: View) -> Option<String> {
        self.polled.missing(view)
    }

    /// The visibility API knows it, if it is served and the user may ask.
    fn order<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Order> {
        Box::pin(async move {
            let queue = encoded(queue);
            let uri = format!(
                "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queue}/pendingworkloads?limit={MAX_LIMIT}"
            );
            let summary: Value = Call::get(uri).send_as(&self.client, ASKING).await.ok()?;
            let key = |item: &Value| {
                let part = |name: &str| item["metadata"][name].as_str();
                Some(WorkloadKey { namespace: part("namespace")?.into(), name: part("name")?.into() })
            };
            summary["items"].as_array()?.iter().map(key).collect()
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
            let (namespace, name) = (encoded(namespace), encoded(name));
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

    fn most_simulated(&self) -> usize {
        MOST_SIMULATED
    }

    fn begin<'a>(&'a self, extent: Extent<'a>) -> Found<'a, Begin> {
        Box::pin(begin(&self.client, Options::default_configuration(), extent, true))
    }
}

/// Serves until a signal. `say` prints a line.
///
/// # Errors
/// When the port is taken, or the cluster cannot be read at the beginning.
pub async fn run(
    args: &DashboardArgs,
    client: Client,
    namespace: String,
    say: impl Fn(&str) -> io::Result<()>,
) -> anyhow::Result<u8> {
    let mut signals = Signals::new()?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await;
    let listener = listener.with_context(|| format!("listening on 127.0.0.1:{}", args.port))?;
    let port = listener.local_addr().context("reading the port")?.port();
    let key = key().context("making a key")?;
    let store = Arc::<Store>::default();
    let polled = Arc::new(Polled::new(client.clone(), namespace, Arc::clone(&store)));
    let pause = polled.round().await.context("reading the cluster")?;
    let callers = Arc::new(Owner { key: key.clone(), polled: Arc::clone(&polled) });
    let source = Arc::new(Laptop { client, polled: Arc::clone(&polled) });
    let hosts = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
    let dashboard = Dashboard::new(store, callers, source, STREAMS).only_for(hosts.into());
    let url = format!("http://127.0.0.1:{port}/#key={key}");
    say(&format!("The dashboard is at {url}"))?;
    say("It shows what the user of the kubeconfig may read, to who has this address. End it with Ctrl-C.")?;
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
        pause = match polled.round().await {
            Ok(pause) => pause,
            Err(error) => {
                warn!(error = %Chain(&error), "the cluster could not be read: what is shown is old");
                AGAIN
            }
        };
    }
}
