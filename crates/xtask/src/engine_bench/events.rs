//! One object of each kind that the largest world lacks at its beginning.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_engine::input::{Input, Object};

use super::big;

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the object decodes")
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z"})
}

/// A pod template that asks for one CPU.
fn template() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"containers": [container], "restartPolicy": "Never"}})
}

/// A job in the queue of this number.
fn job(kind: JobKind, queue: usize, spec: &Value) -> Object {
    let mut metadata = metadata(&format!("{}-{queue}", kind.kind().to_lowercase()), Some(&namespace(queue)));
    metadata["labels"] = json!({"kueue.x-k8s.io/queue-name": format!("lq-{queue}")});
    let object =
        json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "metadata": metadata, "spec": spec});
    Object::Job(Box::new(sluice_jobs::observe(kind, &object)))
}

fn namespace(queue: usize) -> String {
    big::local_queue(queue).object().object_ref().namespace.to_string()
}

/// A Workload whose priority was raised.
pub fn urgent(workload: Object) -> Object {
    let Object::Workload(mut workload) = workload else { return workload };
    Arc::make_mut(&mut workload.spec).priority = Some(100);
    workload.metadata.generation = Some(2);
    Object::Workload(workload)
}

/// Inputs, each with its name in the table; those that belong to a queue belong to the one of this number.
pub fn of_other_kinds(queue: usize) -> Vec<(&'static str, Input)> {
    let here = namespace(queue);
    let named = |name: &str| metadata(name, Some(&here));
    let replicated = json!([{"name": "main", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}}]);
    let status = json!({"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let mut node = metadata("node", None);
    node["labels"] = json!({"pool": "a"});
    let mut labelled = metadata(&here, None);
    labelled["labels"] = json!({"team": "other"});
    let mut pod = template();
    pod["spec"]["nodeName"] = json!("node");
    let limits = json!([{"type": "Container", "default": {"memory": "1Gi"}}]);
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]);
    let provisioned = json!([{"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let config = json!({"provisioningClassName": "queued-provisioning.gke.io", "managedResources": ["nvidia.com/gpu"]});
    let mut gated = named("job-pod");
    gated["labels"] = json!({"kueue.x-k8s.io/podset": "main"});
    let mut gated_spec = template()["spec"].take();
    gated_spec["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/topology"}]);
    let runtime_job = json!({"name": "node", "template": {"spec": {"template": template()}}});
    let runtime = json!({"metadata": metadata("torch", None), "spec": {"template": {"spec": {"replicatedJobs": [runtime_job]}}}});
    let objects = [
        (
            "event: Job",
            job(JobKind::JOB, queue, &json!({"suspend": true, "parallelism": 2, "template": template()})),
        ),
        (
            "event: JobSet",
            job(JobKind::JOB_SET, queue, &json!({"suspend": true, "replicatedJobs": replicated})),
        ),
        ("event: Node", Object::Node(typed(json!({"metadata": node, "spec": {}, "status": status})))),
        (
            "event: Pod",
            Object::Pod(typed(
                json!({"metadata": named("pod"), "spec": pod["spec"], "status": {"phase": "Running"}}),
            )),
        ),
        ("event: Namespace", Object::Namespace(typed(json!({"metadata": labelled})))),
        (
            "event: WorkloadPriorityClass",
            Object::WorkloadPriorityClass(typed(json!({"metadata": metadata("high", None), "value": 100}))),
        ),
        (
            "event: PriorityClass",
            Object::PriorityClass(typed(json!({"metadata": metadata("urgent", None), "value": 1_000}))),
        ),
        (
            "event: LimitRange",
            Object::LimitRange(typed(json!({"metadata": named("limits"), "spec": {"limits": limits}}))),
        ),
        (
            "event: RuntimeClass",
            Object::RuntimeClass(typed(
                json!({"metadata": metadata("sandbox", None), "overhead": {"podFixed": {"cpu": "1"}}}),
            )),
        ),
        (
            "event: Topology",
            Object::Topology(typed(json!({"metadata": metadata("dc", None), "spec": {"levels": levels}}))),
        ),
        (
            "event: ProvisioningRequest",
            Object::ProvisioningRequest(typed(
                json!({"metadata": named("request"), "spec": {}, "status": {"conditions": provisioned}}),
            )),
        ),
        (
            "event: ProvisioningRequestConfig",
            Object::ProvisioningRequestConfig(typed(
                json!({"metadata": metadata("dws", None), "spec": config}),
            )),
        ),
        (
            "event: JobPod",
            Object::JobPod(typed(json!({"metadata": gated, "spec": gated_spec, "status": {}}))),
        ),
        (
            "event: Template",
            Object::Template(Box::new(sluice_jobs::template(
                TemplateKind::CLUSTER_TRAINING_RUNTIME,
                &runtime,
            ))),
        ),
    ];
    objects.into_iter().map(|(name, object)| (name, Input::Applied(object))).collect()
}
