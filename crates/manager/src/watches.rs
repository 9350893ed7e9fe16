//! Starts the watches: once the CRDs exist; for jobs once the kind's CRD exists.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube::Client;
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::{slim, v1beta2};
use sluice_client::error_chain::Chain;
use sluice_engine::input::{Input, Kind};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::intake::Slot;
use crate::rights;
use crate::watch::discovery::{Discovery, missing, served};
use crate::watch::kinds::{self, OlderProvisioningRequest, RawJob, RawTemplate};
use crate::watch::pods::{self, Noted, Pods};
use crate::watch::pump::{Ended, Feed, Selector, Shared, Watched, pump};
use crate::watch::versions::{OLDER, Versions};

/// Between two looks for CRDs that are needed.
const IMPATIENT: Duration = Duration::from_millis(500);
/// Between two looks for a CRD that may never come.
const PATIENT: Duration = Duration::from_secs(3);

/// Which CRDs are missing, for readiness.
#[derive(Debug, Default)]
pub struct Crds(Mutex<Option<String>>);

impl Crds {
    /// The problem, if there is one.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what is wrong, and logs it when it is news.
    fn report(&self, problem: Option<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == problem {
            return;
        }
        if let Some(problem) = &problem {
            warn!(%problem, "waiting for the CRDs");
        } else {
            info!("all CRDs are there");
        }
        *known = problem;
    }
}

/// Pods that are queued themselves.
const MANAGED_PODS: &str = "kueue.x-k8s.io/managed=true";

/// The kinds that are watched besides those that always are.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Jobs of these kinds.
    pub jobs: Vec<JobKind>,
    /// Objects of these kinds, which others manage.
    pub external: BTreeSet<JobKind>,
    /// ProvisioningRequests; the served version is recorded here.
    pub provisioning: Option<Versions>,
    /// The features that may need pods.
    pub pods: Pods,
    /// Whether jobs may change their size while they run.
    pub elastic: bool,
    /// Whether pods get places in topologies.
    pub topology: bool,
}

/// The watched kinds with these job kinds and those that other controllers manage, with or without the controller of provisioning checks.
pub fn watched_kinds(
    jobs: &[JobKind],
    external: &BTreeSet<JobKind>,
    provisioning: bool,
) -> impl Iterator<Item = Kind> {
    let provisioning = kinds::PROVISIONING.into_iter().filter(move |_| provisioning);
    kinds::OWN
        .into_iter()
        .chain(kinds::CLUSTER)
        .chain(provisioning)
        .chain([Kind::Pod, Kind::JobPod])
        .chain(templates(jobs).into_iter().map(Kind::Template))
        .chain(with_parts(jobs).into_iter().chain(external.iter().copied()).map(Kind::Job))
}

/// These kinds, and those of their parts, which have the status of the pods.
fn with_parts(jobs: &[JobKind]) -> BTreeSet<JobKind> {
    jobs.iter().copied().chain(jobs.iter().flat_map(|kind| kind.descendants())).collect()
}

/// The kinds of the template objects that they name.
fn templates(jobs: &[JobKind]) -> BTreeSet<TemplateKind> {
    jobs.iter().flat_map(|kind| kind.templates()).copied().collect()
}

/// The label of all parts of that kind, if all kinds that make them use the same one; else all jobs of it are watched.
fn label_of_parts(jobs: &[JobKind], part: JobKind) -> Option<&'static str> {
    let known = with_parts(jobs);
    let owners = known.iter().filter(|kind| kind.parts().any(|kind| kind == part));
    let mut labels = owners.map(|kind| kind.integration().part_label);
    let first = labels.next()??;
    labels.all(|label| label == Some(first)).then_some(first)
}

/// Watches everything until stopped.
pub async fn run(client: Client, wanted: Wanted, crds: Arc<Crds>, mut shared: Shared) {
    let mut tasks = Vec::new();
    let discovery = Arc::new(Discovery::new(client.clone()));
    let noted =
        Noted { queues: wanted.pods != Pods::ForJobs, elastic: wanted.elastic, topology: wanted.topology };
    let (sink, need) = pods::noting(shared.sink, noted);
    shared.sink = sink;
    let supervisor = shared.supervisor.clone();
    let of_jobs = pods::watch_of_jobs(client.clone(), need.clone(), shared.clone());
    tasks.push(supervisor.spawn("watch of the pods of jobs", of_jobs));
    let pods = pods::watch(client.clone(), wanted.pods, need, shared.clone());
    tasks.push(supervisor.spawn("watch of pods", pods));
    cluster_kinds(&client, &shared, &mut tasks);
    if let Some(versions) = wanted.provisioning {
        let kind = Kind::ProvisioningRequestConfig;
        let configs = when_it_exists::<v1beta2::ProvisioningRequestConfig>(
            Arc::clone(&discovery),
            client.clone(),
            kind,
            shared.clone(),
        );
        tasks.push(supervisor.spawn("watch of provisioning request configurations", configs));
        let requests =
            provisioning_requests(Arc::clone(&discovery), client.clone(), versions, shared.clone());
        tasks.push(supervisor.spawn("watch of provisioning requests", requests));
    }
    for template in templates(&wanted.jobs) {
        let (discovery, client) = (Arc::clone(&discovery), client.clone());
        let watch =
            when_it_exists::<RawTemplate>(discovery, client, Kind::Template(template), shared.clone());
        tasks.push(supervisor.spawn(template.plural(), watch));
    }
    for kind in with_parts(&wanted.jobs) {
        let managed = wanted.jobs.contains(&kind);
        let labels = if wanted.external.contains(&kind) {
            None
        } else if !managed {
            label_of_parts(&wanted.jobs, kind)
        } else if kind.integration().of_pods {
            // Most pods are not managed.
            Some(MANAGED_PODS)
        } else {
            None
        };
        let selector = Selector { labels, ..Selector::default() };
        let shared = Shared { selector, ..shared.clone() };
        if kind.integration().built_into_kubernetes {
            start::<RawJob>(&client, Kind::Job(kind), &shared, &mut tasks);
        } else {
            let jobs = when_it_exists::<RawJob>(
                Arc::clone(&discovery),
                client.clone(),
                Kind::Job(kind),
                shared.clone(),
            );
            tasks.push(supervisor.spawn(kind.plural(), jobs));
        }
    }
    let parts = with_parts(&wanted.jobs);
    for kind in wanted.external.into_iter().filter(|kind| !parts.contains(kind)) {
        let watch = external(Arc::clone(&discovery), client.clone(), kind, shared.clone());
        tasks.push(supervisor.spawn(kind.framework(), watch));
    }
    if wait_for_crds(&client, &crds, &mut shared).await {
        own_kinds(&client, &shared, &mut tasks);
    }
    // Each is watched over by itself.
    let _ = futures::future::join_all(tasks).await;
}

/// False when stopped meanwhile.
async fn wait_for_crds(client: &Client, crds: &Crds, shared: &mut Shared) -> bool {
    let wanted = kinds::OWN.map(Kind::plural);
    loop {
        let problem = match served(client, "kueue.x-k8s.io", "v1beta2").await {
            Ok(served) => {
                let missing = missing(&served, &wanted, "kueue.x-k8s.io");
                (!missing.is_empty()).then(|| format!("CRDs are missing: {}", missing.join(", ")))
            }
            Err(error) => Some(format!("the CRDs cannot be looked up: {}", Chain(&error))),
        };
        let complete = problem.is_none();
        crds.report(problem);
        if complete {
            return true;
        }
        if !shared.stop.sleep(IMPATIENT).await {
            return false;
        }
    }
}

fn own_kinds(client: &Client, shared: &Shared, tasks: &mut Vec<JoinHandle<()>>) {
    start::<v1beta2::ResourceFlavor>(client, Kind::ResourceFlavor, shared, tasks);
    start::<v1beta2::ClusterQueue>(client, Kind::ClusterQueue, shared, tasks);
    start::<v1beta2::LocalQueue>(client, Kind::LocalQueue, shared, tasks);
    start::<v1beta2::Cohort>(client, Kind::Cohort, shared, tasks);
    start::<v1beta2::AdmissionCheck>(client, Kind::AdmissionCheck, shared, tasks);
    start::<v1beta2::Topology>(client, Kind::Topology, shared, tasks);
    start::<v1beta2::WorkloadPriorityClass>(client, Kind::WorkloadPriorityClass, shared, tasks);
    start::<slim::Workload>(client, Kind::Workload, shared, tasks);
}

fn cluster_kinds(client: &Client, shared: &Shared, tasks: &mut Vec<JoinHandle<()>>) {
    start::<slim::PriorityClass>(client, Kind::PriorityClass, shared, tasks);
    start::<slim::Namespace>(client, Kind::Namespace, shared, tasks);
    start::<slim::Node>(client, Kind::Node, shared, tasks);
    start::<slim::LimitRange>(client, Kind::LimitRange, shared, tasks);
    start::<slim::RuntimeClass>(client, Kind::RuntimeClass, shared, tasks);
}

fn start<K>(client: &Client, kind: Kind, shared: &Shared, tasks: &mut Vec<JoinHandle<()>>)
where
    K: Watched,
{
    let (client, shared) = (client.clone(), shared.clone());
    let supervisor = shared.supervisor.clone();
    tasks.push(supervisor.spawn(kind.plural(), async move {
        pump::<K>(client, kind, false, shared).await;
    }));
}

/// Watches a kind whose CRD may come and go.
async fn when_it_exists<K>(discovery: Arc<Discovery>, client: Client, kind: Kind, mut shared: Shared)
where
    K: Watched,
{
    loop {
        let ended = match discovery.serves(kind.group(), kind.version(), kind.plural()).await {
            Some(true) => while_it_exists::<K>(&client, kind, &shared).await,
            Some(false) => absent(kind, &shared),
            None => unknown(kind, &shared),
        };
        if ended == Ended::Stopped || !shared.stop.sleep(PATIENT).await {
            return;
        }
    }
}

/// Watches the objects of a kind that another controller manages, with their metadata only. Its CRD may be created and deleted, and defines the
/// kind's plural.
async fn external(discovery: Arc<Discovery>, client: Client, kind: JobKind, mut shared: Shared) {
    shared.selector.metadata_only = true;
    let mut reported = false;
    loop {
        let ended = match discovery.plural(kind.group(), kind.version(), kind.kind()).await {
            Some(Some(plural)) => {
                let kind = if plural == kind.plural() { kind } else { kind.with_plural(&plural) };
                let need = vec![rights::of_external(kind)];
                rights::guard(client.clone(), need, shared.supervisor.clone(), shared.stop.clone()).await;
                while_it_exists::<RawJob>(&client, Kind::Job(kind), &shared).await
            }
            Some(None) => {
                if !std::mem::replace(&mut reported, true) {
                    let (kind, api_version) = (kind.kind(), kind.api_version());
                    warn!(
                        kind,
                        api_version,
                        "no CRD of this kind in integrations.externalFrameworks yet: it is looked for"
                    );
                }
                absent(Kind::Job(kind), &shared)
            }
            None => unknown(Kind::Job(kind), &shared),
        };
        if ended == Ended::Stopped || !shared.stop.sleep(PATIENT).await {
            return;
        }
    }
}

/// Watches ProvisioningRequests in the newest served version, whenever there is one.
async fn provisioning_requests(
    discovery: Arc<Discovery>,
    client: Client,
    versions: Versions,
    mut shared: Shared,
) {
    let kind = Kind::ProvisioningRequest;
    loop {
        let newer = discovery.serves(kind.group(), kind.version(), kind.plural()).await;
        let older = discovery.serves(kind.group(), OLDER, kind.plural()).await;
        let ended = match (newer, older) {
            (Some(true), _) => {
                versions.only_older(false);
                while_it_exists::<slim::ProvisioningRequest>(&client, kind, &shared).await
            }
            (Some(false), Some(true)) => {
                versions.only_older(true);
                while_it_exists::<OlderProvisioningRequest>(&client, kind, &shared).await
            }
            (Some(false), Some(false)) => absent(kind, &shared),
            _ => unknown(kind, &shared),
        };
        if ended == Ended::Stopped || !shared.stop.sleep(PATIENT).await {
            return;
        }
    }
}

/// Watches a kind until its objects are not found: its CRD is gone, or what stands before the API server has no other answer for a while. The list of
/// what is served tells which of the two it is.
async fn while_it_exists<K>(client: &Client, kind: Kind, shared: &Shared) -> Ended
where
    K: Watched,
{
    info!(kind = kind.plural(), "the CRD is there");
    shared.sync.exists(kind);
    let ended = pump::<K>(client.clone(), kind, true, shared.clone()).await;
    if ended == Ended::Gone {
        info!(kind = kind.plural(), "no such objects are found: the CRD is looked for");
    }
    ended
}

/// The kind does not exist: nothing waits for it, and what objects of it left behind may go.
fn absent(kind: Kind, shared: &Shared) -> Ended {
    let epoch = *shared.epoch.borrow();
    shared.sync.forget(kind);
    if shared.sync.reports_absent(kind) {
        let listed = Input::Listed { kind, present: Vec::new(), as_of: None };
        (shared.sink)(Feed::Input(listed, None), Slot::default());
    }
    if shared.sync.absent(kind) {
        (shared.sink)(Feed::Synced(epoch), Slot::default());
    }
    Ended::Gone
}

/// It is not known whether the kind exists: what was known of it stays, and readiness says so.
fn unknown(kind: Kind, shared: &Shared) -> Ended {
    shared.sync.unknown(kind);
    Ended::Gone
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::sync::watch;

    use super::*;
    use crate::fake_api;
    use crate::watch::pump::tests::shared;

    #[tokio::test]
    async fn objects_that_are_not_found_are_not_gone_until_their_kind_is() {
        let client = fake_api::client(|_, _, _| async { fake_api::failed(404, "page not found") });
        let (_epoch, epoch) = watch::channel(0);
        let (_stopper, stop) = crate::shutdown::pair();
        let ((shared, reported), kind) = (shared(), Kind::Job(JobKind::JOB_SET));
        let shared = Shared { epoch, stop, ..shared };
        absent(kind, &shared);
        assert_eq!(reported.lock().unwrap().len(), 1);
        let later = Instant::now() + Duration::from_mins(1);
        let is_cut_off = || shared.sync.cut_off(&[kind], later).is_some();
        shared.sync.heard(kind);
        assert_eq!(while_it_exists::<RawJob>(&client, kind, &shared).await, Ended::Gone);
        assert_eq!(reported.lock().unwrap().len(), 1, "the engine keeps what it knows");
        assert!(is_cut_off(), "which is of that time");
        let discovery = Discovery::new(client);
        assert_eq!(discovery.serves(kind.group(), kind.version(), kind.plural()).await, None);
        absent(kind, &shared);
        assert_eq!(reported.lock().unwrap().len(), 2, "until the list of what is served says so");
        assert!(!is_cut_off());
    }

    #[test]
    fn the_engine_learns_once_that_a_kind_that_does_not_exist_has_no_objects() {
        let ((shared, reported), kind) = (shared(), Kind::Job(JobKind::JOB_SET));
        for _ in 0..2 {
            absent(kind, &shared);
        }
        let none = Input::Listed { kind, present: Vec::new(), as_of: None };
        let reported = reported.lock().unwrap();
        assert!(matches!(&reported[..], [Feed::Input(input, None)] if *input == none), "{reported:?}");
    }
}
