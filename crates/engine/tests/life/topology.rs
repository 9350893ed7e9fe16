//! Jobs get nodes, and other nodes when theirs fail (docs/reference/06-algorithm.md 6.11–6.15).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sluice_api::conversion::topology::decode;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobView;
use sluice_api::v1beta2::{DelayedTopologyRequestState, PodSetAssignment, PodSetTopologyRequest};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::contract::{answer, submit};
use crate::model::{Api, Cluster, condition, reported};
use crate::topology_pages::asking;

pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The default gates, but for these.
pub fn gates(changes: &[(Gate, bool)]) -> EngineConfig {
    let gates = changes.iter().fold(Gates::default(), |gates, (gate, on)| gates.with(*gate, *on));
    EngineConfig { gates, status_interval_ms: 0, ..EngineConfig::default() }
}

/// Adds a Ready node with so much cpu.
pub fn add_node(c: &mut Cluster, name: &str, rack: &str, cpu: &str) -> ObjectRef {
    let labels = json!({"pool": "tas", "rack": rack, HOSTNAME: name});
    let status = json!({
        "allocatable": {"cpu": cpu, "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    c.api.put(Kind::Node, json!({"metadata": {"name": name, "labels": labels}, "status": status}))
}

pub fn node_ref(name: &str) -> ObjectRef {
    ObjectRef::cluster(Kind::Node, name)
}

/// A queue whose flavor has the levels rack and hostname; `more` is merged into its spec.
pub fn bed_with(config: EngineConfig, nodes: &[(&str, &str, &str)], more: &Value) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]});
    c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": levels}));
    let flavor = json!({"topologyName": "dc", "nodeLabels": {"pool": "tas"}});
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "tas"}, "spec": flavor}));
    for (name, rack, cpu) in nodes {
        add_node(&mut c, name, rack, cpu);
    }
    c.api.cluster_queue("cq", "tas", "100", more);
    c.api.local_queue("team-a", "lq", "cq");
    c
}

pub fn bed(nodes: &[(&str, &str, &str)]) -> Cluster {
    bed_with(gates(&[]), nodes, &json!({}))
}

/// Three nodes of one rack, with room for one pod each.
pub const THREE: [(&str, &str, &str); 3] = [("n1", "r1", "1"), ("n2", "r1", "1"), ("n3", "r1", "1")];

/// A job that asks for one rack for `pods` pods of one cpu each.
pub fn submit_in_rack(c: &mut Cluster, name: &str, pods: i32) {
    submit(c, name, "lq", pods, in_rack);
}

pub fn in_rack(view: &mut JobView) {
    let request =
        PodSetTopologyRequest { required: Some("rack".to_owned()), ..PodSetTopologyRequest::default() };
    view.pod_sets[0].topology_request = Some(Box::new(request));
}

pub fn workload(c: &Cluster, job: &str) -> ObjectRef {
    Api::workload_ref(&c.workload(job))
}

fn assigned(c: &Cluster, job: &str) -> Option<PodSetAssignment> {
    Some(c.workload(job).status?.admission?.pod_set_assignments[0].clone())
}

/// The domains of a job: values and pods.
pub fn nodes_of(c: &Cluster, job: &str) -> Vec<(String, i32)> {
    let assignment = assigned(c, job).and_then(|set| set.topology_assignment);
    let rows = assignment.map(|columns| decode(&columns).unwrap().domains).unwrap_or_default();
    rows.into_iter().map(|row| (row.values.join("/"), row.count)).collect()
}

pub fn names_of(c: &Cluster, job: &str) -> Vec<String> {
    nodes_of(c, job).into_iter().map(|(name, _)| name).collect()
}

pub fn unhealthy(c: &Cluster, job: &str) -> Vec<String> {
    c.workload(job).status.unwrap_or_default().unhealthy_nodes.into_iter().map(|node| node.name).collect()
}

pub fn runs(c: &Cluster, job: &str) -> bool {
    !c.api.job(job).view.suspended
}

pub fn not_ready(c: &mut Cluster, name: &str) {
    let since = c.now.to_string();
    let ready = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": since}]);
    c.api.edit_status(&node_ref(name), |status| status["conditions"] = ready);
    c.settle();
}

pub fn ready(c: &mut Cluster, name: &str) {
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    c.api.edit_status(&node_ref(name), |status| status["conditions"] = ready);
    c.settle();
}

pub fn taint(c: &mut Cluster, name: &str, taints: &Value) {
    c.api.edit(&node_ref(name), &json!({"spec": {"taints": taints}}));
    c.settle();
}

/// A bound pod that no assignment placed.
pub fn add_pod(c: &mut Cluster, name: &str, node: &str, cpu: &str) -> ObjectRef {
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let pod = json!({
        "metadata": {"namespace": "team-a", "name": name},
        "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"},
    });
    let reference = c.api.put(Kind::Pod, pod);
    c.settle();
    reference
}

/// The pods of a job run where they are assigned: both watches show them.
pub fn run_pods(c: &mut Cluster, job: &str) -> BTreeMap<String, ObjectRef> {
    let scheduling = c.api.job(job).view.pod_sets[0].scheduling.clone();
    let mut pods = BTreeMap::new();
    for (node, count) in nodes_of(c, job) {
        for index in 0..count {
            let name = format!("{job}-{node}-{index}");
            let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
            let pod = json!({
                "metadata": {"namespace": "team-a", "name": name, "labels": scheduling.labels,
                    "annotations": scheduling.annotations},
                "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"},
            });
            c.api.put(Kind::Pod, pod.clone());
            pods.insert(node.clone(), c.api.put(Kind::JobPod, pod));
        }
    }
    c.settle();
    pods
}

pub fn end_pod(c: &mut Cluster, pod: &ObjectRef) {
    for kind in [Kind::Pod, Kind::JobPod] {
        let pod = ObjectRef { kind, ..pod.clone() };
        c.api.edit_status(&pod, |status| status["phase"] = json!("Failed"));
    }
    c.settle();
}

#[test]
fn a_job_gets_nodes_of_one_rack_with_its_admission() {
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r1", "2"), ("n3", "r2", "1"), ("n4", "r2", "1")]);
    submit_in_rack(&mut c, "a", 3);
    assert_eq!(nodes_of(&c, "a"), [("n1".to_owned(), 1), ("n2".to_owned(), 2)]);
    assert!(assigned(&c, "a").unwrap().delayed_topology_request.is_none());
    assert!(runs(&c, "a"));
    assert_eq!(c.written(Purpose::ReserveQuota), 1, "with one write");
    submit_in_rack(&mut c, "b", 3);
    assert!(!runs(&c, "b"), "no rack has room for it");
    let said = reported(&c.workload("b"), "QuotaReserved");
    assert!(
        said.starts_with("False/TopologyPlacementFailed: ") && said.contains("topology \"dc\""),
        "{said}"
    );
    add_node(&mut c, "n5", "r2", "1");
    c.settle();
    assert_eq!(names_of(&c, "b"), ["n3", "n4", "n5"], "a new node lets it in");
}

#[test]
fn levels_may_be_added_above_the_nodes() {
    let mut c = bed(&THREE);
    let topology = ObjectRef::cluster(Kind::Topology, "dc");
    submit(&mut c, "a", "lq", 1, |view| {
        in_rack(view);
        view.pod_sets[0].topology_request.as_mut().unwrap().required = Some("block".to_owned());
    });
    assert!(!runs(&c, "a"));
    for name in ["n1", "n2", "n3"] {
        c.api.edit(&node_ref(name), &json!({"metadata": {"labels": {"block": "b"}}}));
    }
    let levels = json!([{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]);
    c.api.edit(&topology, &json!({"spec": {"levels": levels}}));
    c.settle();
    assert!(runs(&c, "a"));
}

#[test]
fn pods_that_were_not_placed_take_their_part_of_nodes_until_they_end() {
    let mut c = bed(&[("n1", "r1", "4")]);
    let other = add_pod(&mut c, "other", "n1", "2500m");
    submit_in_rack(&mut c, "a", 2);
    assert!(!runs(&c, "a"), "1.5 cpu are free");
    c.api.edit_status(&other, |status| status["phase"] = json!("Succeeded"));
    c.settle();
    assert!(runs(&c, "a"));
    // Its own pods are not counted twice.
    let pods = run_pods(&mut c, "a");
    submit_in_rack(&mut c, "b", 2);
    assert!(runs(&c, "b"));
    // Pods that are left over after their Workload is gone are counted each for itself.
    c.pods_vanish = true;
    c.api.edit(&workload(&c, "a"), &json!({"spec": {"active": false}}));
    c.settle();
    assert!(!runs(&c, "a"));
    submit_in_rack(&mut c, "d", 2);
    assert!(!runs(&c, "d"), "the pods of a are still on the node");
    let all: Vec<ObjectRef> =
        c.api.names(Kind::Pod).into_iter().filter(|p| p.name.starts_with("a-")).collect();
    assert_eq!((all.len(), pods.len()), (2, 1));
    for pod in all {
        end_pod(&mut c, &pod);
    }
    c.advance(1);
    assert!(runs(&c, "d"));
}

#[test]
fn init_containers_and_overhead_count_and_a_deleted_pod_does_not() {
    let mut c = bed(&[("n1", "r1", "4")]);
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let pod = json!({
        "metadata": {"namespace": "team-a", "name": "big"},
        "spec": {"nodeName": "n1", "overhead": {"cpu": "1"},
            "containers": [{"name": "c", "resources": requests("1")}],
            "initContainers": [{"name": "i", "resources": requests("2")}]},
        "status": {"phase": "Running"},
    });
    let pod = c.api.put(Kind::Pod, pod);
    c.settle();
    submit_in_rack(&mut c, "a", 2);
    assert!(!runs(&c, "a"));
    c.api.delete(&pod);
    c.settle();
    assert!(runs(&c, "a"));
}

/// A queue whose flavor's nodes come with a check.
pub fn provisioned(nodes: &[(&str, &str, &str)]) -> Cluster {
    let mut c = bed_with(
        gates(&[]),
        nodes,
        &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "pr"}]}}),
    );
    let check = c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": "pr"}, "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}}),
    );
    let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    c.api.edit_status(&check, |status| *status = json!({"conditions": active}));
    c
}

#[test]
fn nodes_that_a_check_brings_are_chosen_once_it_is_ready() {
    let mut c = provisioned(&[]);
    submit_in_rack(&mut c, "a", 2);
    let set = assigned(&c, "a").unwrap();
    assert_eq!(set.delayed_topology_request, Some(DelayedTopologyRequestState::Pending));
    assert!(set.topology_assignment.is_none());
    c.advance(60);
    assert!(c.notes("SecondPassFailed").is_empty(), "it waits for the check");
    answer(&mut c, "a", "Ready", "");
    let pending = "False/PendingDelayedTopologyRequests: There are pending delayed topology requests";
    assert_eq!(reported(&c.workload("a"), "Admitted"), pending);
    c.advance(1);
    assert_eq!(c.notes("SecondPassFailed").len(), 1, "{:?}", c.notes("SecondPassFailed"));
    assert!(!runs(&c, "a"), "no node is there yet");
    for name in ["n1", "n2"] {
        add_node(&mut c, name, "r1", "1");
    }
    c.advance(4);
    assert_eq!(names_of(&c, "a"), ["n1", "n2"]);
    let set = assigned(&c, "a").unwrap();
    assert_eq!(set.delayed_topology_request, Some(DelayedTopologyRequestState::Ready));
    assert_eq!(reported(&c.workload("a"), "Admitted"), "True/Admitted: The workload is admitted");
    assert!(runs(&c, "a"));
    assert_eq!(c.written(Purpose::Place), 1);
    // It holds them now.
    submit_in_rack(&mut c, "b", 1);
    answer(&mut c, "b", "Ready", "");
    c.advance(5);
    assert!(!runs(&c, "b"));
}

#[test]
fn what_a_check_adds_to_the_pods_counts_for_their_nodes() {
    let mut c = provisioned(&THREE);
    c.api.edit(&node_ref("n3"), &json!({"metadata": {"labels": {"made-for": "a"}}}));
    taint(&mut c, "n3", &json!([{"key": "made", "effect": "NoSchedule"}]));
    submit_in_rack(&mut c, "a", 1);
    let of = workload(&c, "a");
    c.api.edit_status(&of, |status| {
        status["admissionChecks"][0]["state"] = json!("Ready");
        status["admissionChecks"][0]["podSetUpdates"] = json!([{
            "name": "main", "nodeSelector": {"made-for": "a"},
            "tolerations": [{"key": "made", "operator": "Exists"}]}]);
    });
    c.settle();
    c.advance(2);
    assert_eq!(names_of(&c, "a"), ["n3"]);
    c.advance(60);
    assert!(runs(&c, "a") && unhealthy(&c, "a").is_empty(), "and the taint is tolerated");
}

#[test]
fn an_assignment_that_cannot_be_read_is_none_and_stops_no_other() {
    let huge = json!({"levels": [HOSTNAME], "slices": [{
        "domainCount": i32::MAX, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": 1}}]});
    let negative = json!({"levels": [HOSTNAME], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": -5}}]});
    let crooked = json!({"levels": [HOSTNAME, "x"], "slices": [{
        "domainCount": 2, "valuesPerLevel": [{"individual": {"roots": ["n1"]}}], "podCounts": {"universal": 1}}]});
    let unknown = json!({"levels": ["x", "y"], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": ""}, {"universal": "🦀"}], "podCounts": {"universal": 1}}]});
    let many = json!({"levels": [HOSTNAME], "slices": [{
        "domainCount": 1, "valuesPerLevel": [{"universal": "n1"}], "podCounts": {"universal": i32::MAX}}]});
    for (assignment, readable) in
        [(huge, false), (negative, false), (crooked, false), (unknown, true), (many, true)]
    {
        let mut c = bed(&THREE);
        submit_in_rack(&mut c, "a", 1);
        let of = workload(&c, "a");
        c.api.edit_status(&of, |status| {
            status["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment.clone();
        });
        c.settle();
        c.advance(60);
        assert_eq!(c.warnings.len(), usize::from(!readable), "{assignment}: {:?}", c.warnings);
        // The others continue.
        submit(&mut c, "b", "lq", 1, in_rack);
        assert!(runs(&c, "b"), "{assignment}");
        c.restart();
        c.settle();
        assert!(runs(&c, "b"), "{assignment}");
    }
}

#[test]
fn what_quota_leaves_out_counts_for_nodes_all_the_same() {
    let mut config = gates(&[]);
    config.resources.exclude_prefixes = vec!["memory".to_owned()];
    let mut c = bed_with(config, &[("n1", "r1", "9")], &json!({}));
    c.api.edit_status(&node_ref("n1"), |status| status["allocatable"]["memory"] = json!("3Gi"));
    let with_memory = |view: &mut JobView| {
        in_rack(view);
        let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
        let container = &mut template.spec.as_mut().unwrap().containers[0];
        let requests = container.resources.as_mut().unwrap().requests.as_mut().unwrap();
        requests.insert("memory".to_owned(), Quantity("2Gi".to_owned()));
        let spec = template.spec.clone().unwrap();
        view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(&spec);
        view.pod_sets[0].requests_hash = sluice_api::names::requests_hash(&spec);
    };
    submit(&mut c, "a", "lq", 2, with_memory);
    assert!(!runs(&c, "a"), "its pods need 4Gi, whatever their quota");
    submit(&mut c, "b", "lq", 1, with_memory);
    assert!(runs(&c, "b"));
}

#[test]
fn a_scrape_says_how_many_pods_of_each_size_fit_into_one_domain() {
    let mut c = bed(&[]);
    for (name, rack, gpus) in [("n1", "r1", "4"), ("n2", "r1", "4"), ("n3", "r2", "4")] {
        let labels = json!({"pool": "tas", "rack": rack, HOSTNAME: name});
        let ready =
            json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let allocatable = json!({"cpu": "64", "pods": "110", "nvidia.com/gpu": gpus});
        let status = json!({"allocatable": allocatable, "conditions": ready});
        c.api.put(Kind::Node, json!({"metadata": {"name": name, "labels": labels}, "status": status}));
    }
    submit_in_rack(&mut c, "job", 1);
    let fits = |c: &Cluster, level: &str, per_pod: &str| {
        let all = c.engine.metrics_snapshot();
        let labels = ["dc", "tas", level, "nvidia.com/gpu", per_pod];
        let mut ours = all.iter().filter(|gauge| gauge.metric == "sluice_topology_largest_fit");
        ours.find(|gauge| gauge.labels.iter().map(|label| &**label).eq(labels)).map(|gauge| gauge.value)
    };
    assert_eq!((fits(&c, "rack", "4"), fits(&c, HOSTNAME, "1")), (Some(2.0), Some(4.0)));
    c.api.delete(&node_ref("n2"));
    c.settle();
    assert_eq!((fits(&c, "rack", "4"), fits(&c, "rack", "2")), (Some(1.0), Some(2.0)));
}

#[test]
fn a_scrape_says_how_many_pods_fit_of_the_shapes_that_wait() {
    let mut c = bed(&[("n1", "r1", "4"), ("n2", "r1", "3"), ("n3", "r2", "2")]);
    let fits = |c: &Cluster| -> BTreeMap<(String, String), f64> {
        let ours = c.engine.metrics_snapshot().into_iter();
        let ours = ours.filter(|gauge| gauge.metric == "sluice_topology_largest_fit_of_shape");
        ours.map(|gauge| ((gauge.labels[3].to_string(), gauge.labels[2].to_string()), gauge.value)).collect()
    };
    submit_in_rack(&mut c, "small", 1);
    assert!(runs(&c, "small") && fits(&c).is_empty(), "nothing waits");
    submit(&mut c, "large", "lq", 9, asking(2));
    let of =
        |fits: &BTreeMap<_, f64>, level: &str| fits.get(&("cpu=2".to_owned(), level.to_owned())).copied();
    let found = fits(&c);
    assert_eq!((of(&found, "rack"), of(&found, HOSTNAME), found.len()), (Some(3.0), Some(2.0), 2));
    for cpu in 10..20 {
        submit(&mut c, &format!("wide-{cpu}"), "lq", 1, asking(cpu));
    }
    let found = fits(&c);
    assert_eq!(found.len(), 8 * 2, "no more than the shapes of which most pods wait: {found:?}");
    assert_eq!(of(&found, "rack"), Some(3.0));
}

#[test]
fn quota_that_comes_free_on_nodes_too_far_apart_is_a_new_reason_to_wait() {
    let nodes = [("n1", "r1", "1"), ("n2", "r1", "1"), ("n3", "r2", "1"), ("n4", "r2", "1")];
    let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [
        {"name": "cpu", "nominalQuota": "3"}]}]});
    let mut c = bed_with(gates(&[]), &nodes, &json!({"resourceGroups": [group]}));
    submit_in_rack(&mut c, "small", 2);
    submit_in_rack(&mut c, "large", 3);
    let begins = |c: &Cluster, reason: &str| {
        let said = reported(&c.workload("large"), "QuotaReserved");
        assert!(said.starts_with(&format!("False/{reason}: ")), "{said}");
    };
    begins(&c, "WaitingForQuota");
    c.api.finish_job("small", true);
    c.settle();
    begins(&c, "TopologyPlacementFailed");
}

#[test]
fn nodes_that_pods_prefer_come_first_where_the_gate_is_on() {
    for on in [true, false] {
        let changes = [(Gate::TASRespectNodeAffinityPreferred, on)];
        let nodes = [("n1", "r1", "1"), ("n2", "r2", "1"), ("n3", "r3", "1")];
        let mut c = bed_with(gates(&changes), &nodes, &json!({}));
        let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r3"]}]}},
        ]}});
        submit(&mut c, "job", "lq", 1, |view| {
            in_rack(view);
            let template = view.pod_sets[0].template.as_mut().unwrap();
            let spec = Arc::make_mut(template).spec.as_mut().unwrap();
            spec.affinity = Some(serde_json::from_value(affinity.clone()).unwrap());
        });
        assert_eq!(names_of(&c, "job"), [if on { "n3" } else { "n1" }]);
    }
}

#[test]
fn a_label_of_a_node_matters_to_pods_that_select_nodes_by_it() {
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r2", "1")]);
    submit(&mut c, "job", "lq", 1, |view| {
        in_rack(view);
        let template = view.pod_sets[0].template.as_mut().unwrap();
        let spec = Arc::make_mut(template).spec.as_mut().unwrap();
        spec.node_selector = Some([("disk".to_owned(), "fast".to_owned())].into());
    });
    assert!(!runs(&c, "job"));
    c.api.edit(&node_ref("n2"), &json!({"metadata": {"labels": {"disk": "fast"}}}));
    c.settle();
    assert_eq!((names_of(&c, "job"), runs(&c, "job")), (vec!["n2".to_owned()], true));
}

#[test]
fn a_late_reservation_of_a_former_leader_is_taken_back_if_its_node_was_given_away() {
    // Quota for all, and a node for one.
    let mut c = bed(&[("n1", "r1", "1")]);
    c.api.priority_class("high", 1000);
    for name in ["first", "late"] {
        submit_in_rack(&mut c, name, 1);
        c.settle();
    }
    c.slow = Some(Purpose::ReserveQuota);
    c.api.finish_job("first", true);
    c.settle();
    submit(&mut c, "other", "lq", 1, |view| {
        in_rack(view);
        view.workload_priority_class = Some("high".to_owned());
    });
    c.settle();
    c.slow = None;
    c.restart();
    c.settle();
    assert!(runs(&c, "other"));
    c.arrive();
    assert_eq!(nodes_of(&c, "late"), nodes_of(&c, "other"), "both hold the same node");
    c.settle();
    assert!(!runs(&c, "late") && runs(&c, "other"));
    assert_eq!(condition(&c.workload("late"), "QuotaReserved"), "False");
    c.api.finish_job("other", true);
    c.settle();
    assert!(runs(&c, "late"));
}
