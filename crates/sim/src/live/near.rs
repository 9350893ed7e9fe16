//! What shares quota with a job: the jobs of LocalQueues, and Workloads that hold quota although their LocalQueue is gone or refers to another
//! ClusterQueue by now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use sluice_engine::Kind;

use super::{MOST_NAMESPACES, is_met, place, text};
use crate::Manifest;

/// The queues around a job.
#[derive(Debug)]
pub(super) struct Near {
    /// Namespace and name of each LocalQueue.
    pub places: BTreeSet<(String, String)>,
    /// The ClusterQueues.
    pub holding: BTreeMap<String, Holding>,
    outside: Mutex<Outside>,
}

/// How many Workloads hold quota in a ClusterQueue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holding {
    /// According to its status.
    pub all: u64,
    /// According to the status of the LocalQueues that refer to it.
    pub in_local_queues: u64,
}

/// The Workloads that hold quota of the ClusterQueues and are in none of the LocalQueues.
#[derive(Debug, Default)]
struct Outside {
    namespaces: BTreeSet<String>,
    /// The UIDs of their owners.
    owners: BTreeSet<String>,
}

/// Whether a Workload holds quota.
pub(super) fn holds_quota(workload: &Value) -> bool {
    is_met(workload, "QuotaReserved") && !is_met(workload, "Finished")
}

impl Near {
    /// Of these LocalQueues and ClusterQueues.
    pub fn new(places: BTreeSet<(String, String)>, holding: BTreeMap<String, Holding>) -> Self {
        Self { places, holding, outside: Mutex::default() }
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an object is kept: it is in one of the LocalQueues, holds quota of one of the ClusterQueues, or owns such a Workload. Workloads are
    /// listed before jobs.
    pub fn has(&self, kind: Kind, object: &Value) -> bool {
        if self.places.contains(&place(object)) {
            return true;
        }
        match kind {
            Kind::Workload if self.queue_of_quota(object).is_some() => {
                let mut outside = self.outside();
                outside.namespaces.insert(text(&object["metadata"]["namespace"]));
                let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                outside.owners.extend(owners.map(|owner| text(&owner["uid"])).filter(|uid| !uid.is_empty()));
                true
            }
            Kind::Job(_) => self.outside().owners.contains(&text(&object["metadata"]["uid"])),
            _ => false,
        }
    }

    /// The ClusterQueue of these whose quota a Workload holds.
    fn queue_of_quota(&self, workload: &Value) -> Option<&str> {
        let queue = workload["status"]["admission"]["clusterQueue"].as_str()?;
        let (queue, _) = self.holding.get_key_value(queue).filter(|_| holds_quota(workload))?;
        Some(queue)
    }

    /// The namespaces to list; nothing if one list of all is cheaper.
    pub fn namespaces(&self) -> Option<BTreeSet<String>> {
        let mut all: BTreeSet<String> = self.places.iter().map(|(namespace, _)| namespace.clone()).collect();
        all.extend(self.outside().namespaces.iter().cloned());
        (all.len() <= MOST_NAMESPACES).then_some(all)
    }

    /// Whether more Workloads hold quota, according to the status of a ClusterQueue, than there are among these objects and than its LocalQueues have
    /// according to theirs: a status is older than the objects, which may have ended since.
    pub fn misses_some(&self, objects: &[Manifest]) -> bool {
        let mut found = BTreeMap::<&str, u64>::new();
        let workloads = objects.iter().filter(|manifest| manifest.kind == Kind::Workload);
        for queue in workloads.filter_map(|manifest| self.queue_of_quota(&manifest.object)) {
            *found.entry(queue).or_default() += 1;
        }
        self.holding.iter().any(|(queue, holding)| {
            let found = found.get(&**queue).copied().unwrap_or_default();
            found.max(holding.in_local_queues) < holding.all
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use jiff::SignedDuration;
    use serde_json::json;
    use sluice_api::job::JobKind;
    use sluice_api::labels;

    use super::super::tests::ready;
    use super::super::{Extent, Keep, Listed, read};
    use super::*;
    use crate::{File, Manifests, Options, Simulation, object, prepare};

    fn job(namespace: &str, name: &str, pods: u32) -> String {
        format!(
            "
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}, uid: uid-{name}, labels: {{kueue.x-k8s.io/queue-name: lq}}, annotations: {{sluice.dev/run-seconds: \"3600\"}}}}
spec: {{suspend: true, parallelism: {pods}, completions: {pods}, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]}}}}}}
---
"
        )
    }

    const QUEUES: &str = "
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f}, spec: {}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: cq}, spec: {namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 10}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: a}, spec: {clusterQueue: cq}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: b}, spec: {clusterQueue: cq}}
---
";

    fn options() -> Options {
        Options::new(Options::default_configuration())
    }

    /// Of ten processors, a job of the namespace `a` has six and one of `b` three; another of `b` waits for four.
    fn cluster() -> Simulation {
        let text = [QUEUES, &job("a", "moved", 6), &job("b", "beside", 3), &job("b", "waits", 4)].concat();
        let file = File { name: "world".to_owned(), text, named: true };
        let manifests = Manifests::read(&[file]).unwrap();
        let mut cluster = prepare(&manifests, &BTreeMap::new(), options()).unwrap();
        cluster.advance(SignedDuration::from_secs(60)).unwrap();
        cluster
    }

    /// Which jobs have quota where what is read around `b/lq` is played, each object as `edit` leaves it; and the lists that were read.
    fn admitted(
        cluster: &Simulation,
        edit: impl Fn(Kind, Value) -> Option<Value>,
    ) -> (Vec<String>, Vec<String>) {
        let lists = std::cell::RefCell::new(Vec::new());
        let listed = |place: String, _query: &'static str, keep: Keep| {
            let kind = object::kinds().find(|kind| place.ends_with(&format!("/{}", kind.plural())));
            let of = |kind: Kind| cluster.objects(kind).map(move |(_, object)| (kind, object.clone()));
            let all = kind.into_iter().flat_map(of);
            let namespace = place.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
            let is_there = |object: &Value| {
                namespace.is_none_or(|(namespace, _)| object["metadata"]["namespace"] == namespace)
            };
            let all = all.filter(|(_, object)| is_there(object));
            let found: Vec<Value> = all
                .filter_map(|(kind, object)| edit(kind, object))
                .filter_map(|object| keep(object))
                .collect();
            lists.borrow_mut().push(place);
            std::future::ready(Ok::<_, Infallible>(found.into()))
        };
        let extent = Extent::Around { namespace: "b", local_queue: "lq", room: false };
        let live = ready(read(extent, &[JobKind::JOB], listed)).unwrap();
        let manifests = Manifests { objects: live.objects, ..Manifests::default() };
        let mut played =
            prepare(&manifests, &BTreeMap::new(), Options { start: cluster.now(), ..options() }).unwrap();
        played.advance(SignedDuration::from_secs(60)).unwrap();
        let jobs = &played.record().jobs;
        let has_quota = jobs.iter().filter(|job| job.holds.iter().any(|hold| hold.to.is_none()));
        let mut names: Vec<String> = has_quota.map(|job| job.name.to_string()).collect();
        names.sort();
        (names, lists.into_inner())
    }

    /// A queue with the number of Workloads in its status that hold quota: two in the ClusterQueue, one in each LocalQueue.
    fn with_reserving(kind: Kind, mut object: Value) -> Value {
        let reserving = match kind {
            Kind::ClusterQueue => 2,
            Kind::LocalQueue => 1,
            _ => return object,
        };
        object["status"]["reservingWorkloads"] = json!(reserving);
        object
    }

    /// Whether the Workloads of all namespaces are among these lists.
    fn all_workloads(lists: &[String]) -> bool {
        lists.iter().any(|list| list.ends_with("/workloads") && !list.contains("/namespaces/"))
    }

    #[test]
    fn a_workload_keeps_its_quota_when_its_local_queue_is_gone_or_refers_to_another_cluster_queue() {
        let cluster = cluster();
        let of_other =
            |kind: Kind, object: &Value| kind == Kind::LocalQueue && object["metadata"]["namespace"] == "a";
        let (usual, lists) = admitted(&cluster, |_, object| Some(object));
        assert_eq!(usual, ["beside", "moved"]);
        assert!(!all_workloads(&lists), "those of the namespaces are all: {lists:?}");
        let (gone, lists) = admitted(&cluster, |kind, object| {
            (!of_other(kind, &object)).then(|| with_reserving(kind, object))
        });
        assert_eq!(gone, usual);
        assert!(all_workloads(&lists), "{lists:?}");
        let (elsewhere, _) = admitted(&cluster, |kind, mut object| {
            if of_other(kind, &object) {
                object["spec"]["clusterQueue"] = json!("elsewhere");
            }
            Some(with_reserving(kind, object))
        });
        assert_eq!(elsewhere, usual);
    }

    #[test]
    fn a_workload_that_ended_after_the_status_was_written_causes_no_list_of_all() {
        let cluster = cluster();
        let (_, lists) = admitted(&cluster, |kind, object| {
            let ended = kind == Kind::Workload && object["metadata"]["namespace"] == "a";
            (!ended).then(|| with_reserving(kind, object))
        });
        assert!(!all_workloads(&lists), "{lists:?}");
    }

    #[test]
    fn a_deleted_job_keeps_its_quota_until_the_grace_period_of_its_pods_is_over() {
        let cluster = cluster();
        let with_grace = |seconds: i64, ago: i64| {
            let since = cluster.now().checked_sub(SignedDuration::from_secs(ago)).unwrap().to_string();
            let (names, _) = admitted(&cluster, |kind, mut object| {
                let is_kind = matches!(kind, Kind::Job(_) | Kind::Workload);
                if is_kind && object["metadata"]["namespace"] == "a" {
                    object["metadata"]["deletionTimestamp"] = json!(since);
                    object["metadata"]["finalizers"] =
                        json!([labels::RESOURCE_IN_USE_FINALIZER, "foregroundDeletion"]);
                }
                let sets = object.pointer_mut("/spec/podSets").and_then(Value::as_array_mut);
                for set in sets.into_iter().flatten() {
                    set["template"]["spec"]["terminationGracePeriodSeconds"] = json!(seconds);
                }
                Some(object)
            });
            names
        };
        let kept = with_grace(120, 1);
        assert!(kept.len() == 2 && kept[1].starts_with("job-moved-"), "{kept:?}");
        let free = ["beside", "waits"];
        assert_eq!(with_grace(10, 1), free);
        assert_eq!(with_grace(10_000, 3700), free, "no longer than scheduler.maxTerminationGracePeriod");
    }

    #[test]
    fn a_list_of_all_workloads_that_fails_leaves_a_note() {
        let list = |place: String, _query: &'static str, _keep: Keep| {
            let found = match place.rsplit('/').next() {
                Some("clusterqueues") => {
                    vec![json!({"metadata": {"name": "cq"}, "status": {"reservingWorkloads": 1}})]
                }
                Some("localqueues") => {
                    vec![
                        json!({"metadata": {"namespace": "a", "name": "lq"}, "spec": {"clusterQueue": "cq"}}),
                    ]
                }
                _ => Vec::new(),
            };
            let fails = all_workloads(&[place]);
            std::future::ready(if fails { Err("forbidden") } else { Ok(Listed::from(found)) })
        };
        let extent = Extent::Around { namespace: "a", local_queue: "lq", room: false };
        let live = ready(read(extent, &[JobKind::JOB], list)).unwrap();
        let unread: Vec<&str> = live.unread.iter().map(|unread| unread.what).collect();
        assert_eq!(unread, ["workloads"]);
    }

    #[test]
    fn what_holds_quota_elsewhere_is_not_near() {
        let near = Near::new(BTreeSet::new(), [("cq".to_owned(), Holding::default())].into());
        let workload = |queue: &str, reserved: &str, uid: &str| {
            json!({
                "metadata": {"namespace": "b", "ownerReferences": [{"uid": uid}]},
                "status": {"admission": {"clusterQueue": queue}, "conditions": [{"type": "QuotaReserved", "status": reserved}]},
            })
        };
        let owner = |uid: &str| json!({"metadata": {"namespace": "b", "uid": uid}});
        let job = Kind::Job(JobKind::JOB);
        assert!(!near.has(Kind::Workload, &workload("other", "True", "u1")));
        assert!(!near.has(Kind::Workload, &workload("cq", "False", "u2")));
        assert!(near.has(Kind::Workload, &workload("cq", "True", "u3")));
        assert_eq!(["u1", "u2", "u3", ""].map(|uid| near.has(job, &owner(uid))), [false, false, true, false]);
        assert_eq!(near.namespaces(), Some(["b".to_owned()].into()));
    }
}
