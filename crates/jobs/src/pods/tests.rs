//! Plain pods and pod groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{PodScheduling, PodSetInfo};
use sluice_jobs::pods::{
    Against, ComposeError, Group, Member, Phase, RoleCount, StopReason, finalize, is_group_workload,
    owner_reference, start, termination,
};

use crate::testing::apply;

mod counted;
mod seen;
mod written;

const GATE: &str = "kueue.x-k8s.io/admission";
const TOPOLOGY: &str = "kueue.x-k8s.io/topology";
const MANAGED: &str = "kueue.x-k8s.io/managed";

/// A gated pod of the group `g` of three, as the webhook leaves it.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team-a", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kueue.x-k8s.io/queue-name": "user-queue", "kueue.x-k8s.io/pod-group-name": "g", MANAGED: "true"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/role-hash": "driver"},
            "finalizers": ["example.com/other", MANAGED]
        },
        "spec": {
            "schedulingGates": [{"name": GATE}, {"name": TOPOLOGY}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        },
        "status": {"phase": "Pending"}
    })
}

/// The pod with other values at these places.
pub fn with(mut pod: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
    }
    pod
}

pub fn member(pod: &Value) -> Member {
    Member::observe(pod, &Gates::default())
}

pub fn role(name: &str) -> (&'static str, Value) {
    ("/metadata/annotations/kueue.x-k8s.io~1role-hash", json!(name))
}

pub fn total(count: &str) -> (&'static str, Value) {
    ("/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count", json!(count))
}

pub fn phase(phase: &str) -> (&'static str, Value) {
    ("/status/phase", json!(phase))
}

pub fn deleted(at: &str) -> (&'static str, Value) {
    ("/metadata/deletionTimestamp", json!(at))
}

pub fn created(at: &str) -> (&'static str, Value) {
    ("/metadata/creationTimestamp", json!(at))
}

fn running() -> [(&'static str, Value); 3] {
    [("/spec/schedulingGates", Value::Null), ("/spec/nodeName", json!("n")), phase("Running")]
}

fn group(pods: &[Value]) -> Group {
    let mut group = Group::new(&["team".to_owned()]);
    for pod in pods {
        group.insert(member(pod));
    }
    group
}

fn names(names: &[Arc<str>]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

pub fn counts(pod_sets: &[(&str, i32)]) -> Vec<RoleCount> {
    pod_sets.iter().map(|(role, count)| RoleCount { role: Arc::from(*role), count: *count }).collect()
}

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_pod_is_read() {
    let gated = member(&pod("a"));
    assert_eq!((&*gated.namespace, &*gated.name, &*gated.uid), ("team-a", "a", "uid-a"));
    assert_eq!(gated.group.as_deref(), Some("g"));
    assert_eq!(gated.queue_name.as_deref(), Some("user-queue"));
    assert_eq!((&*gated.role, gated.total_count.clone()), ("driver", Ok(3)));
    assert!(
        gated.gated && gated.held && gated.managed && !gated.bound && !gated.serving && !gated.unretriable
    );
    let pod_set = gated.pod_set.as_ref().unwrap();
    assert_eq!((pod_set.name.as_str(), pod_set.count), ("driver", 1));
    assert_eq!(pod_set.template.as_ref().unwrap().metadata, None);
    let runs = member(&with(pod("a"), &running()));
    assert!(!runs.gated && runs.bound && runs.is_free());
    assert_eq!(runs.phase, Phase::Running);
}

#[test]
fn a_pod_without_a_group_has_the_pod_set_main() {
    let mut single = pod("a");
    single["metadata"]["labels"].as_object_mut().unwrap().remove("kueue.x-k8s.io/pod-group-name");
    single["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-serving": "true"});
    let single = member(&single);
    assert_eq!(single.group, None);
    assert_eq!(single.pod_set.as_ref().unwrap().name, "main");
    assert!(!single.serving);
    // As computed from its spec.
    assert_eq!(single.role.len(), 8);
}

#[test]
fn the_annotation_may_name_a_longer_group() {
    let long = "g".repeat(100);
    let named = with(pod("a"), &[("/metadata/annotations/kueue.x-k8s.io~1pod-group-name", json!(long))]);
    assert_eq!(member(&named).group.as_deref(), Some(&*long));
    let off = Gates::default().with(Gate::WorkloadIdentifierAnnotations, false);
    assert_eq!(Member::observe(&named, &off).group.as_deref(), Some("g"));
}

#[test]
fn nothing_makes_reading_fail() {
    for odd in [
        json!(null),
        json!({"metadata": [], "spec": 3, "status": "x"}),
        json!({"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": 7}, "finalizers": {}}, "spec": {"containers": [{"name": 1}]}}),
    ] {
        let member = member(&odd);
        assert!(member.pod_set.is_err() && member.total_count.is_err(), "{odd}");
        let mut group = Group::default();
        group.insert(member);
        assert!(group.compose("g").is_err());
    }
}

#[test]
fn a_group_is_composed_when_its_pods_are_there() {
    let worker = |name: &str| with(pod(name), &[role("worker")]);
    let mut group = group(&[pod("a"), worker("b")]);
    let fewer = group.compose("g").unwrap_err();
    assert_eq!(fewer.to_string(), "'g' group has fewer runnable pods than expected");
    group.insert(member(&worker("c")));
    let composed = group.compose("g").unwrap();
    assert_eq!(composed.pod_sets, counts(&[("driver", 1), ("worker", 2)]));
    assert_eq!(composed.queue_name.as_deref(), Some("user-queue"));
    assert!(composed.excess.is_empty() && group.inactive().is_empty());
    assert_eq!(group.pod_set("worker").unwrap().name, "worker");
    assert!(group.pod_set("worker").unwrap().template.is_some());
    group.drop_templates();
    assert!(group.pod_set("worker").unwrap().template.is_none());
}

#[test]
fn fast_admission_waits_for_one_pod() {
    let fast = ("/metadata/annotations/kueue.x-k8s.io~1pod-group-fast-admission", json!("true"));
    let composed = group(&[with(pod("a"), &[fast])]).compose("g").unwrap();
    assert_eq!(composed.pod_sets, counts(&[("driver", 3)]));
}

#[test]
fn pods_that_will_never_run_do_not_count() {
    let failed = with(pod("b"), &[phase("Failed")]);
    let never = with(pod("c"), &[deleted("2026-01-02T04:00:00Z")]);
    let mut group = group(&[pod("a"), failed, never]);
    assert!(matches!(group.compose("g"), Err(ComposeError::FewerPods { .. })));
    group.insert(member(&pod("d")));
    let ending = with(pod("e"), &[deleted("2026-01-02T04:00:00Z"), ("/spec/nodeName", json!("n"))]);
    group.insert(member(&ending));
    let composed = group.compose("g").unwrap();
    assert_eq!(composed.pod_sets, counts(&[("driver", 3)]));
    assert_eq!(names(&group.inactive()), ["b", "c"]);
}

#[test]
fn pods_must_agree() {
    let queue = ("/metadata/labels/kueue.x-k8s.io~1queue-name", json!("other"));
    let index = |text: &str| ("/metadata/labels/kueue.x-k8s.io~1pod-group-pod-index", json!(text));
    let team = |text: &str| ("/metadata/labels/team", json!(text));
    let error = |changes: &[(&str, Value)]| {
        let group = group(&[pod("a"), with(pod("b"), &[team("x")]), with(pod("c"), changes)]);
        group.compose("g").map_err(|why| why.to_string())
    };
    assert_eq!(error(&[]).unwrap().labels, BTreeMap::from([("team".to_owned(), "x".to_owned())]));
    for (change, expected) in [
        (queue.clone(), "pods 'c' and 'a' has different queue names: other!=user-queue"),
        (total("4"), "pods 'a' and 'c' has different 'kueue.x-k8s.io/pod-group-total-count' values: 3!=4"),
        (
            index("3"),
            "incorrect label value 'kueue.x-k8s.io/pod-group-pod-index=3': must be an integer below 3",
        ),
        (
            index("-1"),
            "incorrect label value 'kueue.x-k8s.io/pod-group-pod-index=-1': must be an integer below 3",
        ),
        (team("y"), "constructing workload: pods have different label values for 'team'"),
    ] {
        assert_eq!(error(&[change]).unwrap_err(), expected);
    }
    assert!(error(&[index("2")]).is_ok());
    // A failed pod has no say.
    let failed = with(pod("d"), &[queue, total("9"), team("z"), index("7"), phase("Failed")]);
    assert!(group(&[pod("a"), pod("b"), pod("c"), failed]).compose("g").is_ok());
}

#[test]
fn a_number_of_pods_must_be_one() {
    for (text, expected) in [
        ("0", "group total count should be greater than zero"),
        ("-2", "group total count should be greater than zero"),
        ("x", "must be an integer"),
        ("99999999999", "must be an integer"),
    ] {
        let why = group(&[with(pod("a"), &[total(text)])]).compose("g").unwrap_err().to_string();
        assert!(why.ends_with(expected), "{why}");
    }
    let why = group(&[with(pod("a"), &[("/metadata/annotations", json!({}))])]).compose("g").unwrap_err();
    assert_eq!(why.to_string(), "failed to extract 'kueue.x-k8s.io/pod-group-total-count' annotation");
}

#[test]
fn eighteen_roles_are_the_most() {
    let pods = |number: usize| -> Vec<Value> {
        let count = number.to_string();
        (0..number).map(|i| with(pod(&format!("p{i}")), &[role(&format!("r{i}")), total(&count)])).collect()
    };
    assert_eq!(group(&pods(18)).compose("g").unwrap().pod_sets.len(), 18);
    let why = group(&pods(19)).compose("g").unwrap_err();
    assert_eq!(why.to_string(), "pod group can't include more than 18 roles");
}

#[test]
fn the_newest_gated_pods_without_a_finalizer_are_in_excess() {
    let old = with(pod("old"), &[created("2026-01-01T00:00:00Z")]);
    let young = with(pod("young"), &[created("2026-02-01T00:00:00Z")]);
    let ungated = with(with(pod("ungated"), &[created("2026-03-01T00:00:00Z")]), &running());
    let released =
        with(pod("released"), &[created("2025-01-01T00:00:00Z"), ("/metadata/finalizers", json!([]))]);
    let group =
        group(&[old, young, ungated, released, with(pod("youngest"), &[created("2026-02-02T00:00:00Z")])]);
    assert_eq!(names(&group.compose("g").unwrap().excess), ["youngest", "released"]);
    let against = group.against(&counts(&[("driver", 1)]));
    assert_eq!(names(&against.excess), ["old", "young", "youngest", "released"]);
}

#[test]
fn failed_pods_are_finalized_when_they_are_replaced() {
    let failed = |name: &str, at: &str| {
        let conditions = json!([{"type": "ContainersReady", "status": "False", "reason": "PodFailed", "lastTransitionTime": at}]);
        with(pod(name), &[phase("Failed"), ("/status/conditions", conditions)])
    };
    let first = failed("first", "2026-01-03T00:00:00Z");
    let last = failed("last", "2026-01-04T00:00:00Z");
    let wanted = counts(&[("driver", 3)]);
    let mut group = group(&[pod("a"), first, last]);
    let waiting = group.against(&wanted);
    assert_eq!(waiting, Against { matches: true, absent: 2, ..Against::default() });
    group.insert(member(&pod("b")));
    let one = group.against(&wanted);
    assert_eq!((one.absent, names(&one.replaced)), (1, vec!["first"]));
    group.insert(member(&pod("c")));
    assert_eq!(names(&group.against(&wanted).replaced), ["first", "last"]);
    // Finalized pods are not finalized again.
    group.insert(member(&with(pod("last"), &[phase("Failed"), ("/metadata/finalizers", json!([]))])));
    assert_eq!(names(&group.against(&wanted).replaced), ["first"]);
}

#[test]
fn a_workload_of_other_roles_is_not_that_of_the_group() {
    let runs = with(with(pod("b"), &running()), &[role("new")]);
    let group = group(&[pod("a"), runs, with(pod("c"), &[role("new")])]);
    let known = group.against(&counts(&[("driver", 1), ("gone", 2)]));
    assert!(known.matches);
    assert_eq!((known.absent, names(&known.strangers)), (2, vec!["b"]), "what waits is no trouble");
    assert!(!group.against(&counts(&[("other", 2)])).matches);
    assert!(!Group::default().against(&counts(&[("driver", 2)])).matches);
}

#[test]
fn all_pods_that_stay_own_the_workload() {
    let group = group(&[pod("a"), pod("b"), pod("c"), pod("d")]);
    let owner =
        |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": format!("uid-{name}")});
    let known = owner_reference(group.get("b").unwrap());
    assert_eq!(json!(known), owner("b"));
    let missing = group.missing_owners(&[known], &[&[Arc::from("c")], &[]]);
    assert_eq!(json!(missing), json!([owner("a"), owner("d")]));
}

#[test]
fn a_workload_that_only_has_the_name_of_the_group_is_another() {
    let gates = Gates::default();
    let off = gates.with(Gate::PodIntegrationValidateGroupOwner, false);
    let marked =
        |value: &str| BTreeMap::from([("kueue.x-k8s.io/is-group-workload".to_owned(), value.to_owned())]);
    assert!(is_group_workload(&marked("true"), &gates));
    assert!(!is_group_workload(&marked("false"), &gates) && !is_group_workload(&BTreeMap::new(), &gates));
    assert!(is_group_workload(&BTreeMap::new(), &off));
}

#[test]
fn a_group_ends_when_all_succeeded_or_nothing_will_follow() {
    let ended = |name: &str, how: &str| with(pod(name), &[phase(how)]);
    let mut group = group(&[ended("a", "Succeeded"), ended("b", "Succeeded"), ended("c", "Failed")]);
    assert_eq!(group.finished(), None);
    let reclaimable = |group: &Group, count: i32| group.reclaimable([(Arc::from("driver"), count)]);
    assert_eq!(reclaimable(&group, 3), [("driver".to_owned(), 2)]);
    let last = ("/metadata/annotations/kueue.x-k8s.io~1retriable-in-group", json!("false"));
    group.insert(member(&with(ended("c", "Failed"), &[last])));
    assert_eq!(group.finished().unwrap().message, "Pods succeeded: 2/3.");
    group.insert(member(&pod("d")));
    assert_eq!(group.finished(), None);
    // The quota of the one that waits is not free, even where the Workload has no place for it.
    assert_eq!(reclaimable(&group, 2), [("driver".to_owned(), 1)]);
    group.insert(member(&ended("d", "Succeeded")));
    group.insert(member(&with(pod("e"), &running())));
    assert_eq!(group.finished(), None, "one that runs keeps it from being over");
    group.remove("e");
    let finished = group.finished().unwrap();
    assert!(finished.success);
    assert_eq!(finished.message, "Pods succeeded: 3/3.");
    let serving = ("/metadata/annotations/kueue.x-k8s.io~1pod-group-serving", json!("true"));
    for name in ["a", "b", "c", "d"] {
        group.insert(member(&with(ended(name, "Succeeded"), std::slice::from_ref(&serving))));
    }
    assert_eq!((group.finished(), reclaimable(&group, 3)), (None, Vec::new()));
}

#[test]
fn a_stop_deletes_what_may_run() {
    let pods = [
        pod("gated"),
        with(pod("running"), &running()),
        with(pod("ungated"), &[("/spec/schedulingGates", json!([{"name": TOPOLOGY}]))]),
        with(with(pod("leaving"), &running()), &[deleted("2026-01-02T04:00:00Z")]),
        with(with(pod("done"), &running()), &[phase("Succeeded")]),
    ];
    let group = group(&pods);
    let names = |members: Vec<&Member>| members.iter().map(|m| m.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(group.to_stop(StopReason::NotAdmitted)), ["running", "ungated"]);
    assert_eq!(names(group.to_stop(StopReason::WorkloadDeleted)), ["done", "gated", "running", "ungated"]);
    assert_eq!(names(group.gated().collect()), ["gated"]);
    assert_eq!(group.held().count(), 5);
}

#[test]
fn a_pod_is_active_until_its_grace_is_over() {
    let (now, later) = (at("2026-01-02T03:59:00Z"), at("2026-01-02T04:00:00Z"));
    let leaving = with(with(pod("a"), &running()), &[deleted("2026-01-02T04:00:00Z")]);
    let mut group = group(&[leaving, pod("b")]);
    assert_eq!(group.active_until(now, false), Some(Some(later)));
    assert_eq!(group.active_until(later, false), None);
    assert_eq!(group.active_until(now, true), None);
    group.insert(member(&with(pod("b"), &running())));
    assert_eq!(group.active_until(later, true), Some(None));
    group.remove("b");
    assert_eq!(group.active_until(later, false), None);
}

#[test]
fn ready_are_those_that_are_and_those_that_were() {
    let ready = |name: &str| {
        with(
            with(pod(name), &running()),
            &[("/status/conditions", json!([{"type": "Ready", "status": "True"}]))],
        )
    };
    let mut group = group(&[ready("a"), with(pod("b"), &[phase("Succeeded")]), with(pod("c"), &running())]);
    assert!(!group.pods_ready());
    group.insert(member(&ready("c")));
    assert!(group.pods_ready());
    group.remove("a");
    assert!(!group.pods_ready());
}

#[test]
fn nothing_more_is_removed_until_it_is_seen() {
    let mut group = group(&[pod("a"), pod("b"), with(pod("free"), &[("/metadata/finalizers", json!([]))])]);
    let (a, b, free) = (Arc::from("a"), Arc::from("b"), Arc::from("free"));
    group.expect(&[Arc::clone(&a), b, free]);
    assert!(!group.is_settled());
    group.insert(member(&with(pod("a"), &[("/metadata/resourceVersion", json!("8"))])));
    assert!(!group.is_settled());
    group.insert(member(&with(pod("a"), &[("/metadata/finalizers", json!(["example.com/other"]))])));
    group.remove("b");
    assert!(group.is_settled());
    group.insert(member(&pod("a")));
    group.expect(&[Arc::clone(&a)]);
    group.expect_no_longer("uid-a");
    assert!(group.is_settled());
    // A namesake is another pod.
    group.expect(&[a]);
    group.insert(member(&with(pod("a"), &[("/metadata/uid", json!("another"))])));
    assert!(group.is_settled());
}

#[test]
fn a_start_lets_a_pod_be_scheduled() {
    let info = PodSetInfo {
        name: "driver".to_owned(),
        count: 3,
        scheduling: PodScheduling {
            node_selector: BTreeMap::from([("type".to_owned(), "spot".to_owned())]),
            annotations: BTreeMap::from([("kueue.x-k8s.io/workload".to_owned(), "g".to_owned())]),
            ..PodScheduling::default()
        },
    };
    let gated = pod("a");
    let patch = start(&member(&gated), &info).unwrap().unwrap();
    let started = apply(&gated, &patch).unwrap();
    assert_eq!(started["spec"]["nodeSelector"], json!({"type": "spot"}));
    assert_eq!(started["spec"].get("schedulingGates"), None);
    assert_eq!(started["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "g");
    assert_eq!(started["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"], "driver");
    assert_eq!(start(&member(&started), &info), Ok(None));
    let stale = with(gated.clone(), &[("/metadata/resourceVersion", json!("8"))]);
    assert!(apply(&stale, &patch).is_err());

    // Where a topology decides, and where another controller has a gate, those stay.
    let mut placed = info.clone();
    placed.scheduling.scheduling_gates = serde_json::from_value(json!([{"name": TOPOLOGY}])).unwrap();
    let others = with(
        gated,
        &[("/spec/schedulingGates", json!([{"name": "x/y"}, {"name": GATE}, {"name": TOPOLOGY}]))],
    );
    let started = apply(&others, &start(&member(&others), &placed).unwrap().unwrap()).unwrap();
    assert_eq!(started["spec"]["schedulingGates"], json!([{"name": "x/y"}, {"name": TOPOLOGY}]));

    // One that was made without the gate of topologies cannot get it any more.
    let before = with(pod("a"), &[("/spec/schedulingGates", json!([{"name": GATE}]))]);
    let started = apply(&before, &start(&member(&before), &placed).unwrap().unwrap()).unwrap();
    assert_eq!(started["spec"].get("schedulingGates"), None);

    let other_node = with(pod("a"), &[("/spec/nodeSelector", json!({"type": "reserved"}))]);
    let why = start(&member(&other_node), &info).unwrap_err().to_string();
    assert_eq!(
        why,
        "pod set \"driver\": conflict for nodeSelector: conflict for key=type, value1=reserved, value2=spot"
    );
}

#[test]
fn the_end_of_a_pod_is_announced() {
    let body = termination(
        &member(&pod("a")),
        StopReason::Evicted("Preempted"),
        "for another",
        at("2026-01-02T03:04:05.9Z"),
    );
    assert_eq!(
        body,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "uid-a"},
            "status": {"conditions": [{"type": "TerminationTarget", "status": "True", "message": "for another",
                "reason": "WorkloadEvictedDueToPreempted", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
        })
    );
    for (reason, text) in [
        (StopReason::WorkloadDeleted, "WorkloadDeleted"),
        (StopReason::NoMatchingWorkload, "NoMatchingWorkload"),
        (StopReason::NotAdmitted, "NotAdmitted"),
    ] {
        assert_eq!(reason.to_string(), text);
    }
}

#[test]
fn only_our_finalizer_is_taken_off() {
    let patch = finalize(&member(&pod("a"))).unwrap();
    assert_eq!(
        patch.body(),
        json!({"metadata": {"resourceVersion": "7", "$deleteFromPrimitiveList/finalizers": [MANAGED]}})
    );
    assert_eq!(
        finalize(&member(&with(pod("a"), &[("/metadata/finalizers", json!(["example.com/other"]))]))),
        None
    );
}
