//! Pods that get a place in the topology (docs/reference/06-algorithm.md 6.13 and 6.14).

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::contract::{answer, cq, submit};
use crate::gate_removal::removals;
use crate::model::build::pod_set;
use crate::model::{Api, Cluster};
use crate::waiting::gate;

const GATE: &str = "kueue.x-k8s.io/topology";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const HOSTNAME: &str = "kubernetes.io/hostname";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// An assignment of nodes with the pods of each.
pub fn nodes(nodes: &[(&str, i32)]) -> Value {
    let (roots, counts): (Vec<_>, Vec<_>) = nodes.iter().copied().unzip();
    let mut values = json!({"individual": {"roots": roots}});
    if let [only] = roots[..] {
        values = json!({"universal": only});
    }
    json!({"levels": [HOSTNAME], "slices": [{
        "domainCount": nodes.len(), "valuesPerLevel": [values], "podCounts": {"individual": counts},
    }]})
}

fn workload(c: &Cluster) -> ObjectRef {
    Api::workload_ref(&c.workload("a"))
}

fn assign(c: &mut Cluster, assignment: &Value) {
    let workload = workload(c);
    c.api.edit_status(&workload, |status| {
        status["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment.clone();
    });
}

/// A job of `pods` numbered pods that was admitted with an assignment, and runs.
fn running(config: EngineConfig, pods: i32, assignment: &Value) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("1000000", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
    c.api.active_check("ok");
    submit(&mut c, "a", "lq", pods, |view| {
        let numbered = PodSetTopologyRequest {
            pod_index_label: Some(INDEX.to_owned()),
            ..PodSetTopologyRequest::default()
        };
        view.pod_sets[0].topology_request = Some(Box::new(numbered));
    });
    assign(&mut c, assignment);
    c.settle();
    answer(&mut c, "a", "Ready", "");
    assert!(!c.api.job("a").view.suspended);
    c
}

/// The same as a manager without a configuration of its own has it, on these nodes with `pods` pods each.
pub fn placed(pods: i32, on: &[(&str, i32)]) -> Cluster {
    running(EngineConfig::default(), pods, &nodes(on))
}

fn pod_ref(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::JobPod, "team-a", name)
}

/// A pod as the job's controller makes it of the template.
fn pod(c: &Cluster, name: &str, index: Option<i32>) -> Value {
    let set = c.api.job("a").view.pod_sets[0].scheduling.clone();
    let mut labels = json!(set.labels);
    if let Some(index) = index {
        labels[INDEX] = json!(index.to_string());
    }
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "controller": true,
        "uid": c.api.job("a").view.job.uid});
    json!({
        "metadata": {"namespace": "team-a", "name": name, "labels": labels, "annotations": set.annotations,
            "ownerReferences": [owner]},
        "spec": {"schedulingGates": set.scheduling_gates, "nodeSelector": set.node_selector, "containers": []},
        "status": {"phase": "Pending"},
    })
}

pub fn add(c: &mut Cluster, name: &str, index: Option<i32>) {
    let made = pod(c, name, index);
    c.api.put(Kind::JobPod, made);
}

/// Each pod with its node; `-` while it waits.
pub fn seats(c: &Cluster) -> Vec<String> {
    let seat = |pod: &ObjectRef| {
        let spec = &c.api.json(pod).unwrap()["spec"];
        let waits = spec["schedulingGates"].to_string().contains(GATE);
        let node = spec["nodeSelector"][HOSTNAME].as_str().filter(|_| !waits).unwrap_or("-");
        format!("{} {node}", pod.name)
    };
    c.api.names(Kind::JobPod).iter().map(seat).collect()
}

fn edit(c: &mut Cluster, pod: &str, patch: &Value) {
    c.api.edit(&pod_ref(pod), patch);
}

#[test]
fn a_start_adds_what_pods_wait_by_and_a_stop_takes_it_away() {
    for (on, explicit) in [(true, false), (true, true), (false, false)] {
        let mut c = Cluster::new(gate(Gate::TopologyAwareScheduling, on));
        c.api.namespace("team-a", &[]);
        c.api.simple("9", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
        c.api.active_check("ok");
        let mut own = Vec::new();
        submit(&mut c, "a", "lq", 2, |view| {
            if explicit {
                let key = "kueue.x-k8s.io/podset-required-topology".to_owned();
                view.pod_sets[0].scheduling.annotations.insert(key.clone(), "rack".to_owned());
                own.push(key);
            }
        });
        assign(&mut c, &nodes(&[("n1", 2)]));
        c.settle();
        answer(&mut c, "a", "Ready", "");
        let of = |c: &Cluster| c.api.job("a").view.pod_sets[0].scheduling.clone();
        let set = of(&c);
        let gates: Vec<_> = set.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
        assert_eq!(gates, if on { &[GATE][..] } else { &[] });
        assert_eq!(set.annotations.get(UNCONSTRAINED).is_some_and(|v| v == "true"), on && !explicit);
        assert!(set.annotations.contains_key("kueue.x-k8s.io/workload"));
        if on {
            assert_eq!(set.labels["kueue.x-k8s.io/podset"], "main");
        }
        c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
        c.settle();
        let set = of(&c);
        assert!(c.api.job("a").view.suspended && set.scheduling_gates.is_empty());
        assert!(set.annotations.keys().all(|key| key != UNCONSTRAINED) && set.labels.is_empty());
    }
}

#[test]
fn the_label_of_the_pod_set_and_the_gate_come_with_the_topology_alone() {
    let mut config = gate(Gate::AssignQueueLabelsForPods, false);
    config.status_interval_ms = 0;
    let c = running(config, 1, &nodes(&[("n1", 1)]));
    let set = c.api.job("a").view.pod_sets[0].scheduling.clone();
    assert_eq!(set.labels, [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into());
    let mut c = Cluster::plain();
    c.api.simple("9", &json!({}));
    submit(&mut c, "a", "lq", 1, |_| {});
    assert!(c.api.job("a").view.pod_sets[0].scheduling.scheduling_gates.is_empty());
}

#[test]
fn each_pod_gets_into_the_domain_of_its_rank_whenever_it_comes() {
    let mut c = placed(3, &[("n1", 1), ("n2", 2)]);
    add(&mut c, "a-x", Some(2));
    c.settle();
    add(&mut c, "a-y", Some(0));
    add(&mut c, "a-z", Some(1));
    c.settle();
    assert_eq!(seats(&c), ["a-x n2", "a-y n1", "a-z n2"]);
    assert_eq!(c.written(Purpose::UngatePod), 3, "one write for each");
    let spec = &c.api.json(&pod_ref("a-x")).unwrap()["spec"];
    assert_eq!(spec["nodeSelector"], json!({"pool": "default", HOSTNAME: "n2"}), "beside that of the flavor");
    assert!(spec["schedulingGates"].is_null());
}

/// As the mpi-operator counts workers whose launcher works, too.
#[test]
fn pods_that_are_not_counted_from_0_get_into_the_domains_of_their_ranks() {
    let mut c = placed(3, &[("n1", 1), ("n2", 2)]);
    for (name, index) in [("a-x", 3), ("a-y", 1), ("a-z", 2)] {
        let mut made = pod(&c, name, Some(index));
        made["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] = json!("1");
        c.api.put(Kind::JobPod, made);
        c.settle();
    }
    assert_eq!(seats(&c), ["a-x n2", "a-y n1", "a-z n2"]);
}

#[test]
fn pods_without_ranks_fill_domains_in_order_and_none_gets_more_than_it_has() {
    let mut c = placed(3, &[("n1", 2), ("n2", 1)]);
    for name in ["p1", "p2", "p3", "p4"] {
        add(&mut c, name, None);
    }
    c.settle();
    assert_eq!(seats(&c), ["p1 n1", "p2 n1", "p3 n2", "p4 -"]);
    // One that ended makes room; one that terminates does not until it ended.
    edit(
        &mut c,
        "p2",
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n1"}}),
    );
    c.settle();
    assert_eq!(seats(&c)[3], "p4 -");
    edit(&mut c, "p2", &json!({"status": {"phase": "Failed"}}));
    c.settle();
    assert_eq!(seats(&c)[3], "p4 n1");
}

#[test]
fn what_has_another_gate_of_ours_waits_for_that_first_and_foreign_gates_stay() {
    let mut c = placed(2, &[("n1", 2)]);
    let mut held = pod(&c, "a-0", Some(0));
    held["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": GATE}]);
    let mut foreign = pod(&c, "a-1", Some(1));
    foreign["spec"]["schedulingGates"] = json!([{"name": GATE}, {"name": "a/b"}]);
    c.api.put(Kind::JobPod, held);
    c.api.put(Kind::JobPod, foreign);
    c.settle();
    assert_eq!(seats(&c), ["a-0 -", "a-1 n1"]);
    assert_eq!(c.api.json(&pod_ref("a-1")).unwrap()["spec"]["schedulingGates"], json!([{"name": "a/b"}]));
    edit(&mut c, "a-0", &json!({"spec": {"schedulingGates": [{"name": GATE}]}}));
    c.settle();
    assert_eq!(seats(&c)[0], "a-0 n1");
}

#[test]
fn no_pod_is_ungated_without_the_feature_or_an_admission_that_is_written() {
    let off = gate(Gate::TopologyAwareScheduling, false);
    let mut c = running(off, 1, &nodes(&[("n1", 1)]));
    let mut waits = pod(&c, "a-0", Some(0));
    waits["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    c.api.put(Kind::JobPod, waits.clone());
    c.settle();
    assert_eq!(seats(&c), ["a-0 -"], "the feature gate is off");

    let mut c = placed(1, &[("n1", 1)]);
    waits = pod(&c, "a-0", Some(0));
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    c.api.put(Kind::JobPod, waits);
    c.settle();
    assert_eq!(seats(&c), ["a-0 -"], "it was evicted");
}

#[test]
fn a_pod_with_a_write_under_way_counts_in_its_new_domain() {
    let mut c = placed(2, &[("n1", 1), ("n2", 1)]);
    c.slow = Some(Purpose::UngatePod);
    add(&mut c, "p1", None);
    c.settle();
    add(&mut c, "p2", None);
    c.settle();
    assert_eq!(c.written(Purpose::UngatePod), 2);
    c.slow = None;
    assert!(removals(&c).is_empty());
    c.release();
    assert_eq!(seats(&c), ["p1 n1", "p2 n2"]);
    assert_eq!(removals(&c), [format!("{GATE} cq false 0"), format!("{GATE} cq false 0")]);
}

#[test]
fn a_write_whose_answer_is_lost_holds_its_place_and_is_made_again() {
    for carried_out in [true, false] {
        let mut c = placed(2, &[("n1", 1), ("n2", 1)]);
        if carried_out {
            c.lost = Some(Purpose::UngatePod);
        } else {
            c.fail.push_back((Purpose::UngatePod, WriteError::Transient("overloaded".to_owned())));
        }
        add(&mut c, "p2", None);
        c.settle();
        add(&mut c, "p1", None);
        c.settle();
        assert_eq!(seats(&c)[0], "p1 n2");
        c.advance(5);
        assert_eq!(seats(&c), ["p1 n2", "p2 n1"]);
    }
}

#[test]
fn a_conflict_after_a_lost_answer_gives_no_place_away() {
    let mut c = placed(1, &[("n1", 1)]);
    c.slow = Some(Purpose::UngatePod);
    add(&mut c, "p2", None);
    c.settle();
    add(&mut c, "p1", None);
    c.settle();
    c.blind = Some(Kind::JobPod);
    c.time_out();
    c.arrive();
    c.advance(60);
    assert_eq!(seats(&c), ["p1 -", "p2 n1"], "what the second write is in conflict with is the first");
}

#[test]
fn a_refused_write_is_tried_again_later_and_the_place_is_not_kept_for_it() {
    let mut c = placed(1, &[("n1", 1)]);
    c.fail.push_back((Purpose::UngatePod, WriteError::Refused("no".to_owned())));
    add(&mut c, "p1", None);
    c.settle();
    assert_eq!(seats(&c), ["p1 -"]);
    c.advance(3);
    assert_eq!(seats(&c), ["p1 -"]);
    c.advance(60);
    assert_eq!(seats(&c), ["p1 n1"]);
}

#[test]
fn a_new_leader_continues_where_another_left() {
    let mut c = placed(3, &[("n1", 2), ("n2", 1)]);
    add(&mut c, "p1", None);
    c.settle();
    c.restart_without(&[Kind::JobPod]);
    add(&mut c, "p2", None);
    add(&mut c, "p3", None);
    c.settle();
    assert_eq!(seats(&c), ["p1 n1", "p2 -", "p3 -"], "who runs is not known yet");
    c.restart();
    c.settle();
    assert_eq!(seats(&c), ["p1 n1", "p2 n1", "p3 n2"]);
}

#[test]
fn an_unhealthy_node_gets_no_pods_and_those_on_their_way_there_fail() {
    let mut c = placed(3, &[("n1", 1), ("n2", 1), ("n3", 1)]);
    for (name, index) in [("p0", 0), ("p1", 1)] {
        add(&mut c, name, Some(index));
    }
    c.settle();
    edit(&mut c, "p1", &json!({"spec": {"nodeName": "n2"}, "status": {"phase": "Running"}}));
    let unhealthy = |c: &mut Cluster, nodes: &[&str]| {
        let list: Vec<_> = nodes.iter().map(|node| json!({"name": node})).collect();
        let workload = workload(c);
        c.api.edit_status(&workload, |status| status["unhealthyNodes"] = json!(list));
    };
    unhealthy(&mut c, &["n1", "n2", "n3"]);
    add(&mut c, "p2", Some(2));
    c.settle();
    let status = |c: &Cluster, pod: &str| c.api.json(&pod_ref(pod)).unwrap()["status"].clone();
    assert_eq!(status(&c, "p0")["phase"], "Failed");
    let condition = &status(&c, "p0")["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("TerminatedByKueue"), &json!("True")));
    assert_eq!(condition["reason"], "UnschedulableOnAssignedNode");
    let text = "Pod terminated by Kueue NodeController due to node taint";
    assert_eq!(condition["message"], text);
    let event = c.events.iter().find(|event| event.reason == "PodTerminatedByKueue").unwrap();
    assert_eq!((event.action.as_str(), event.note.as_str()), ("PodTerminated", text));
    assert_eq!(status(&c, "p1")["phase"], "Running", "it has a node");
    assert_eq!((seats(&c)[2].as_str(), c.written(Purpose::FailPod)), ("p2 -", 1));
    // Another node takes the place. The order of the domains is another one then, so that the ranks do not count.
    assign(&mut c, &nodes(&[("n2", 1), ("n3", 1), ("n4", 1)]));
    unhealthy(&mut c, &[]);
    add(&mut c, "p3", Some(0));
    c.settle();
    assert_eq!(seats(&c), ["p0 n1", "p1 n2", "p2 n4", "p3 n3"]);
}

#[test]
fn a_pod_that_waits_for_a_node_that_was_replaced_fails() {
    let mut c = placed(1, &[("n1", 1)]);
    add(&mut c, "p0", Some(0));
    c.settle();
    assign(&mut c, &nodes(&[("n2", 1)]));
    c.settle();
    assert_eq!(c.api.json(&pod_ref("p0")).unwrap()["status"]["phase"], "Failed");
}

#[test]
fn pod_sets_have_their_own_domains_and_workers_are_counted_after_their_leader() {
    let mut c = Cluster::plain();
    c.api.simple("9", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}}));
    c.api.active_check("ok");
    submit(&mut c, "a", "lq", 1, |view| {
        view.pod_sets[0].name = "leader".to_owned();
        view.pod_sets.push(pod_set("worker", 2, "1"));
        for set in &mut view.pod_sets {
            set.topology_request = Some(Box::new(PodSetTopologyRequest {
                pod_set_group_name: Some("g".to_owned()),
                pod_index_label: Some(INDEX.to_owned()),
                ..PodSetTopologyRequest::default()
            }));
        }
    });
    let of = workload(&c);
    c.api.edit_status(&of, |status| {
        let assignments = &mut status["admission"]["podSetAssignments"];
        assignments[0]["topologyAssignment"] = nodes(&[("n1", 1)]);
        assignments[1]["topologyAssignment"] = nodes(&[("n1", 1), ("n2", 1)]);
    });
    c.settle();
    answer(&mut c, "a", "Ready", "");
    for (name, set, index) in [("l", "leader", 0), ("w2", "worker", 2), ("w1", "worker", 1)] {
        let mut made = pod(&c, name, Some(index));
        made["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!(set);
        c.api.put(Kind::JobPod, made);
        c.settle();
    }
    assert_eq!(seats(&c), ["l n1", "w1 n1", "w2 n2"]);
}

#[test]
fn many_pods_are_looked_at_once_a_second_and_all_get_a_place() {
    let count = 300;
    let mut c = placed(count, &[("n1", 100), ("n2", 200)]);
    c.checked = false;
    for index in 0..count {
        add(&mut c, &format!("p{index:03}"), Some(index));
        if index % 50 == 0 {
            c.settle();
        }
    }
    c.settle();
    assert!(seats(&c).iter().any(|seat| seat.ends_with('-')), "the first look is a second old at most");
    c.advance(2);
    let on = |c: &Cluster, node: &str| seats(c).iter().filter(|seat| seat.ends_with(node)).count();
    assert_eq!((on(&c, " n1"), on(&c, " n2")), (100, 200));
    assert_eq!(seats(&c)[99..101], ["p099 n1", "p100 n2"]);
    assert_eq!(c.written(Purpose::UngatePod), 300);
}

#[test]
fn the_pods_of_an_elastic_job_follow_the_slice_that_runs_once_it_has_room_for_them() {
    let elastic = "kueue.x-k8s.io/elastic-job";
    let mut c = Cluster::plain();
    c.api.simple("9", &json!({}));
    submit(&mut c, "a", "lq", 1, |view| {
        view.annotations.insert(elastic.to_owned(), "true".to_owned());
        let gate = PodSchedulingGate { name: elastic.to_owned() };
        view.pod_sets[0].scheduling.scheduling_gates.push(gate);
    });
    let slice = |c: &Cluster, count: i32| {
        let of = c.api.workloads_of(&c.api.job("a").view.job.uid);
        of.into_iter().find(|w| w.spec.pod_sets[0].count == count).unwrap()
    };
    let first = slice(&c, 1).metadata.name.unwrap();
    let give = |c: &mut Cluster, count: i32, domains: &[(&str, i32)]| {
        let slice = Api::workload_ref(&slice(c, count));
        c.api.edit_status(&slice, |status| {
            status["admission"]["podSetAssignments"][0]["topologyAssignment"] = nodes(domains);
        });
        c.settle();
    };
    let make = |c: &mut Cluster, name: &str| {
        let uid = c.api.job("a").view.job.uid.to_string();
        let mut made = pod(c, name, None);
        made["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-name"] = json!(first);
        // As a start with an assignment leaves it.
        made["metadata"]["annotations"][UNCONSTRAINED] = json!("true");
        made["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": uid, "controller": true}]);
        made["spec"]["schedulingGates"] = json!([{"name": elastic}, {"name": GATE}]);
        c.api.put(Kind::JobPod, made);
        c.settle();
    };
    give(&mut c, 1, &[("n1", 1)]);
    make(&mut c, "p1");
    make(&mut c, "p2");
    assert_eq!(seats(&c), ["p1 n1", "p2 -"]);
    c.api.edit_job("a", |job| {
        job.view.pod_sets[0].count = 2;
        job.view.generation += 1;
    });
    c.settle();
    c.advance(1);
    assert_eq!(seats(&c), ["p1 n1", "p2 -"], "it has no domain yet");
    give(&mut c, 2, &[("n1", 1), ("n2", 1)]);
    assert_eq!(seats(&c), ["p1 n1", "p2 n2"]);
}

/// Any user can write a Workload's name into a pod: one that no job made gets no place.
#[test]
fn a_pod_without_the_controllers_of_the_job_gets_no_place() {
    let mut c = placed(2, &[("n1", 2)]);
    let strangers = [
        json!([]),
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "b", "controller": true,
        "uid": "uid-b"}]),
    ];
    c.api.add_job(crate::model::build::job("team-a", "b", "lq", 1, "1"));
    c.settle();
    let other = c.api.job("b").view.job.uid.to_string();
    for (name, mut owners) in ["p1", "p2"].into_iter().zip(strangers) {
        if let Some(owner) = owners.get_mut(0) {
            owner["uid"] = json!(other);
        }
        let mut made = pod(&c, name, Some(0));
        made["metadata"]["ownerReferences"] = owners;
        c.api.put(Kind::JobPod, made);
    }
    c.settle();
    assert_eq!(seats(&c), ["p1 -", "p2 -"]);
    add(&mut c, "p3", Some(0));
    c.settle();
    assert_eq!(seats(&c), ["p1 -", "p2 -", "p3 n1"]);
}
