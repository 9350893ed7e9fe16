//! Helpers of adapters' tests: patches as an API server applies them, the state of a cluster, and objects. Tests through the public interface include
//! this file, too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::{Context, Operation, mutate, validate};

/// Applies a patch as the API server does: conflict on a stale resource version, a new one on every change.
pub fn apply(object: &Value, patch: &Patch) -> Result<Value, String> {
    let mut result = object.clone();
    match patch {
        Patch::Strategic(_) | Patch::Apply(..) => {
            return Err("these tests have no schema to merge by".to_owned());
        }
        Patch::Merge(body) => json_patch::merge(&mut result, body),
        Patch::Json(operations) => {
            let operations: json_patch::Patch =
                serde_json::from_value(json!(operations)).map_err(|error| error.to_string())?;
            json_patch::patch(&mut result, &operations).map_err(|error| error.to_string())?;
        }
    }
    if result["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
        return Err("409 Conflict".to_owned());
    }
    prune(&mut result);
    let mut before = object.clone();
    prune(&mut before);
    if result != before {
        let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        result["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }
    Ok(result)
}

/// Removes what a typed round trip does not keep: nulls and empty maps and lists.
pub fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(prune);
            map.retain(|_, value| !is_nothing(value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// The state of a cluster.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct World {
    pub default_local_queue: bool,
    pub default_priority_class: bool,
    pub manage_all: bool,
    pub managed_owner: bool,
    pub system: bool,
}

impl World {
    pub fn with<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        let name = if self.system { "kube-system" } else { "team-a" };
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        let selector: LabelSelector = Configuration::default().managed_jobs_namespace_selector;
        let gate = sluice_api::gates::Gate::WorkloadPriorityClassDefaulting;
        ask(&Context {
            manage_jobs_without_queue_name: self.manage_all,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: self.default_local_queue,
            default_priority_class: self.default_priority_class,
            managed_owner: self.managed_owner,
            gatherer: None,
            gates: Gates::default().with(gate, true),
        })
    }

    /// The same with a test's gates.
    pub fn with_gates<T>(&self, gates: Gates, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        self.with(|context| ask(&Context { gates, ..*context }))
    }

    pub fn written(&self, kind: JobKind, operation: Operation, object: &Value) -> Value {
        apply(object, &self.with(|context| mutate(kind, operation, object, context))).unwrap()
    }

    pub fn refusals(&self, kind: JobKind, object: &Value, old: Option<&Value>) -> String {
        self.with(|context| match validate(kind, object, old, context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    }
}

/// A suspended batch Job of three pods, with what the Job controller adds to the template.
pub fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "sample", "namespace": "team-a", "uid": "0b6a2f5c", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kueue.x-k8s.io/queue-name": "user-queue", "team": "a"},
            "annotations": {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600", "other.example.com/x": "y"}
        },
        "spec": {
            "suspend": true, "parallelism": 3, "completions": 5,
            "template": {
                "metadata": {"labels": {"app": "x", "job-name": "sample", "controller-uid": "0b6a2f5c",
                    "batch.kubernetes.io/job-name": "sample"}},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
                        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]
                }
            }
        }
    })
}

/// A JobSet with two replicated jobs, as the page on multislices has them: quantities are numbers, metadata is absent.
pub fn jobset() -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {
            "name": "multislice", "namespace": "default", "uid": "6d0f2a3e", "resourceVersion": "11",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"kueue.x-k8s.io/queue-name": "multislice-queue",
                "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
        },
        "spec": {
            "suspend": true,
            "replicatedJobs": [
                {"name": "Slice", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 2, "template": {
                    "spec": {"containers": [{"name": "jax", "image": "i", "resources": {"limits": {"google.com/tpu": 4}}}]}}}}},
                {"name": "driver", "template": {"spec": {"template": {
                    "metadata": {"annotations": {"a": "b"}},
                    "spec": {"nodeSelector": {"x": "y"}, "priorityClassName": "high",
                        "containers": [{"name": "d", "image": "i"}]}}}}}
            ]
        }
    })
}

/// The kind that an object says it is.
fn kind_of(object: &Value) -> JobKind {
    let text = |key: &str| object[key].as_str().unwrap();
    JobKind::from_owner(text("apiVersion"), text("kind")).unwrap()
}

/// The answer of the mutating webhook.
pub fn mutate_object(operation: Operation, object: &Value, context: &Context<'_>) -> Patch {
    mutate(kind_of(object), operation, object, context)
}

/// A value that is invalid for most fields.
pub fn junk() -> impl proptest::strategy::Strategy<Value = Value> {
    proptest::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!(1.5),
        json!("x"),
        json!([]),
        json!([null, 1, {"name": 5}]),
        json!({}),
        json!({"name": [], "spec": 1, "template": {}}),
    ])
}

/// The comparable part of a written object.
pub fn pruned(mut object: Value) -> Value {
    prune(&mut object);
    object["metadata"]["resourceVersion"] = Value::Null;
    object
}

/// The additions of starts to the templates of a Job or a JobSet, and what stops restore.
pub mod starts {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate, Toleration};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use sluice_api::job::{JobView, PodScheduling, PodSetInfo};
    use sluice_jobs::Step;

    use super::prune;

    pub fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn toleration(key: &str) -> Toleration {
        Toleration { key: Some(key.to_owned()), operator: Some("Exists".to_owned()), ..Toleration::default() }
    }

    fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
    }

    /// The additions of admission to a pod set.
    pub fn addition(name: &str, count: i32) -> PodSetInfo {
        PodSetInfo {
            name: name.to_owned(),
            count,
            scheduling: PodScheduling {
                labels: map(&[("kueue.x-k8s.io/podset", name)]),
                node_selector: map(&[("cloud.google.com/gke-nodepool", "pool-a")]),
                tolerations: vec![toleration("google.com/tpu"), toleration("a")],
                ..PodScheduling::default()
            },
        }
    }

    /// What the engine restores: the Workload's templates, which lack the labels that the Job controller generates.
    pub fn originals(view: &JobView) -> Vec<PodSetInfo> {
        let original = |set: &sluice_api::job::JobPodSet| {
            let mut scheduling = set.scheduling.clone();
            let generated = ["job-name", "controller-uid", "batch.kubernetes.io/controller-uid"];
            scheduling.labels.retain(|key, _| !generated.contains(&key.as_str()));
            PodSetInfo { name: set.name.clone(), count: set.count, scheduling }
        };
        view.pod_sets.iter().map(original).collect()
    }

    pub fn steps(steps: &[Step]) -> Value {
        json!(
            steps
                .iter()
                .map(|step| json!({"subresource": step.subresource, "type": step.patch.content_type(),
            "body": step.patch.body()}))
                .collect::<Vec<_>>()
        )
    }

    pub fn scheduling(prefix: &'static str) -> impl Strategy<Value = PodScheduling> {
        let tolerations = prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 0..3);
        let gates = prop::collection::vec(prop::sample::select(vec!["g", "h"]), 0..2);
        (keys(prefix), keys(prefix), keys(prefix), tolerations, gates, affinity(prefix)).prop_map(
            |(labels, annotations, node_selector, t, g, affinity)| PodScheduling {
                labels,
                annotations,
                node_selector,
                tolerations: t.into_iter().map(toleration).collect(),
                scheduling_gates: g
                    .into_iter()
                    .map(|name| PodSchedulingGate { name: name.to_owned() })
                    .collect(),
                affinity,
            },
        )
    }

    /// An affinity with each of its parts there or not.
    fn affinity(key: &'static str) -> impl Strategy<Value = Option<Box<Affinity>>> {
        (0..32_u8).prop_map(move |parts| {
            let has = |part: u8| parts & part != 0;
            let term = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
            let mut affinity = json!({});
            if has(2) {
                affinity["nodeAffinity"] = json!({});
            }
            if has(4) {
                affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!({"nodeSelectorTerms": [term]});
            }
            if has(8) {
                affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                    json!([{"weight": 1, "preference": term}]);
            }
            if has(16) {
                affinity["podAntiAffinity"] =
                    json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]});
            }
            has(1).then(|| serde_json::from_value(affinity).unwrap())
        })
    }

    /// A template with this scheduling, in the form that a user may have written.
    pub fn template(scheduling: &PodScheduling, with_metadata: bool) -> Value {
        let mut template = json!({
            "metadata": {"labels": scheduling.labels, "annotations": scheduling.annotations},
            "spec": {"nodeSelector": scheduling.node_selector, "tolerations": scheduling.tolerations,
                "schedulingGates": scheduling.scheduling_gates, "affinity": scheduling.affinity, "containers": [{"name": "c", "image": "i"}]}
        });
        if with_metadata {
            template["spec"].as_object_mut().unwrap().retain(|key, value| {
                *value != json!([]) && !value.is_null() && (*value != json!({}) || key == "affinity")
            });
            template["metadata"].as_object_mut().unwrap().retain(|_, value| *value != json!({}));
        } else {
            prune(&mut template);
        }
        template
    }

    /// An affinity to nodes without a label, as it is added at start.
    pub fn avoiding() -> PodSetInfo {
        let term = json!([{"weight": 100,
            "preference": {"matchExpressions": [{"key": "maintenance", "operator": "DoesNotExist"}]}}]);
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term}});
        let affinity = Some(Box::new(serde_json::from_value::<Affinity>(affinity).unwrap()));
        PodSetInfo {
            name: "main".to_owned(),
            count: 3,
            scheduling: PodScheduling { affinity, ..PodScheduling::default() },
        }
    }
}

/// Objects of Ray's kinds.
pub mod ray {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use sluice_api::job::{JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo};
    use sluice_jobs::observe;

    /// Each kind with the place of its cluster's spec.
    pub const KINDS: [(JobKind, &str); 3] = [
        (JobKind::RAY_CLUSTER, "/spec"),
        (JobKind::RAY_JOB, "/spec/rayClusterSpec"),
        (JobKind::RAY_SERVICE, "/spec/rayClusterConfig"),
    ];

    pub fn template(image: &str) -> Value {
        json!({"spec": {"nodeSelector": {"type": image},
            "containers": [{"name": "ray", "image": image, "resources": {"requests": {"cpu": "1"}}}]}})
    }

    /// A head, two workers of one group, and six of another: three replicas of two hosts.
    pub fn cluster() -> Value {
        json!({
            "headGroupSpec": {"template": template("head")},
            "workerGroupSpecs": [
                {"groupName": "Small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "template": template("small")},
                {"groupName": "hosts", "replicas": 3, "numOfHosts": 2, "minReplicas": 1, "template": template("hosts")},
            ],
        })
    }

    /// A suspended object of the kind.
    pub fn ray(kind: JobKind) -> Value {
        let mut spec = cluster();
        spec["suspend"] = json!(true);
        if kind == JobKind::RAY_JOB {
            spec = json!({
                "suspend": true, "entrypoint": "python train.py", "shutdownAfterJobFinishes": true,
                "submissionMode": "K8sJobMode", "rayClusterSpec": cluster(),
            });
        } else if kind == JobKind::RAY_SERVICE {
            spec = json!({"serveConfigV2": "", "rayClusterConfig": spec});
        }
        json!({
            "apiVersion": "ray.io/v1", "kind": kind.kind(),
            "metadata": {"name": "train", "namespace": "team-a", "uid": "5e1f", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
            "spec": spec,
        })
    }

    pub fn place(kind: JobKind) -> &'static str {
        KINDS.iter().find(|(one, _)| *one == kind).unwrap().1
    }

    /// The view of an object of the kind that was changed by `change`, which gets it and the spec of its cluster.
    pub fn changed(kind: JobKind, change: impl Fn(&mut Value)) -> JobView {
        let mut object = ray(kind);
        change(object.pointer_mut(place(kind)).unwrap());
        observe(kind, &object)
    }

    pub fn with_status(kind: JobKind, status: Value) -> JobView {
        let mut object = ray(kind);
        object["status"] = status;
        observe(kind, &object)
    }

    /// What a stop restores in each pod set.
    pub fn originals(view: &JobView) -> Vec<PodSetInfo> {
        let info = |set: &JobPodSet| PodSetInfo {
            name: set.name.clone(),
            count: set.count,
            scheduling: set.scheduling.clone(),
        };
        view.pod_sets.iter().map(info).collect()
    }

    /// The additions of admission to each pod set.
    pub fn additions(view: &JobView, flavor: &str) -> Vec<PodSetInfo> {
        let info = |set: &JobPodSet| PodSetInfo {
            name: set.name.clone(),
            count: set.count,
            scheduling: PodScheduling {
                labels: BTreeMap::from([("kueue.x-k8s.io/podset".to_owned(), set.name.clone())]),
                node_selector: BTreeMap::from([("flavor".to_owned(), flavor.to_owned())]),
                ..PodScheduling::default()
            },
        };
        view.pod_sets.iter().map(info).collect()
    }
}

/// Jobs of Kubeflow's kinds.
pub mod kubeflow {
    use serde_json::{Value, json};
    use sluice_api::job::JobKind;

    /// Each kind with its field and its replica types, in the order of its pod sets.
    pub const KINDS: [(JobKind, &str, &[&str]); 6] = [
        (JobKind::JAX_JOB, "jaxReplicaSpecs", &["Worker"]),
        (JobKind::MPI_JOB, "mpiReplicaSpecs", &["Launcher", "Worker"]),
        (JobKind::PADDLE_JOB, "paddleReplicaSpecs", &["Master", "Worker"]),
        (JobKind::PYTORCH_JOB, "pytorchReplicaSpecs", &["Master", "Worker"]),
        (JobKind::TF_JOB, "tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"]),
        (JobKind::XGBOOST_JOB, "xgbReplicaSpecs", &["Master", "Worker"]),
    ];

    /// A suspended job of the kind: the first of its types has one pod, the second two, and so on.
    pub fn job((kind, field, types): (JobKind, &str, &[&str])) -> Value {
        let spec = |(index, name): (usize, &&str)| {
            let template = json!({"spec": {"nodeSelector": {"type": name},
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
            (
                (*name).to_owned(),
                json!({"replicas": index + 1, "restartPolicy": "Never", "template": template}),
            )
        };
        let specs: serde_json::Map<_, _> = types.iter().enumerate().map(spec).collect();
        json!({
            "apiVersion": kind.api_version(), "kind": kind.kind(),
            "metadata": {"name": "train", "namespace": "team-a", "uid": "5e1f", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
            "spec": {"runPolicy": {"suspend": true, "cleanPodPolicy": "All"}, field: specs},
        })
    }
}

/// Objects that serve, and their pods.
pub mod serving {
    use serde_json::{Value, json};
    use sluice_jobs::webhook::{PodSelectors, mutate_plain_pod};

    use super::{World, apply};

    const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

    pub fn deployment(labels: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": labels},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
                },
            },
        })
    }

    pub fn changed(object: &Value, pointer: &str, value: Value) -> Value {
        let mut object = object.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    }

    /// A pod as its ReplicaSet makes it.
    pub fn replica(labels: &Value, parent: Option<&str>) -> Value {
        let annotations = parent.map(|parent| json!({PARENT: parent}));
        json!({
            "metadata": {"name": "web-1", "namespace": "team-a", "resourceVersion": "1", "labels": labels,
                "annotations": annotations},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        })
    }

    pub fn made(world: &World, pod: &Value, implied: bool) -> Value {
        let selectors = PodSelectors { implied, ..PodSelectors::default() };
        apply(pod, &world.with(|context| mutate_plain_pod(pod, context, &selectors))).unwrap()
    }
}
