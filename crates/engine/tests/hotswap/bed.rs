//! A cluster of TPU slices: node pools that fail and return, JobSets that take whole pools, and a scheduler that binds their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sluice_api::job::{ExclusiveTopology, JobKind, JobPodSet, JobRef, JobView};
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::model::build::job;
use crate::model::{Cluster, reported};

/// The label that makes pools.
pub const POOL: &str = "cloud.google.com/gke-nodepool";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The resource that all jobs ask for.
pub const TPU: &str = "google.com/tpu";

/// A cluster with nodes.
pub struct Bed {
    pub c: Cluster,
    /// Machines that are not ready do not end pods, as if they were dead.
    pub machines_die: bool,
    /// The API server does not get to know the end of pods on machines that are not ready.
    pub ends_are_seen_late: bool,
    /// Those pods.
    old_pods: BTreeSet<ObjectRef>,
}

impl Bed {
    /// One flavor `tpu`, two priorities, and the namespace `team-a`.
    pub fn new() -> Self {
        Self::with(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() })
    }

    /// With another configuration.
    pub fn with(config: EngineConfig) -> Self {
        let mut c = Cluster::new(config);
        c.pods_vanish = false;
        c.api.namespace("team-a", &[]);
        c.api.flavor("tpu", &[("accelerator", "v6e")]);
        c.api.priority_class("low", 1_000_000);
        c.api.priority_class("high", 2_000_000);
        Self { c, machines_die: false, ends_are_seen_late: false, old_pods: BTreeSet::new() }
    }

    /// A ClusterQueue with a LocalQueue of its name; `more` is merged into the spec.
    pub fn queue(&mut self, name: &str, chips: i64, reclaim: &Value, more: &Value) {
        let mut spec = json!({
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Never", "reclaimOutOfCohort": reclaim},
            "resourceGroups": [{
                "coveredResources": [TPU],
                "flavors": [{"name": "tpu", "resources": [{"name": TPU, "nominalQuota": chips}]}],
            }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.c.api.put(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec}));
        self.c.api.local_queue("team-a", name, name);
    }

    /// The page's four pools, and its two JobSets with two of them each, by these queues.
    pub fn high_and_low(&mut self, [high, low]: [&str; 2]) {
        self.pools(&["a", "b", "c", "d"], 4);
        self.jobset("high", high, "high", 2);
        self.settle();
        self.jobset("low", low, "low", 2);
        self.pass(3);
    }

    /// The flavor's nodes have a topology: pools, which are racks, and nodes.
    pub fn topology(&mut self) {
        let levels = json!({"levels": [{"nodeLabel": POOL}, {"nodeLabel": HOSTNAME}]});
        self.c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": levels}));
        let tolerations = json!([{"key": TPU, "operator": "Exists"}]);
        let flavor = ObjectRef::cluster(Kind::ResourceFlavor, "tpu");
        self.c.api.edit(&flavor, &json!({"spec": {"topologyName": "dc", "tolerations": tolerations}}));
    }

    /// The page's queue with that many chips.
    pub fn page_queue(&mut self, chips: i64) {
        self.queue("q", chips, &json!({"enable": true}), &json!({}));
    }

    /// Pools of nodes with four chips each, tainted as GKE taints them, all ready.
    pub fn pools(&mut self, names: &[&str], nodes: usize) {
        for pool in names {
            for index in 0..nodes {
                let name = format!("{pool}-{index}");
                let labels = json!({"accelerator": "v6e", POOL: pool, HOSTNAME: name});
                let node = json!({"metadata": {"name": name, "labels": labels},
                    "spec": {"taints": [{"key": TPU, "value": "present", "effect": "NoSchedule"}]},
                    "status": {"allocatable": {TPU: "4", "pods": "110"}}});
                let node = self.c.api.put(Kind::Node, node);
                self.ready(&node, "True");
            }
        }
    }

    /// Sets the condition Ready.
    pub fn ready(&mut self, node: &ObjectRef, status: &str) {
        let at = self.c.now.to_string();
        let condition = json!([{"type": "Ready", "status": status, "lastTransitionTime": at}]);
        self.c.api.edit_status(node, |s| s["conditions"] = condition);
    }

    /// The nodes of pools.
    pub fn nodes_of(&self, pools: &[&str]) -> Vec<ObjectRef> {
        let nodes = self.c.api.names(Kind::Node).into_iter();
        nodes.filter(|n| pools.iter().any(|p| n.name.starts_with(&format!("{p}-")))).collect()
    }

    /// Pools stop answering.
    pub fn fail(&mut self, pools: &[&str]) {
        for node in self.nodes_of(pools) {
            self.ready(&node, "Unknown");
        }
    }

    /// Pools are well again.
    pub fn come_back(&mut self, pools: &[&str]) {
        for node in self.nodes_of(pools) {
            self.ready(&node, "True");
        }
    }

    /// Submits a JobSet of `slices` slices of four pods with four chips, each slice a pool.
    pub fn jobset(&mut self, name: &str, queue: &str, priority: &str, slices: i32) {
        self.sized_jobset(name, queue, priority, slices, 4);
    }

    /// The same with `pods` pods per slice.
    pub fn sized_jobset(&mut self, name: &str, queue: &str, priority: &str, slices: i32, pods: i32) {
        let exclusive = ExclusiveTopology { key: POOL.to_owned(), replicas: slices };
        self.submit((name, queue, priority), slices * pods, 4, |set| {
            set.exclusive_topology = Some(exclusive);
        });
    }

    /// Submits a JobSet of `pods` pods with `chips` chips each, all of them in one pool, on the nodes that the core assigns.
    pub fn placed_jobset(&mut self, name: &str, priority: &str, pods: i32, chips: i32) {
        self.placed_jobset_in((name, "q", priority), pods, chips);
    }

    /// The same with this name, queue and priority.
    pub fn placed_jobset_in(&mut self, submitted: (&str, &str, &str), pods: i32, chips: i32) {
        let required = Some(POOL.to_owned());
        let request = PodSetTopologyRequest { required, ..PodSetTopologyRequest::default() };
        self.submit(submitted, pods, chips, |set| set.topology_request = Some(Box::new(request)));
    }

    /// Submits a JobSet of `pods` pods with `chips` chips each, wherever there is room.
    pub fn plain_jobset(&mut self, name: &str, priority: &str, pods: i32, chips: i32) {
        self.submit((name, "q", priority), pods, chips, |_| {});
    }

    fn submit(
        &mut self,
        (name, queue, priority): (&str, &str, &str),
        count: i32,
        chips: i32,
        change: impl FnOnce(&mut JobPodSet),
    ) {
        let limits = BTreeMap::from([(TPU.to_owned(), Quantity(chips.to_string()))]);
        let resources = ResourceRequirements { limits: Some(limits), ..ResourceRequirements::default() };
        let container =
            Container { name: "jax".to_owned(), resources: Some(resources), ..Container::default() };
        let template = PodTemplateSpec {
            metadata: None,
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
        };
        let plain = job("team-a", name, queue, 1, "1");
        let mut set = JobPodSet {
            name: "slice".to_owned(),
            count,
            containers_hash: sluice_api::names::containers_hash(template.spec.as_ref().unwrap()),
            requests_hash: sluice_api::names::requests_hash(template.spec.as_ref().unwrap()),
            part_hash: None,
            kueues_hash: None,
            template: Some(Arc::new(template)),
            ..plain.pod_sets[0].clone()
        };
        change(&mut set);
        self.c.api.add_job(JobView {
            job: JobRef { kind: JobKind::JOB_SET, ..plain.job.clone() },
            workload_priority_class: Some(priority.to_owned()),
            pod_sets: vec![set],
            ..plain
        });
    }

    /// Lets everything happen that happens at once: the engine, the kubelets, the scheduler. Then a second passes.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            self.c.settle();
            let stopped = self.stop_pods();
            let started = self.start_pods();
            if !stopped && !started {
                return;
            }
            self.c.advance(1);
        }
        panic!("pods come and go without end");
    }

    /// Time passes, a second at a time.
    pub fn pass(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.settle();
            self.c.advance(1);
        }
        self.settle();
    }

    /// Pods of suspended jobs end.
    fn stop_pods(&mut self) -> bool {
        let suspended: BTreeSet<_> =
            self.c.api.jobs().filter(|(_, j)| j.view.suspended).map(|(r, _)| r.name.to_string()).collect();
        let gone: Vec<_> = self.pods().into_iter().filter(|(job, _, _)| suspended.contains(job)).collect();
        let mut any = false;
        for (_, node, pod) in &gone {
            let node = ObjectRef::cluster(Kind::Node, node.as_str());
            if self.ends_are_seen_late && !self.is_ready(&node) {
                self.old_pods.insert(pod.clone());
            } else if !self.machines_die || self.is_ready(&node) {
                self.c.api.delete(pod);
                any = true;
            } else if !self.leaves(pod) {
                let at = self.c.now.to_string();
                self.c.api.edit(pod, &json!({"metadata": {"deletionTimestamp": at}}));
                any = true;
            }
        }
        self.c.api.pods_vanish() || any
    }

    /// Whether a pod is being deleted.
    fn leaves(&self, pod: &ObjectRef) -> bool {
        let value = self.c.api.json(pod);
        self.old_pods.contains(pod)
            || value.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    }

    /// Pods: the job, the node, the object.
    pub fn pods(&self) -> Vec<(String, String, ObjectRef)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = self.c.api.names(Kind::Pod).into_iter();
        pods.map(|pod| {
            let value = self.c.api.json(&pod).unwrap();
            let job = text(&value["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]);
            (job, text(&value["spec"]["nodeName"]), pod)
        })
        .collect()
    }

    /// The pools that a job's pods are on.
    pub fn pools_of(&self, job: &str) -> Vec<String> {
        let on: BTreeSet<_> = self.pods().into_iter().filter(|(owner, _, _)| owner == job).collect();
        let pools: BTreeSet<_> =
            on.iter().map(|(_, node, _)| node.rsplit_once('-').unwrap().0.to_owned()).collect();
        pools.into_iter().collect()
    }

    fn is_ready(&self, node: &ObjectRef) -> bool {
        let value = self.c.api.json(node).unwrap();
        let departs = value["metadata"]["labels"]["cloud.google.com/active-node-maintenance"] == "true";
        value["status"]["conditions"][0]["status"] == "True"
            && value["spec"]["unschedulable"] != true
            && value["spec"]["taints"].as_array().into_iter().flatten().all(|taint| taint["key"] == TPU)
            && !departs
    }

    /// Binds the pods of each running job that has none: a free pool per slice, or nothing.
    fn start_pods(&mut self) -> bool {
        let running: Vec<_> = self
            .c
            .api
            .jobs()
            .filter(|(_, j)| !j.view.suspended && j.view.finished.is_none())
            .map(|(r, j)| (r.name.to_string(), j.view.pod_sets[0].clone()))
            .collect();
        let pods = self.pods();
        let placed: BTreeSet<_> =
            pods.iter().filter(|(_, _, pod)| !self.leaves(pod)).map(|(job, _, _)| job.clone()).collect();
        let mut busy: BTreeSet<_> = pods.into_iter().map(|(_, node, _)| node).collect();
        let mut pools: BTreeMap<String, Vec<ObjectRef>> = BTreeMap::new();
        for node in self.c.api.names(Kind::Node) {
            pools.entry(node.name.rsplit_once('-').unwrap().0.to_owned()).or_default().push(node);
        }
        let mut any = false;
        for (name, set) in running.into_iter().filter(|(name, _)| !placed.contains(name)) {
            let selected = |node: &ObjectRef| {
                let labels = self.c.api.json(node).unwrap()["metadata"]["labels"].clone();
                set.scheduling.node_selector.iter().all(|(key, value)| labels[key] == **value)
            };
            let Some(replicas) = set.exclusive_topology.as_ref().map(|groups| groups.replicas) else {
                any |= self.bind_assigned(&name);
                continue;
            };
            let each = usize::try_from(set.count / replicas).unwrap();
            let free = pools.values().filter(|nodes| {
                nodes.len() >= each
                    && nodes.iter().all(|n| !busy.contains(&*n.name) && self.is_ready(n) && selected(n))
            });
            let chosen: Vec<_> = free.take(usize::try_from(replicas).unwrap()).cloned().collect();
            if chosen.len() < usize::try_from(replicas).unwrap() {
                continue;
            }
            for node in chosen.iter().flat_map(|nodes| nodes.iter().take(each)) {
                let pod = format!("{name}-{}-{}", node.name, self.c.now.as_second());
                self.bind(&pod, Some(&name), &node.name, 4);
                busy.insert(node.name.to_string());
                any = true;
            }
        }
        any
    }

    /// Binds the pods of a job to the nodes that it is assigned, if all of them are ready.
    fn bind_assigned(&mut self, job: &str) -> bool {
        let nodes = self.assigned(job);
        let ready = |(node, _): &(String, i32)| self.is_ready(&ObjectRef::cluster(Kind::Node, node.as_str()));
        if !nodes.iter().all(ready) {
            return false;
        }
        let chips = self.c.api.job(job).view.pod_sets[0].template.as_ref().and_then(|template| {
            let limits = template.spec.as_ref()?.containers[0].resources.as_ref()?.limits.as_ref()?;
            limits[TPU].0.parse().ok()
        });
        for (node, count) in &nodes {
            for index in 0..*count {
                let pod = format!("{job}-{node}-{index}-{}", self.c.now.as_second());
                self.bind(&pod, Some(job), node, chips.unwrap());
            }
        }
        !nodes.is_empty()
    }

    /// The nodes that the only pod set of a job is assigned, and how many pods each has.
    pub fn assigned(&self, job: &str) -> Vec<(String, i32)> {
        let admission = self.c.workload(job).status.and_then(|status| status.admission);
        let assigned =
            admission.and_then(|admission| admission.pod_set_assignments[0].topology_assignment.clone());
        let rows =
            assigned.map(|assigned| sluice_api::conversion::topology::decode(&assigned).unwrap().domains);
        rows.into_iter().flatten().map(|row| (row.values.concat(), row.count)).collect()
    }

    /// A pod on a node.
    pub fn bind(&mut self, name: &str, jobset: Option<&str>, node: &str, chips: i64) -> ObjectRef {
        let labels = jobset.map(|name| json!({"jobset.sigs.k8s.io/jobset-name": name}));
        let containers = json!([{"name": "jax", "resources": {"limits": {TPU: chips.to_string()},
            "requests": {TPU: chips.to_string()}}}]);
        self.c.api.put(
            Kind::Pod,
            json!({"metadata": {"name": name, "namespace": "team-a", "labels": labels},
                "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Running"}}),
        )
    }

    /// What a condition of a job's Workload says.
    pub fn reported(&self, job: &str, type_: &str) -> String {
        reported(&self.c.workload(job), type_)
    }

    /// Whether a job's Workload is admitted.
    pub fn runs(&self, job: &str) -> bool {
        self.reported(job, "Admitted").starts_with("True") && !self.c.api.job(job).view.suspended
    }

    /// The unhealthy nodes that the status lists.
    pub fn listed(&self, job: &str) -> Vec<String> {
        let status = self.c.workload(job).status.unwrap_or_default();
        status.unhealthy_nodes.into_iter().map(|n| n.name).collect()
    }

    /// How often a Workload was evicted, by reason.
    pub fn evictions(&self, job: &str) -> Vec<(String, i32)> {
        let stats = self.c.workload(job).status.unwrap_or_default().scheduling_stats.unwrap_or_default();
        stats.evictions.into_iter().map(|e| (e.reason, e.count)).collect()
    }

    /// Seconds since the beginning of time.
    pub fn now(&self) -> Timestamp {
        self.c.now
    }
}
