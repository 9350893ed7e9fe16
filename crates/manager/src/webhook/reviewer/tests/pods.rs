//! Which pods count as pods of the job that they name as their controller, while a LocalQueue `default` queues all others.

use super::*;

use sluice_engine::input::Kind;

/// A Workload of an object, admitted.
pub(super) fn admit(facts: &FactStore, kind: JobKind, name: &str, uid: &str) {
    workload(facts, kind, name, uid, &["QuotaReserved", "Admitted"]);
}

/// The Workload of an object with these conditions.
fn workload(facts: &FactStore, kind: JobKind, name: &str, uid: &str, conditions: &[&str]) {
    let condition = |type_: &&str| {
        json!({"type": type_, "status": "True", "reason": "Yes", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let owner = json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name, "uid": uid,
        "controller": true});
    let workload = json!({
        "metadata": {"name": format!("w-{name}"), "namespace": "ns", "ownerReferences": [owner]},
        "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
    });
    let workload: slim::Workload = serde_json::from_value(workload).unwrap();
    facts.note(&Input::Applied(Object::Workload(Box::new(workload))));
}

const EXTERNAL: &str = "Errand.v1.pods.example.com";

/// The namespace `ns` with a LocalQueue `default`.
pub(super) struct Bed {
    pub reviewers: Reviewers,
    pub facts: Arc<FactStore>,
}

impl Bed {
    pub fn new() -> Self {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [pod, \
             batch/job, jobset.x-k8s.io/jobset, kubeflow.org/pytorchjob, kubeflow.org/mpijob, ray.io/rayjob, \
             ray.io/raycluster, workload.codeflare.dev/appwrapper], externalFrameworks: [{EXTERNAL}]}}\n"
        );
        let bed = Self::of(&text);
        let mut queue = LocalQueue::default();
        queue.metadata.namespace = Some("ns".to_owned());
        queue.metadata.name = Some("default".to_owned());
        bed.facts.note(&Input::Applied(Object::LocalQueue(Box::new(queue))));
        bed
    }

    /// With this configuration, and the namespace `ns`.
    pub fn of(text: &str) -> Self {
        let configuration = Configuration::parse(text).unwrap().0;
        let facts = Arc::new(FactStore::of(&configuration.job_kinds(), configuration.external_kinds()));
        let reviewers = Reviewers::new(&configuration, Arc::clone(&facts));
        let mut namespace = slim::Namespace::default();
        namespace.metadata.name = Some("ns".to_owned());
        facts.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
        Self { reviewers, facts }
    }

    /// Shows an object, whose UID is its name.
    pub fn see(&self, kind: JobKind, name: &str, queue: &str, owner: Option<(JobKind, &str)>, more: &Value) {
        let owners = owner.map(|owner| owners(owner.0, owner.1));
        let labels = json!({"kueue.x-k8s.io/queue-name": queue});
        let mut object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels,
            "ownerReferences": owners}});
        object["spec"] = more["spec"].clone();
        object["metadata"]["deletionTimestamp"] = more["metadata"]["deletionTimestamp"].clone();
        self.facts.note(&Input::Applied(Object::Job(Box::new(sluice_jobs::observe(kind, &object)))));
    }

    /// Whether a new pod is taken for one of its controller's.
    fn believes(&self, owner: (JobKind, &str), name: &str, labels: &Value) -> bool {
        let metadata = json!({"name": name, "namespace": "ns", "labels": labels, "ownerReferences": owners(owner.0, owner.1)});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        post(&self.reviewers, "/mutate--v1-pod", &pod)["response"].get("patch").is_none()
    }
}

pub(super) fn owners(kind: JobKind, name: &str) -> Value {
    json!([{"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name, "uid": name, "controller": true}])
}

pub(super) fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})
}

pub(super) fn of_job(uid: &str) -> Value {
    json!({"batch.kubernetes.io/controller-uid": uid})
}

/// A kind, what its object says, and names and labels of pods that it may have made, and of others.
type Case = (JobKind, Value, Vec<(&'static str, Value)>, Vec<(&'static str, Value)>);

fn cases() -> Vec<Case> {
    let replicas = |count: i32| json!({"replicas": count, "template": template()});
    let of_type = |cluster: &str, group: &str, node_type: &str| json!({"ray.io/cluster": cluster, "ray.io/group": group, "ray.io/node-type": node_type});
    let ray = |cluster: &str, group: &str| of_type(cluster, group, "worker");
    vec![
        (
            JobKind::JOB,
            json!({"spec": {"template": template()}}),
            vec![("own-x", of_job("own")), ("any", of_job("own"))],
            vec![("own-x", json!({})), ("own-x", of_job("another"))],
        ),
        (
            JobKind::PYTORCH_JOB,
            json!({"spec": {"pytorchReplicaSpecs": {"Worker": replicas(2)}}}),
            vec![("own-worker-0", json!({})), ("own-worker-1", json!({}))],
            vec![("own-worker-2", json!({})), ("own-master-0", json!({})), ("any", of_job("own"))],
        ),
        (
            JobKind::MPI_JOB,
            json!({"spec": {"mpiReplicaSpecs": {"Launcher": replicas(1), "Worker": replicas(1)}}}),
            vec![("own-worker-0", json!({}))],
            vec![("own-worker-1", json!({})), ("own-launcher-0", json!({})), ("any", json!({}))],
        ),
        (
            JobKind::RAY_CLUSTER,
            json!({"spec": {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
                {"groupName": "small", "replicas": 1, "template": template()}]}}),
            vec![("own-head-x", of_type("own", "headgroup", "head")), ("own-small-x", ray("own", "small"))],
            vec![
                ("own-x", json!({})),
                ("own-x", ray("another", "small")),
                ("own-x", ray("own", "other")),
                ("own-x", ray("own", "SMALL")),
                ("own-x", ray("own", "headgroup")),
                ("own-x", of_type("own", "headgroup", "")),
            ],
        ),
        (JobKind::external(EXTERNAL).unwrap(), json!({"spec": {}}), vec![("any", json!({}))], Vec::new()),
    ]
}

#[test]
fn a_pod_is_believed_if_its_job_is_admitted_and_may_have_made_it() {
    for (kind, object, own, others) in cases() {
        let bed = Bed::new();
        let believed = |expected: bool, why: &str| {
            for (name, labels) in &own {
                assert_eq!(bed.believes((kind, "own"), name, labels), expected, "{kind:?} {name}: {why}");
            }
            for (name, labels) in &others {
                assert!(!bed.believes((kind, "own"), name, labels), "{kind:?} {name} {labels}: {why}");
            }
        };
        believed(false, "it was not seen");
        bed.see(kind, "own", "q", None, &object);
        believed(false, "it has no Workload");
        workload(&bed.facts, kind, "own", "own", &["QuotaReserved"]);
        believed(false, "it waits");
        admit(&bed.facts, kind, "own", "own");
        believed(true, "it is admitted");
        workload(&bed.facts, kind, "own", "own", &["Admitted", "Finished"]);
        believed(false, "it is over");
        admit(&bed.facts, kind, "own", "own");
        bed.see(kind, "own", "", None, &object);
        believed(false, "it is not managed");
    }
}

#[test]
fn pods_of_a_part_run_on_the_quota_of_the_job_above_if_that_may_have_made_the_part() {
    let two = json!([{"name": "main", "replicas": 2, "template": {"spec": {"template": template()}}}]);
    let replicas = json!({"replicas": 1, "template": template()});
    let cases = [
        (JobKind::JOB_SET, json!({"spec": {"replicatedJobs": two}}), &["own-main-0", "own-main-1"][..]),
        (
            JobKind::MPI_JOB,
            json!({"spec": {"mpiReplicaSpecs": {"Launcher": replicas, "Worker": replicas}}}),
            &["own-launcher", "own-worker"][..],
        ),
        (JobKind::RAY_JOB, json!({"spec": {}}), &["own"][..]),
    ];
    for (kind, object, names) in cases {
        let bed = Bed::new();
        bed.see(kind, "own", "q", None, &object);
        for name in [
            "own",
            "own-main-0",
            "own-main-1",
            "own-main-2",
            "own-other-0",
            "own-launcher",
            "own-worker",
            "x",
        ] {
            bed.see(JobKind::JOB, name, "", Some((kind, "own")), &json!({"spec": {"template": template()}}));
            let believed = || bed.believes((JobKind::JOB, name), "any", &of_job(name));
            bed.facts.note(&Input::Listed { kind: Kind::Workload, present: Vec::new(), as_of: None });
            assert!(!believed(), "{kind:?} waits, {name}");
            admit(&bed.facts, kind, "own", "own");
            assert_eq!(believed(), names.contains(&name), "{kind:?} is admitted, {name}");
            assert!(
                !bed.believes((JobKind::JOB, name), "any", &of_job("another")),
                "{kind:?} {name}: a wrong label"
            );
        }
    }
}

/// KubeRay's Job that clears the memory of a cluster that is being deleted.
#[test]
fn pods_of_what_cleans_up_after_a_deleted_cluster_do_not_wait() {
    let bed = Bed::new();
    let spec = json!({"spec": {"headGroupSpec": {"template": template()}}});
    let own = || bed.believes((JobKind::JOB, "own-redis-cleanup"), "any", &of_job("own-redis-cleanup"));
    let cluster = (JobKind::RAY_CLUSTER, "own");
    bed.see(JobKind::RAY_CLUSTER, "own", "q", None, &spec);
    bed.see(JobKind::JOB, "own-redis-cleanup", "", Some(cluster), &json!({"spec": {"template": template()}}));
    assert!(!own());
    let mut leaves = spec;
    leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    bed.see(JobKind::RAY_CLUSTER, "own", "q", None, &leaves);
    assert!(own());
    let labels = json!({"ray.io/cluster": "own", "ray.io/group": "headgroup", "ray.io/node-type": "head"});
    assert!(!bed.believes(cluster, "own-head-x", &labels), "it gets no pods any more");
}
