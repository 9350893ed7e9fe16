//! Why queues are not active: every reason of docs/reference/03-conditions-events.md 3.2 with its exact text, and its removal when the cause ends.

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::model::Cluster;
use crate::model::build::job;

const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

fn cq() -> ObjectRef {
    ObjectRef::cluster(Kind::ClusterQueue, "cq")
}

/// `status/reason: message` of the condition Active.
fn active(c: &Cluster, object: &ObjectRef) -> String {
    let conditions = c.api.json(object).unwrap()["status"]["conditions"].clone();
    let active = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Active").unwrap().clone();
    let text = |field: &str| active[field].as_str().unwrap().to_owned();
    format!("{}/{}: {}", text("status"), text("reason"), text("message"))
}

fn check(c: &mut Cluster, name: &str, controller: &str, active: &str) {
    let object = c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": name}, "spec": {"controllerName": controller}}),
    );
    let condition = json!([{"type": "Active", "status": active, "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    c.api.edit_status(&object, |s| *s = json!({"conditions": condition}));
}

fn rules(c: &mut Cluster, rules: &Value) -> String {
    c.api.edit(&cq(), &json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}}));
    c.settle();
    active(c, &cq())
}

#[test]
fn checks_that_exclude_each_other_make_a_cluster_queue_inactive() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    for (name, controller) in
        [("far", MULTIKUEUE), ("farther", MULTIKUEUE), ("nodes", PROVISIONING), ("mine", "example.com/mine")]
    {
        check(&mut c, name, controller, "True");
    }
    check(&mut c, "broken", MULTIKUEUE, "False");
    let every = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    for harmless in [&["far", "mine"][..], &["nodes", "mine"]] {
        assert_eq!(rules(&mut c, &every(harmless)), "True/Ready: Can admit new workloads");
    }
    assert_eq!(
        rules(&mut c, &every(&["farther", "mine", "far"])),
        "False/MultipleMultiKueueAdmissionChecks: Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks \
         on the same ClusterQueue, found: far,farther."
    );
    assert_eq!(
        rules(&mut c, &json!([{"name": "far", "onFlavors": ["default"]}])),
        "False/MultiKueueAdmissionCheckAppliedPerFlavor: Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck \
         per flavor, found: far."
    );
    assert_eq!(
        rules(&mut c, &every(&["nodes", "far"])),
        "False/MultiKueueWithProvisioningRequest: Can't admit new workloads: Cannot use both MultiKueue and \
         ProvisioningRequest AdmissionChecks together, found: far, nodes."
    );
    // All causes are reported, in the reference's order, under the reason of the first.
    assert_eq!(
        rules(
            &mut c,
            &json!([{"name": "far", "onFlavors": ["default"]}, {"name": "broken"}, {"name": "nodes"}, {"name": "gone"}])
        ),
        "False/AdmissionCheckNotFound: Can't admit new workloads: references missing AdmissionCheck(s): gone, references \
         inactive AdmissionCheck(s): broken, Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: \
         broken,far, Cannot specify MultiKueue AdmissionCheck per flavor, found: far, Cannot use both MultiKueue and \
         ProvisioningRequest AdmissionChecks together, found: broken,far, nodes."
    );
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(
        active(&c, &ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")),
        "False/ClusterQueueIsInactive: Can't submit new workloads to clusterQueue"
    );
    assert_eq!(rules(&mut c, &json!([])), "True/Ready: Can admit new workloads");
    assert!(!c.api.job("a").view.suspended);
}

fn rack_flavor(c: &mut Cluster) -> ObjectRef {
    let spec = json!({"topologyName": "dc", "nodeLabels": {"pool": "a"}});
    let metadata = json!({"name": "default", "finalizers": ["kueue.x-k8s.io/resource-in-use"]});
    c.api.put(Kind::ResourceFlavor, json!({"metadata": metadata, "spec": spec}))
}

#[test]
fn a_flavor_without_its_topology_makes_a_cluster_queue_inactive_and_keeps_the_topology_afterwards() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    let flavor = rack_flavor(&mut c);
    c.settle();
    assert_eq!(
        active(&c, &cq()),
        "False/TopologyNotFound: Can't admit new workloads: there is no Topology \"dc\" for TAS flavor \"default\"."
    );
    let levels = json!([{"nodeLabel": "rack"}]);
    let topology = c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": {"levels": levels}}));
    c.settle();
    assert_eq!(active(&c, &cq()), "True/Ready: Can admit new workloads");
    let finalizers = &c.api.json(&topology).unwrap()["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["kueue.x-k8s.io/resource-in-use"]));

    // Its events say what holds it; it goes with the last flavor that names it.
    c.api.delete(&topology);
    c.settle();
    assert_eq!(c.notes("InUse"), ["Topology/dc: Kept until it is no longer used by: ResourceFlavor default"]);
    assert_eq!(active(&c, &cq()), "True/Ready: Can admit new workloads");
    c.api.delete(&cq());
    c.settle();
    c.api.delete(&flavor);
    c.settle();
    assert!(c.api.json(&flavor).is_none());
    assert!(c.api.json(&topology).is_none());
}

#[test]
fn without_its_gate_no_topology_matters() {
    let gates = Gates::default().with(Gate::TopologyAwareScheduling, false);
    let mut c = Cluster::new(EngineConfig { gates, status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    rack_flavor(&mut c);
    c.settle();
    assert_eq!(active(&c, &cq()), "True/Ready: Can admit new workloads");
}

#[test]
fn what_is_stopped_missing_and_leaving_is_reported_in_order() {
    let mut c = Cluster::plain();
    c.api.cluster_queue("cq", "default", "3", &json!({"stopPolicy": "HoldAndDrain"}));
    c.api.local_queue("team-a", "lq", "cq");
    let lq = ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq");
    let lost = c.api.local_queue("team-a", "lost", "nowhere");
    c.settle();
    assert_eq!(
        active(&c, &cq()),
        "False/Stopped: Can't admit new workloads: is stopped, references missing ResourceFlavor(s): default."
    );
    assert_eq!(
        active(&c, &lost),
        "False/ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue"
    );
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "None"}}));
    c.api.edit(&lq, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    assert_eq!(
        active(&c, &cq()),
        "False/FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): default."
    );
    assert_eq!(active(&c, &lq), "False/Stopped: LocalQueue is stopped");
    c.api.flavor("default", &[]);
    c.api.edit(&lq, &json!({"spec": {"stopPolicy": "None"}}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!(active(&c, &lq), "True/Ready: Can submit new workloads to localQueue");
    // What runs keeps the queue until it ends.
    c.api.delete(&cq());
    c.settle();
    assert_eq!(
        active(&c, &cq()),
        "False/Terminating: Can't admit new workloads; clusterQueue is terminating"
    );
    assert_eq!(
        c.notes("InUse"),
        ["ClusterQueue/cq: Kept until it is no longer used by: 1 Workloads with a reservation"]
    );
    c.api.finish_job("a", true);
    c.settle();
    assert!(c.api.json(&cq()).is_none());
    assert_eq!(active(&c, &lq), "False/ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue");
}
