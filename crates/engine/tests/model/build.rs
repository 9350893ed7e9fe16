//! Short ways to make objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sluice_api::job::{ControllerRef, JobKind, JobPodSet, JobRef, JobView, PodScheduling, Wrapped};
use sluice_engine::{Kind, ObjectRef};

use super::Api;

/// A pod template that asks for cpu.
pub fn template(cpu: &str) -> PodTemplateSpec {
    let requests = BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]);
    let container = Container {
        name: "main".to_owned(),
        image: Some("busybox".to_owned()),
        resources: Some(ResourceRequirements { requests: Some(requests), ..Default::default() }),
        ..Default::default()
    };
    PodTemplateSpec {
        metadata: None,
        spec: Some(PodSpec { containers: vec![container], ..Default::default() }),
    }
}

/// A pod set of a job.
pub fn pod_set(name: &str, count: i32, cpu: &str) -> JobPodSet {
    let template = template(cpu);
    JobPodSet {
        name: name.to_owned(),
        written_name: None,
        count,
        parts: 1,
        min_count: None,
        containers_hash: sluice_api::names::containers_hash(template.spec.as_ref().unwrap()),
        requests_hash: sluice_api::names::requests_hash(template.spec.as_ref().unwrap()),
        part_hash: None,
        kueues_hash: None,
        template: Some(Arc::new(template)),
        scheduling: PodScheduling::default(),
        has_template_metadata: true,
        unwritten: None,
        exclusive_topology: None,
        topology_request: None,
        wrapped: None,
    }
}

/// An object that an AppWrapper wraps.
pub fn wrapped(kind: JobKind, name: &str) -> Arc<Wrapped> {
    Arc::new(Wrapped {
        index: 0,
        api_version: kind.api_version().to_owned(),
        kind: kind.kind().to_owned(),
        name: name.to_owned(),
        generates_name: false,
        sizes: None,
    })
}

/// The reference of an object to the job whose controller made it.
pub fn made_by(job: &JobView) -> ControllerRef {
    let JobRef { kind, name, uid, .. } = &job.job;
    ControllerRef {
        api_version: kind.api_version().to_owned(),
        kind: kind.kind().to_owned(),
        name: name.to_string(),
        uid: uid.to_string(),
    }
}

/// A suspended batch Job with one pod set.
pub fn job(namespace: &str, name: &str, queue: &str, count: i32, cpu: &str) -> JobView {
    JobView {
        job: JobRef {
            kind: JobKind::JOB,
            namespace: namespace.into(),
            name: name.into(),
            group: None,
            uid: "".into(),
        },
        resource_version: String::new(),
        generation: 1,
        created: Timestamp::UNIX_EPOCH,
        deleting: false,
        queue_name: Some(queue.to_owned()).filter(|q| !q.is_empty()),
        workload_priority_class: None,
        pod_priority_class: None,
        prebuilt_workload: None,
        maximum_execution_time_seconds: None,
        active_deadline_seconds: None,
        restarts: 0,
        admission_gated_by: None,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        controller: None,
        managed_by: None,
        suspended: true,
        stopping: false,
        stop_waits: false,
        suspended_condition: None,
        observed_generation: None,
        active: false,
        activity_unknown: false,
        status_unread: false,
        active_pods: 0,
        terminating: 0,
        spare_failures: Some(6),
        ending: false,
        end_blocked: false,
        completions_equal: false,
        started: false,
        finished: None,
        pods_ready: false,
        ready: 0,
        reclaimable: Vec::new(),
        running: Vec::new(),
        pod_sets: vec![pod_set("main", count, cpu)],
        groups: None,
        may_clean_up: false,
        skipped: false,
        slim: false,
        part_names: Vec::new(),
        leaves_pods: false,
        pod_selector: None,
        autoscaled: false,
        template: None,
        on_hold: None,
        invalid: None,
    }
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "finalizers": ["kueue.x-k8s.io/resource-in-use"]})
}

impl Api {
    pub fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        self.put(Kind::Namespace, json!({"metadata": {"name": name, "labels": labels}}));
    }

    pub fn flavor(&mut self, name: &str, labels: &[(&str, &str)]) -> ObjectRef {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        self.put(Kind::ResourceFlavor, json!({"metadata": metadata(name), "spec": {"nodeLabels": labels}}))
    }

    /// A ClusterQueue with one flavor and cpu, selecting all namespaces; `more` is merged into its spec.
    pub fn cluster_queue(&mut self, name: &str, flavor: &str, cpu: &str, more: &Value) -> ObjectRef {
        let mut spec = json!({
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
            }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.put(Kind::ClusterQueue, json!({"metadata": metadata(name), "spec": spec}))
    }

    pub fn local_queue(&mut self, namespace: &str, name: &str, cluster_queue: &str) -> ObjectRef {
        self.put(
            Kind::LocalQueue,
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue}}),
        )
    }

    /// A check of another controller, active.
    pub fn active_check(&mut self, name: &str) {
        let check = self.put(
            Kind::AdmissionCheck,
            json!({"metadata": {"name": name}, "spec": {"controllerName": "example.com/x"}}),
        );
        let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        self.edit_status(&check, |s| *s = json!({"conditions": active}));
    }

    pub fn priority_class(&mut self, name: &str, value: i32) {
        self.put(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
    }

    /// One flavor, one ClusterQueue `cq` and a LocalQueue `lq` in `team-a` that leads to it.
    pub fn simple(&mut self, cpu: &str, more: &Value) {
        self.flavor("default", &[("pool", "default")]);
        self.cluster_queue("cq", "default", cpu, more);
        self.local_queue("team-a", "lq", "cq");
    }
}

/// Takes what the template of a new pod set says of where its pods may go, unless the pod set says it.
pub(super) fn read_places(set: &mut JobPodSet) {
    let Some(spec) = set.template.as_ref().and_then(|template| template.spec.as_ref()) else { return };
    let own = &mut set.scheduling;
    if own.node_selector.is_empty() && own.tolerations.is_empty() && own.affinity.is_none() {
        own.node_selector = spec.node_selector.clone().unwrap_or_default();
        own.tolerations = spec.tolerations.clone().unwrap_or_default();
        own.affinity = spec.affinity.clone().map(Box::new);
    }
}

/// The template of a pod set says where its pods may go.
pub(super) fn place(set: &mut JobPodSet) {
    let Some(template) = &mut set.template else { return };
    let own = &set.scheduling;
    let selector = Some(own.node_selector.clone()).filter(|map| !map.is_empty());
    let tolerations = Some(own.tolerations.clone()).filter(|list| !list.is_empty());
    let says = template.spec.as_ref().is_none_or(|spec| {
        let affinity = spec.affinity.as_ref() == own.affinity.as_deref();
        spec.node_selector == selector && spec.tolerations == tolerations && affinity
    });
    if !says && let Some(spec) = Arc::make_mut(template).spec.as_mut() {
        (spec.node_selector, spec.tolerations) = (selector, tolerations);
        spec.affinity = own.affinity.as_deref().cloned();
    }
}
