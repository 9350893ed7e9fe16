//! A pod that Kueue queued by itself, with its Workload (docs/reference/06-algorithm.md 6.20, docs/reference/07-integrations.md 7.3): Sluice adopts
//! both unchanged, from a release that writes v1beta1 and from one that writes v1beta2.

use serde_json::{Value, json};
use sluice_api::conversion::{Version, convert};
use sluice_api::job::JobKind;
use sluice_api::v1beta2::Workload;
use sluice_engine::{EngineConfig, Kind, Purpose};

use crate::model::{Cluster, condition, reported};
use crate::plain_pods::{add_high, announced};

/// The name that Kueue gives the Workload of the pod `solo`: its digits are those that `printf '%s\n%s\n%s\n%s' Pod '' solo uid-0006 | sha1sum`
/// begins with.
const NAME: &str = "pod-solo-4c3a9";
const UID: &str = "uid-0006";
const SINCE: &str = "2026-01-01T00:00:00Z";

/// How far Kueue got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// The Workload was made, and nothing else.
    Made,
    /// It waits for quota.
    Waiting,
    /// It is admitted, and the pod has its gate yet.
    Admitted,
    /// The pod runs.
    Running,
    /// The pod has ended, and the Workload does not say so.
    Ended,
}

const RELEASES: [Version; 2] = [Version::V1beta1, Version::V1beta2];

/// A queue with `cpu` processors, and a class of Workloads.
fn empty(cpu: &str) -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::POD);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple(cpu, &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 1000);
    c
}

/// The pod as the user wrote it, and the API server's defaults and Kueue's webhook made it.
fn waiting(release: Version) -> Value {
    let mounts = json!([{"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]);
    let container = json!({
        "name": "main", "image": "busybox", "imagePullPolicy": "Always", "command": ["sleep", "60"],
        "resources": {"requests": {"cpu": "1"}}, "volumeMounts": mounts,
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    let token = json!({"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}});
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let newer = release == Version::V1beta2;
    let mut gates = vec![json!({"name": "kueue.x-k8s.io/admission"})];
    let mut annotations = json!({});
    if newer {
        gates.push(json!({"name": "kueue.x-k8s.io/topology"}));
        annotations["kueue.x-k8s.io/role-hash"] = json!("a9f06f3a");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team-a", "name": "solo",
            "labels": {"app": "solo", "kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/managed": "true"},
            "annotations": annotations, "finalizers": ["kueue.x-k8s.io/managed"],
        },
        "spec": {
            "containers": [container], "schedulingGates": gates, "restartPolicy": "Never", "priority": 0,
            "serviceAccountName": "default", "enableServiceLinks": true, "terminationGracePeriodSeconds": 30,
            "tolerations": [toleration("node.kubernetes.io/not-ready"), toleration("node.kubernetes.io/unreachable")],
            "volumes": [{"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [token]}}],
        },
        "status": {"phase": "Pending"},
    })
}

/// What Kueue's start makes of it.
fn started(mut pod: Value, release: Version) -> Value {
    pod["spec"]["schedulingGates"] = Value::Null;
    pod["spec"]["nodeSelector"] = json!({"pool": "default"});
    if release == Version::V1beta2 {
        let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
        for (key, value) in [("podset", "main"), ("local-queue-name", "lq"), ("cluster-queue-name", "cq")] {
            labels.insert(format!("kueue.x-k8s.io/{key}"), json!(value));
        }
        pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!(NAME);
    }
    pod
}

/// What Kueue wrote for it.
fn written(release: Version, left: Left) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "solo", "uid": UID, "controller": true,
        "blockOwnerDeletion": true});
    let mut status = json!({});
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE,
            "observedGeneration": 1})
    };
    match left {
        Left::Made => {}
        Left::Waiting => {
            let why = "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default";
            status["conditions"] = json!([condition("QuotaReserved", "False", "Pending", why)]);
            status["resourceRequests"] = json!([{"name": "main", "resources": {"cpu": "1"}}]);
        }
        Left::Admitted | Left::Running | Left::Ended => {
            let reserved =
                condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq");
            let admitted = condition("Admitted", "True", "Admitted", "The workload is admitted");
            status["conditions"] = json!([reserved, admitted]);
            let assignment = json!({"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}});
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": [assignment]});
        }
    }
    let template = json!({"metadata": {}, "spec": waiting(release)["spec"]});
    let mut spec = json!({"queueName": "lq", "priority": 0, "active": true,
        "podSets": [{"name": "main", "count": 1, "template": template}]});
    if release == Version::V1beta1 {
        spec["priorityClassSource"] = json!("");
    }
    json!({
        "apiVersion": release.api_version(), "kind": "Workload",
        "metadata": {
            "namespace": "team-a", "name": NAME, "labels": {"kueue.x-k8s.io/job-uid": UID},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"], "ownerReferences": [owner],
        },
        "spec": spec,
        "status": status,
    })
}

/// What Kueue left behind, before any manager of ours.
fn left(release: Version, left: Left, cpu: &str) -> Cluster {
    let mut c = empty(cpu);
    let mut pod = waiting(release);
    if matches!(left, Left::Running | Left::Ended) {
        pod = started(pod, release);
        pod["spec"]["nodeName"] = json!("n");
        let ended = left == Left::Ended;
        pod["status"] = json!({"phase": if ended { "Succeeded" } else { "Running" },
            "conditions": [{"type": "Ready", "status": if ended { "False" } else { "True" }}]});
    }
    c.api.add_pod(pod);
    assert_eq!(c.api.pod("solo").unwrap()["metadata"]["uid"], UID);
    let mut workload = written(release, left);
    convert(&mut workload, Version::V1beta2).unwrap();
    for field in ["apiVersion", "kind"] {
        workload.as_object_mut().unwrap().remove(field);
    }
    c.api.put(Kind::Workload, workload);
    c
}

fn only(c: &Cluster) -> Workload {
    let [workload] = &c.api.workloads()[..] else { unreachable!("{:?}", c.api.workloads()) };
    workload.clone()
}

/// The writes so far that make, change or remove a Workload, or have one of these purposes.
fn changes(c: &Cluster, more: &[Purpose]) -> Vec<Purpose> {
    let of = [Purpose::CreateWorkload, Purpose::DeleteWorkload, Purpose::UpdateWorkload, Purpose::StopJob];
    let purposes = c.writes.iter().map(|(_, purpose)| *purpose);
    purposes.filter(|purpose| of.contains(purpose) || more.contains(purpose)).collect()
}

/// A manager that begins, and the next one: what was there is there, with its admission.
fn taken_over(c: &mut Cluster, more: &[Purpose]) {
    let (before, pod) = (only(c), c.api.pod("solo").unwrap().clone());
    for _ in 0..2 {
        c.restart();
        c.advance(10);
        let now = only(c);
        assert_eq!(now.metadata.uid, before.metadata.uid);
        assert_eq!(now.metadata.name.as_deref(), Some(NAME));
        assert_eq!(now.metadata.owner_references, before.metadata.owner_references);
        assert_eq!(now.spec, before.spec);
        assert_eq!(changes(c, more), [], "{:?}", c.writes);
        let there = c.api.pod("solo").unwrap();
        assert_eq!(there["metadata"]["uid"], pod["metadata"]["uid"]);
        assert!(there["metadata"]["deletionTimestamp"].is_null() && announced(c, "solo").is_empty());
    }
}

#[test]
fn a_workload_of_kueues_for_a_pod_is_read_alike_in_both_versions() {
    for kept in [Left::Made, Left::Waiting, Left::Running] {
        for release in RELEASES {
            let other = RELEASES[usize::from(release == Version::V1beta1)];
            let (before, mut object) = (written(release, kept), written(release, kept));
            convert(&mut object, other).unwrap();
            assert_eq!(object["apiVersion"], other.api_version());
            assert_eq!(object["spec"]["podSets"], before["spec"]["podSets"], "{kept:?}");
            assert_eq!(object["metadata"]["ownerReferences"], before["metadata"]["ownerReferences"]);
            assert_eq!(object["status"]["admission"], before["status"]["admission"], "{kept:?}");
            convert(&mut object, release).unwrap();
            assert_eq!(object, before, "{release} {kept:?}");
        }
    }
}

#[test]
fn a_pod_that_runs_under_kueue_runs_on_with_its_admission() {
    for release in RELEASES {
        let mut c = left(release, Left::Running, "1");
        let (pod, admitted) = (c.api.pod("solo").unwrap().clone(), only(&c).status.unwrap());
        taken_over(&mut c, &[Purpose::ReserveQuota, Purpose::StartJob]);
        assert_eq!(*c.api.pod("solo").unwrap(), pod, "{release}");
        let status = only(&c).status.unwrap();
        assert_eq!(status.admission, admitted.admission, "{release}");
        for type_ in ["QuotaReserved", "Admitted"] {
            let of = |all: &[_]| sluice_api::conditions::find(all, type_).cloned();
            assert_eq!(of(&status.conditions), of(&admitted.conditions), "{release}");
        }
        // It uses all quota; later jobs wait until it ends.
        c.api.add_pod(crate::model::pods::pod("next", "lq", "1"));
        c.settle();
        assert!(c.api.is_gated("next"), "{release}");
        c.api.run_pod("solo", "Succeeded");
        c.settle();
        let of_solo =
            c.api.workloads().into_iter().find(|w| w.metadata.name.as_deref() == Some(NAME)).unwrap();
        assert!(reported(&of_solo, "Finished").starts_with("True/Succeeded"), "{release}");
        assert_eq!(c.api.pod("solo").unwrap()["metadata"]["finalizers"], json!([]), "{release}");
        assert!(c.api.is_free("next"), "{release}");
    }
}

#[test]
fn a_pod_that_waits_under_kueue_waits_on_and_starts_by_the_same_workload() {
    for release in RELEASES {
        for kept in [Left::Made, Left::Waiting] {
            let mut c = left(release, kept, "0");
            taken_over(&mut c, &[Purpose::ReserveQuota, Purpose::StartJob]);
            assert!(c.api.is_gated("solo"), "{release} {kept:?}");
            assert_eq!(condition(&only(&c), "QuotaReserved"), "False", "{release} {kept:?}");

            let mut c = left(release, kept, "1");
            taken_over(&mut c, &[]);
            assert_eq!(condition(&only(&c), "Admitted"), "True", "{release} {kept:?}");
            assert!(c.api.is_free("solo"), "{release} {kept:?}");
            assert_eq!(c.api.pod("solo").unwrap()["spec"]["nodeSelector"], json!({"pool": "default"}));
            assert_eq!(c.notes("Started"), ["Pod/solo: Admitted by clusterQueue cq"]);
        }
    }
}

#[test]
fn what_kueue_began_is_brought_to_its_end() {
    for release in RELEASES {
        // It admitted the Workload, and did not come to take the gate off.
        let mut c = left(release, Left::Admitted, "1");
        let admission = only(&c).status.unwrap().admission;
        taken_over(&mut c, &[Purpose::ReserveQuota]);
        assert!(c.api.is_free("solo"), "{release}");
        assert_eq!(only(&c).status.unwrap().admission, admission, "{release}");
        // The pod ended while no manager was there.
        let mut c = left(release, Left::Ended, "1");
        taken_over(&mut c, &[Purpose::ReserveQuota, Purpose::StartJob]);
        assert!(reported(&only(&c), "Finished").starts_with("True/Succeeded"), "{release}");
        assert_eq!(c.api.pod("solo").unwrap()["metadata"]["finalizers"], json!([]), "{release}");
    }
}

#[test]
fn what_was_taken_over_is_preempted_and_ends_like_any_other() {
    for release in RELEASES {
        let mut c = left(release, Left::Running, "1");
        c.restart();
        c.settle();
        c.pods_vanish = false;
        add_high(&mut c, "1");
        assert!(announced(&c, "solo").starts_with("WorkloadEvictedDueToPreempted: "), "{release}");
        assert!(c.api.is_gated("high"), "{release}: its pod is still there");
        c.pods_vanish = true;
        c.settle();
        assert!(c.api.pod("solo").is_none() && c.api.is_free("high"), "{release}");
        assert_eq!(c.api.workloads().len(), 1, "{release}");
        // Deleted by its user, waiting and running: Kueue's finalizer keeps neither.
        for (kept, cpu) in [(Left::Waiting, "0"), (Left::Running, "1")] {
            let mut c = left(release, kept, cpu);
            c.restart();
            c.settle();
            c.api.delete_queued_pod("solo");
            c.settle();
            assert!(c.api.pods().is_empty() && c.api.workloads().is_empty(), "{release} {kept:?}");
        }
    }
}

/// Its name may be one that another release gave it: it is found by its owner.
#[test]
fn the_workload_of_a_pod_is_found_by_its_owner_whatever_its_name() {
    for release in RELEASES {
        for (kept, runs) in [(Left::Waiting, false), (Left::Running, true)] {
            let mut c = empty(if runs { "1" } else { "0" });
            let mut pod = waiting(release);
            if runs {
                pod = started(pod, release);
                pod["spec"]["nodeName"] = json!("n");
                pod["status"] = json!({"phase": "Running"});
            }
            c.api.add_pod(pod);
            let mut workload = written(release, kept);
            convert(&mut workload, Version::V1beta2).unwrap();
            workload["metadata"]["name"] = json!("pod-solo");
            c.api.put(Kind::Workload, workload);
            c.restart();
            c.advance(10);
            assert_eq!(only(&c).metadata.name.as_deref(), Some("pod-solo"), "{release} {kept:?}");
            assert_eq!(changes(&c, &[]), [], "{release} {kept:?}: {:?}", c.writes);
            assert_eq!(c.api.is_free("solo"), runs, "{release} {kept:?}");
        }
    }
}
