//! The objects of a cluster with which a simulation begins. The caller lists them; this module says which, and what is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::labels;
use sluice_engine::Kind;

use crate::{Manifest, Observed, Source, queue_of};

mod asked;
mod capacity;
mod listed;
mod near;
mod programs;

use listed::Ended;

pub use crate::unread::Unread;
pub use asked::{MOST_PODS, subject};
pub use capacity::asks_for_room;
use capacity::{without_details, without_images};
pub use listed::Listed;
use near::{Holding, Near};
use programs::without_programs;

/// The kinds that configure queueing, queues before jobs.
const SETTINGS: [Kind; 12] = [
    Kind::Namespace,
    Kind::ResourceFlavor,
    Kind::ProvisioningRequestConfig,
    Kind::AdmissionCheck,
    Kind::Topology,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::LimitRange,
    Kind::RuntimeClass,
];
/// The kinds that are queued. Workloads come first: a job whose Workload is not there yet would get a second one.
fn queued(kinds: &[JobKind]) -> impl Iterator<Item = Kind> {
    let jobs = kinds.iter().copied().map(Kind::Job);
    [Kind::Workload, Kind::ProvisioningRequest].into_iter().chain(jobs)
}

/// Which objects of a kind are read, as a selector in a URL. Most pods and serving objects are not queued.
fn selected(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => BOUND,
        Kind::Job(job) if job.integration().of_pods => "&labelSelector=kueue.x-k8s.io%2Fmanaged%3Dtrue",
        Kind::Job(job) if job.integration().suspends_pods => "&labelSelector=kueue.x-k8s.io%2Fqueue-name",
        _ => "",
    }
}

/// Pods that are bound and have not ended, as a field selector in a URL.
const BOUND: &str =
    "&fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed";
/// With more namespaces than this, one list of all is cheaper than a list of each.
const MOST_NAMESPACES: usize = 16;

/// How much of the cluster is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent<'a> {
    /// Everything.
    All,
    /// A LocalQueue and what shares quota with it: the tree of cohorts above its ClusterQueue, with all that holds quota there. Nodes are left out, since admission looks at quota,
    /// unless a flavor has a topology or `room` is requested. If the LocalQueue or its ClusterQueue does not exist: all queues, to choose from, and
    /// only the jobs of this one.
    Around {
        /// The LocalQueue's namespace.
        namespace: &'a str,
        /// The LocalQueue.
        local_queue: &'a str,
        /// Whether free capacity on nodes matters: then nodes are read, and the pods on nodes of flavors with Hotswap.
        room: bool,
    },
    /// As [`Self::Around`], for two LocalQueues: that of a job, and the one that a change would give it.
    Between {
        /// The LocalQueues' namespace.
        namespace: &'a str,
        /// The LocalQueues.
        local_queues: [&'a str; 2],
        /// As [`Self::Around::room`].
        room: bool,
    },
}

impl<'a> Extent<'a> {
    /// Namespace and LocalQueues that are looked around, and whether room matters; nothing if everything is read.
    fn center(self) -> Option<(&'a str, [&'a str; 2], bool)> {
        match self {
            Self::All => None,
            Self::Around { namespace, local_queue, room } => Some((namespace, [local_queue; 2], room)),
            Self::Between { namespace, local_queues, room } => Some((namespace, local_queues, room)),
        }
    }
}

/// The part of each listed object that is kept, page by page: most of a pod, and all of most pods, is never needed.
pub type Keep = Arc<dyn Fn(Value) -> Option<Value> + Send + Sync>;

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// Objects, each with its status.
    pub objects: Vec<Manifest>,
    /// Run times of jobs that have ended.
    pub observed: Vec<Observed>,
    /// What could not be read, each kind once.
    pub unread: Vec<Unread>,
}

/// Reads the objects of the simulated kinds, and the jobs of these kinds. `list` lists the objects of a path, with the selectors of a query (each
/// with a leading `&`), keeps the requested part of each object, and returns nothing for a kind that the cluster does not have. What could not be
/// read is noted in the result, and the rest is read.
///
/// # Errors
/// When listing fails.
pub async fn read<E, F>(
    extent: Extent<'_>,
    kinds: &[JobKind],
    list: impl Fn(String, &'static str, Keep) -> F,
) -> Result<Live, E>
where
    F: Future<Output = Result<Listed, E>>,
{
    let kept = |kind: Kind, namespace: Option<&str>, keep: Keep| {
        list(kind.collection(kind.version(), namespace), selected(kind), keep)
    };
    let list = |kind: Kind| {
        let whole: Keep =
            if kind == Kind::Node { Arc::new(|node| Some(without_images(node))) } else { Arc::new(Some) };
        kept(kind, None, whole)
    };
    let mut live = Live::default();
    let named = |template: &TemplateKind| kinds.iter().any(|kind| kind.templates().contains(template));
    let templates = TemplateKind::ALL.into_iter().filter(named);
    for kind in SETTINGS.into_iter().chain(templates.map(Kind::Template)) {
        live.take(kind, list(kind).await?);
    }
    let near = match extent.center() {
        None => {
            live.take(Kind::Node, list(Kind::Node).await?);
            None
        }
        Some((namespace, local_queues, room)) => {
            if room || live.objects.iter().any(has_topology) {
                live.take(Kind::Node, list(Kind::Node).await?);
            }
            Some(Arc::new(live.reduce(namespace, &local_queues)))
        }
    };
    // A manager has no right to read objects whose pods are the jobs: it knows the pods.
    let around = near.is_some();
    let of_pods = |kind: &Kind| matches!(kind, Kind::Job(job) if job.integration().pods_are_jobs);
    let ended = Arc::new(Ended::default());
    for kind in queued(kinds).filter(|kind| !around || !of_pods(kind)) {
        let keep = keeping(kind, near.clone(), Arc::clone(&ended));
        let Some((near, namespaces)) = near.as_ref().and_then(|near| Some((near, near.namespaces()?))) else {
            live.take(kind, kept(kind, None, keep).await?);
            continue;
        };
        for namespace in &namespaces {
            live.take(kind, kept(kind, Some(namespace.as_str()), Arc::clone(&keep)).await?);
        }
        if kind == Kind::Workload && near.misses_some(&live.objects) {
            let elsewhere = move |object: Value| {
                let is_read = namespaces.contains(&text(&object["metadata"]["namespace"]));
                if is_read { None } else { keep(object) }
            };
            let listed = kept(kind, None, Arc::new(elsewhere)).await.unwrap_or_else(|_| {
                let why = "those outside the namespaces of the LocalQueues could not be listed".to_owned();
                Listed { unread: Some(why), ..Listed::default() }
            });
            live.take(kind, listed);
        }
    }
    live.observed = ended.take();
    if let Some(keep) = live.keeping_pods(extent) {
        live.take(Kind::Pod, kept(Kind::Pod, None, keep).await?);
    }
    Ok(live)
}

/// What is kept of each object that is queued: nothing if it has ended, or shares no quota with the LocalQueues.
fn keeping(kind: Kind, near: Option<Arc<Near>>, ended: Arc<Ended>) -> Keep {
    Arc::new(move |object| {
        let is_near = near.as_ref().is_none_or(|near| near.has(kind, &object));
        is_near.then(|| ended.without(kind, object)).flatten().map(|object| without_programs(kind, object))
    })
}

fn is_admitted(workload: &Value) -> bool {
    is_met(workload, "Admitted")
}

fn is_met(workload: &Value, condition: &str) -> bool {
    let mut conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == condition && c["status"] == "True")
}

/// Whether a manager watches pods because of an object: for Hotswap.
fn wants_pods(manifest: &Manifest) -> bool {
    manifest.object["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] == true
}

/// Whether Workloads of a flavor get nodes.
fn has_topology(manifest: &Manifest) -> bool {
    manifest.kind == Kind::ResourceFlavor && !text(&manifest.object["spec"]["topologyName"]).is_empty()
}

/// Namespace and LocalQueue of what is queued.
fn place(object: &Value) -> (String, String) {
    (text(&object["metadata"]["namespace"]), queue_of(object).to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Live {
    /// The part of each pod that is kept, if pods are read: a manager watches them for Hotswap.
    fn keeping_pods(&self, extent: Extent<'_>) -> Option<Keep> {
        if !self.objects.iter().any(wants_pods) {
            return None;
        }
        match extent.center() {
            None => Some(Arc::new(Some)),
            Some((.., false)) => None,
            Some((.., true)) => {
                let nodes = self.nodes_for_hotswap();
                Some(Arc::new(move |pod: Value| {
                    nodes.contains(&text(&pod["spec"]["nodeName"])).then(|| without_details(pod))
                }))
            }
        }
    }

    fn take(&mut self, kind: Kind, listed: impl Into<Listed>) {
        let Listed { found, unread, .. } = listed.into();
        let what = kind.plural();
        if let Some(why) = unread.filter(|_| self.unread.iter().all(|unread| unread.what != what)) {
            self.unread.push(Unread { what, why });
        }
        for (index, mut object) in found.into_iter().enumerate() {
            object["kind"] = Value::from(kind.as_str());
            object["apiVersion"] = Value::from(kind.api_version());
            if is_over(kind, &object) {
                continue;
            }
            let source = Source { file: kind.plural().to_owned(), document: index + 1 };
            self.objects.push(Manifest { source, kind, object });
        }
    }

    /// Leaves out the queues that share no quota with these LocalQueues, and returns those that do.
    fn reduce(&mut self, namespace: &str, local_queues: &[&str]) -> Near {
        let of = |kind: Kind| self.objects.iter().filter(move |m| m.kind == kind).map(|m| &m.object);
        let name = |object: &Value| text(&object["metadata"]["name"]);
        let parents: BTreeMap<String, String> =
            of(Kind::Cohort).map(|c| (name(c), text(&c["spec"]["parentName"]))).collect();
        let cohorts: BTreeMap<String, String> =
            of(Kind::ClusterQueue).map(|q| (name(q), text(&q["spec"]["cohortName"]))).collect();
        let target = |object: &Value| text(&object["spec"]["clusterQueue"]);
        let target_of = |local_queue: &str| {
            let mut all = of(Kind::LocalQueue);
            let own = all.find(|q| name(q) == local_queue && text(&q["metadata"]["namespace"]) == namespace);
            own.map(target).filter(|queue| cohorts.contains_key(queue))
        };
        let own: Vec<Option<String>> = local_queues.iter().map(|name| target_of(name)).collect();
        let root = |queue: &str| cohorts.get(queue).filter(|c| !c.is_empty()).map(|c| top(c, &parents));
        let own_roots: BTreeSet<String> = own.iter().flatten().filter_map(|queue| root(queue)).collect();
        let is_own = |queue: &String| own.iter().flatten().any(|own| own == queue);
        let shares =
            |queue: &String| is_own(queue) || root(queue).is_some_and(|root| own_roots.contains(&root));
        let tree: BTreeSet<String> = cohorts.keys().filter(|queue| shares(queue)).cloned().collect();
        let own_places = local_queues.iter().map(|name| (namespace.to_owned(), (*name).to_owned()));
        let places = of(Kind::LocalQueue)
            .filter(|q| tree.contains(&target(q)))
            .map(|q| (text(&q["metadata"]["namespace"]), name(q)))
            .chain(own_places)
            .collect();
        if own.iter().all(Option::is_none) {
            return Near::new(places, BTreeMap::new());
        }
        let count = |queue: &Value| queue["status"]["reservingWorkloads"].as_u64().unwrap_or_default();
        let mut holding = BTreeMap::<String, Holding>::new();
        for queue in of(Kind::ClusterQueue).filter(|queue| tree.contains(&name(queue))) {
            holding.entry(name(queue)).or_default().all = count(queue);
        }
        for queue in of(Kind::LocalQueue) {
            if let Some(holding) = holding.get_mut(&target(queue)) {
                holding.in_local_queues = holding.in_local_queues.saturating_add(count(queue));
            }
        }
        self.objects.retain(|m| match m.kind {
            Kind::ClusterQueue => tree.contains(&text(&m.object["metadata"]["name"])),
            Kind::LocalQueue => tree.contains(&text(&m.object["spec"]["clusterQueue"])),
            _ => true,
        });
        Near::new(places, holding)
    }
}

/// The root of a cohort's tree. For a cycle, which has no root, the alphabetically first name.
fn top(cohort: &str, parents: &BTreeMap<String, String>) -> String {
    let mut seen = BTreeSet::new();
    let mut at = cohort.to_owned();
    while seen.insert(at.clone()) {
        match parents.get(&at).filter(|parent| !parent.is_empty()) {
            Some(parent) => at.clone_from(parent),
            None => return at,
        }
    }
    let mut cycle = BTreeSet::from([at.clone()]);
    while let Some(parent) = parents.get(&at)
        && cycle.insert(parent.clone())
    {
        at.clone_from(parent);
    }
    cycle.pop_first().unwrap_or_default()
}

/// Objects that have ended or are about to be deleted have no future. Queues and flavors count until they are gone, and Workloads as long as they hold
/// quota for the pods of a job that is deleted.
fn is_over(kind: Kind, object: &Value) -> bool {
    if SETTINGS.contains(&kind) {
        return false;
    }
    if kind == Kind::Workload && near::holds_quota(object) && is_kept(object) {
        return false;
    }
    let ended = || {
        if let Kind::Job(kind) = kind {
            return sluice_jobs::finished(kind, object).is_some();
        }
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let mut met = conditions.filter(|c| c["status"] == "True");
        met.any(|c| c["type"] == "Finished" || c["type"] == "Failed")
    };
    ended() || object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the manager keeps a Workload from being deleted.
fn is_kept(workload: &Value) -> bool {
    let finalizers = workload["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|all| all.iter().any(|name| name == labels::RESOURCE_IN_USE_FINALIZER))
}

/// Kind and UID of the job that controls an object.
fn maker(object: &Value) -> Option<(JobKind, &str)> {
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    Some((JobKind::from_owner(text("apiVersion"), text("kind"))?, text("uid")))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use serde_json::json;
    use sluice_jobs::State;

    /// The result of a future that is ready at once.
    pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
        match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => unreachable!("nothing is waited for"),
        }
    }

    #[test]
    fn what_is_over_and_what_is_played_with_its_owner_is_left_out() {
        let with =
            |condition: &str| json!({"status": {"conditions": [{"type": condition, "status": "True"}]}});
        assert!(is_over(Kind::Workload, &with("Finished")));
        assert!(is_over(Kind::ProvisioningRequest, &with("Failed")));
        assert!(!is_over(Kind::Workload, &with("Admitted")));
        for kind in JobKind::jobs() {
            let at = jiff::Timestamp::UNIX_EPOCH;
            let [succeeded, failed] = [true, false].map(|success| State::Ended { at, success });
            let runs = State::Running { since: at, ready: true };
            let ends = kind.integration().ends;
            for (state, over) in [(succeeded, ends), (failed, ends), (runs, false), (State::Idle, false)] {
                let object = json!({"status": sluice_jobs::status(kind, &json!({}), state)});
                assert_eq!(is_over(Kind::Job(kind), &object), over, "{kind:?} {state:?}");
            }
            assert!(!is_over(Kind::Job(kind), &with("Suspended")), "{kind:?}");
        }
        let owned = |uid: &str, owner: &Value| json!({"metadata": {"uid": uid, "ownerReferences": [owner]}});
        let controller = |api_version: &str, kind: &str, uid: &str| json!({"controller": true, "apiVersion": api_version, "kind": kind, "uid": uid});
        let job = Kind::Job(JobKind::JOB);
        for kind in JobKind::jobs() {
            let above = controller(kind.api_version(), kind.kind(), "above");
            let part = || owned("part", &above);
            let taken = Ended::default();
            assert_eq!(taken.without(job, part()), None, "{kind:?}");
            // The Workload of the owner covers both jobs; a Workload of the part covers only the part.
            let shared = json!([above, controller("batch/v1", "Job", "part")]);
            for (owners, own) in [(shared, false), (json!([controller("batch/v1", "Job", "part")]), true)] {
                taken.without(Kind::Workload, json!({"metadata": {"ownerReferences": owners}}));
                let made_with_it = kind.integration().suspends_pods;
                assert_eq!(taken.without(job, part()).is_some(), own && !made_with_it, "{kind:?}");
            }
        }
        let none = Ended::default();
        assert!(
            none.without(job, owned("other", &controller("example.com/v1", "JobSet", "above"))).is_some()
        );
        assert!(none.without(job, json!({"metadata": {}})).is_some());
    }

    #[test]
    fn a_workload_that_is_being_deleted_is_read_while_it_holds_quota() {
        let is_read = |condition: &str, finalizers: &[&str]| {
            let workload = json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers},
                "status": {"conditions": [{"type": condition, "status": "True"}]},
            });
            !is_over(Kind::Workload, &workload)
        };
        let own = [labels::RESOURCE_IN_USE_FINALIZER];
        assert!(is_read("QuotaReserved", &own));
        assert!(!is_read("QuotaReserved", &["foregroundDeletion"]) && !is_read("Evicted", &own));
    }

    #[test]
    fn a_job_s_surroundings_are_the_queues_that_it_shares_quota_with() {
        let mut live = Live::default();
        let named =
            |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        live.take(
            Kind::Cohort,
            vec![named("left", json!({"parentName": "top"})), named("right", json!({"parentName": "top"}))],
        );
        let queues = [("a", "left"), ("b", "right"), ("c", "elsewhere"), ("d", "")];
        live.take(Kind::ClusterQueue, queues.map(|(q, c)| named(q, json!({"cohortName": c}))).to_vec());
        live.take(
            Kind::LocalQueue,
            queues.map(|(q, _)| named(&format!("to-{q}"), json!({"clusterQueue": q}))).to_vec(),
        );
        let place = |name: &str| ("ns".to_owned(), name.to_owned());
        let near = live.clone().reduce("ns", &["to-a"]);
        assert_eq!(near.places, BTreeSet::from([place("to-a"), place("to-b")]));
        assert!(near.holding.keys().eq(["a", "b"]), "{near:?}");
        assert_eq!(live.clone().reduce("ns", &["to-d"]).places, BTreeSet::from([place("to-d")]));
        // If the LocalQueue or its ClusterQueue does not exist, only its own jobs are read, and all queues are kept to choose from.
        let mut missing = live.clone();
        assert_eq!(missing.reduce("ns", &["none"]).places, BTreeSet::from([place("none")]));
        assert_eq!(missing.objects.len(), live.objects.len());
        // With two LocalQueues both trees are read; a missing one adds its own jobs.
        let mut two = live.clone();
        let all = ["to-a", "to-b", "to-d"].map(place);
        assert_eq!(two.reduce("ns", &["to-a", "to-d"]).places, BTreeSet::from(all));
        assert_eq!(two.objects.iter().filter(|m| m.kind == Kind::ClusterQueue).count(), 3);
        let empty = live.clone().reduce("ns", &["", "to-d"]);
        assert_eq!(empty.places, BTreeSet::from([place(""), place("to-d")]));
        live.reduce("ns", &["to-c"]);
        let left: Vec<_> = live
            .objects
            .iter()
            .filter(|m| m.kind == Kind::ClusterQueue)
            .map(|m| text(&m.object["metadata"]["name"]))
            .collect();
        assert_eq!(left, ["c"]);
    }

    #[test]
    fn cohorts_in_a_cycle_are_one_tree() {
        let parents = [("a", "b"), ("b", "c"), ("c", "b")].map(|(x, y)| (x.to_owned(), y.to_owned())).into();
        assert_eq!(
            (top("a", &parents).as_str(), top("b", &parents).as_str(), top("c", &parents).as_str()),
            ("b", "b", "b")
        );
    }
}
