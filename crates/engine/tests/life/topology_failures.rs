//! Nodes that fail under Workloads with a topology assignment (docs/reference/06-algorithm.md 6.14).

use std::sync::Arc;

use serde_json::json;
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::contract::{answer, submit};
use crate::model::pods::pod;
use crate::model::{Api, condition};
use crate::topology::{
    HOSTNAME, THREE, add_node, bed, bed_with, end_pod, gates, in_rack, names_of, node_ref, nodes_of,
    not_ready, provisioned, ready, run_pods, runs, submit_in_rack, taint, unhealthy, workload,
};

const TWO_FAILED: &str = "Workload eviction triggered due to multiple TAS assigned node failures, including:";

#[test]
fn a_node_that_fails_is_replaced_once_its_pods_are_gone() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    let pods = run_pods(&mut c, "a");
    not_ready(&mut c, "n1");
    c.advance(120);
    assert_eq!(unhealthy(&c, "a"), [""; 0], "its pod may come back");
    c.late = Some(Purpose::UnhealthyNodes);
    end_pod(&mut c, &pods["n1"]);
    assert_eq!(
        (unhealthy(&c, "a"), names_of(&c, "a")),
        (vec!["n1".to_owned()], vec!["n1".to_owned(), "n2".to_owned()])
    );
    c.release();
    c.advance(1);
    assert_eq!(names_of(&c, "a"), ["n2", "n3"]);
    assert_eq!(unhealthy(&c, "a"), [""; 0]);
    assert!(runs(&c, "a") && condition(&c.workload("a"), "Evicted").is_empty());
    c.advance(120);
    assert_eq!((c.written(Purpose::UnhealthyNodes), c.written(Purpose::Place)), (1, 1));
    // The node comes back, and is free.
    ready(&mut c, "n1");
    submit_in_rack(&mut c, "b", 1);
    assert_eq!(names_of(&c, "b"), ["n1"]);
}

#[test]
fn a_pod_that_still_ends_on_a_replaced_node_takes_its_part_of_it() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    let pods = run_pods(&mut c, "a");
    not_ready(&mut c, "n1");
    for kind in [Kind::Pod, Kind::JobPod] {
        let at = c.now.to_string();
        let pod = ObjectRef { kind, ..pods["n1"].clone() };
        c.api.edit(&pod, &json!({"metadata": {"deletionTimestamp": at}}));
    }
    c.settle();
    c.advance(1);
    assert_eq!(names_of(&c, "a"), ["n2", "n3"], "it ends, so that it is no reason to wait");
    ready(&mut c, "n1");
    submit_in_rack(&mut c, "b", 1);
    assert!(!runs(&c, "b"));
    end_pod(&mut c, &pods["n1"]);
    assert_eq!(names_of(&c, "b"), ["n1"]);
}

#[test]
fn without_a_replacement_the_workload_is_evicted_and_waits() {
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r1", "1"), ("n3", "r2", "1")]);
    submit_in_rack(&mut c, "a", 2);
    c.api.delete(&node_ref("n1"));
    c.settle();
    assert_eq!(unhealthy(&c, "a"), ["n1"], "a node that is gone has failed at once");
    c.advance(1);
    let said =
        "True/NodeFailures: Workload was evicted as there was no replacement for unhealthy node(s): n1";
    let evicted = c.notes("EvictedDueToNodeFailures");
    assert_eq!(evicted, [format!("Workload/job-a: {}", said.split_once(": ").unwrap().1)]);
    assert!(!runs(&c, "a") && nodes_of(&c, "a").is_empty() && unhealthy(&c, "a").is_empty());
    assert_eq!(condition(&c.workload("a"), "Requeued"), "True");
    add_node(&mut c, "n4", "r2", "1");
    c.settle();
    assert_eq!(names_of(&c, "a"), ["n3", "n4"]);
}

#[test]
fn where_nodes_are_not_the_lowest_level_none_is_replaced() {
    let mut c = bed(&THREE);
    let levels = json!({"levels": [{"nodeLabel": "rack"}]});
    c.api.put(Kind::Topology, json!({"metadata": {"name": "dc"}, "spec": levels}));
    submit_in_rack(&mut c, "a", 2);
    let before = nodes_of(&c, "a");
    c.api.delete(&node_ref("n1"));
    not_ready(&mut c, "n2");
    c.settle();
    c.advance(120);
    assert!(runs(&c, "a") && condition(&c.workload("a"), "Evicted").is_empty());
    assert_eq!((unhealthy(&c, "a"), nodes_of(&c, "a")), (Vec::new(), before));
    assert_eq!((c.written(Purpose::UnhealthyNodes), c.written(Purpose::Place)), (0, 0));
}

#[test]
fn a_second_failed_node_evicts() {
    let mut c = bed_with(gates(&[(Gate::TASFailedNodeReplacementFailFast, false)]), &THREE, &json!({}));
    submit_in_rack(&mut c, "a", 3);
    c.api.delete(&node_ref("n2"));
    c.settle();
    c.advance(10);
    assert!(runs(&c, "a") && unhealthy(&c, "a") == ["n2"], "it waits for another node");
    assert!(!c.notes("SecondPassFailed").is_empty());
    c.api.delete(&node_ref("n1"));
    c.settle();
    assert_eq!(c.notes("EvictedDueToNodeFailures"), [format!("Workload/job-a: {TWO_FAILED} n2, n1")]);
    assert!(!runs(&c, "a"));
}

#[test]
fn two_nodes_that_fail_at_once_evict() {
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r1", "1"), ("n3", "r1", "9")]);
    submit(&mut c, "a", "lq", 2, in_rack);
    assert_eq!(names_of(&c, "a"), ["n3"]);
    submit(&mut c, "b", "lq", 9, in_rack);
    assert_eq!(names_of(&c, "b"), ["n1", "n2", "n3"]);
    for name in ["n1", "n2"] {
        c.api.delete(&node_ref(name));
    }
    c.settle();
    assert_eq!(c.notes("EvictedDueToNodeFailures"), [format!("Workload/job-b: {TWO_FAILED} n1, n2")]);
    assert!(runs(&c, "a") && !runs(&c, "b"));
}

#[test]
fn a_node_that_recovers_leaves_the_list() {
    let mut c = bed_with(gates(&[(Gate::TASFailedNodeReplacementFailFast, false)]), &THREE, &json!({}));
    submit_in_rack(&mut c, "a", 3);
    not_ready(&mut c, "n2");
    c.advance(3);
    assert_eq!(unhealthy(&c, "a"), ["n2"]);
    ready(&mut c, "n2");
    assert_eq!(unhealthy(&c, "a"), [""; 0]);
    c.advance(120);
    assert!(runs(&c, "a") && names_of(&c, "a") == ["n1", "n2", "n3"]);
    assert_eq!((c.written(Purpose::UnhealthyNodes), c.written(Purpose::Place)), (2, 0));
}

#[test]
fn gates_say_which_nodes_have_failed() {
    let on_pods = Gate::TASReplaceNodeOnPodTermination;
    let by_time = Gate::TASReplaceNodeDueToNotReadyOverFixedTime;
    // Seconds after which a node with running pods that is not ready has failed.
    for (changes, fails) in [
        (&[][..], None),
        (&[(by_time, true)], Some(30)),
        (&[(on_pods, false)], Some(30)),
        (&[(on_pods, false), (by_time, true)], Some(30)),
        (&[(by_time, true), (Gate::TASFailedNodeReplacement, false)], None),
    ] {
        let mut c = bed_with(gates(changes), &THREE, &json!({}));
        submit_in_rack(&mut c, "a", 2);
        run_pods(&mut c, "a");
        not_ready(&mut c, "n2");
        c.advance(29);
        assert_eq!(names_of(&c, "a"), ["n1", "n2"], "{changes:?}");
        c.advance(3);
        let now = if fails.is_some() { ["n1", "n3"] } else { ["n1", "n2"] };
        assert_eq!(names_of(&c, "a"), now, "{changes:?}");
        assert!(runs(&c, "a"));
    }
}

#[test]
fn a_taint_that_is_not_tolerated_fails_a_node_without_pods() {
    let taints = json!([{"key": "bad", "value": "x", "effect": "NoExecute"}]);
    let toleration =
        |seconds: Option<i64>| json!([{"key": "bad", "operator": "Exists", "tolerationSeconds": seconds}]);
    let on_pods = Gate::TASReplaceNodeOnPodTermination;
    let cases = [
        // Gates, tolerations of the pods, whether it fails with pods on it, and after them.
        (&[][..], json!([]), false, true),
        (&[], toleration(None), false, false),
        (&[], toleration(Some(60)), false, true),
        (&[(on_pods, false)], json!([]), true, true),
        (&[(on_pods, false)], toleration(Some(60)), false, true),
        (&[(Gate::TASReplaceNodeOnNodeTaints, false)], json!([]), false, false),
    ];
    for (changes, tolerations, at_once, later) in cases {
        let mut c = bed_with(gates(changes), &THREE, &json!({}));
        submit(&mut c, "a", "lq", 2, |view| {
            in_rack(view);
            let tolerations = serde_json::from_value(tolerations.clone()).unwrap();
            let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
            template.spec.as_mut().unwrap().tolerations = Some(tolerations);
        });
        let pods = run_pods(&mut c, "a");
        let case = format!("{changes:?} {tolerations}");
        taint(&mut c, "n2", &json!([{"key": "soft", "effect": "PreferNoSchedule"}]));
        taint(&mut c, "n2", &taints);
        c.advance(2);
        let nodes = |fails: bool| if fails { ["n1", "n3"] } else { ["n1", "n2"] };
        assert_eq!(names_of(&c, "a"), nodes(at_once), "{case}");
        end_pod(&mut c, &pods["n2"]);
        c.advance(2);
        assert_eq!(names_of(&c, "a"), nodes(later), "{case}");
    }
}

#[test]
fn nodes_are_found_by_their_hostname_which_need_not_be_their_name() {
    let mut c = bed(&[]);
    for (name, host) in [("ip-1.internal", "h1"), ("ip-2.internal", "h2"), ("ip-3.internal", "h3")] {
        let node = add_node(&mut c, name, "r1", "1");
        c.api.edit(&node, &json!({"metadata": {"labels": {HOSTNAME: host}}}));
    }
    submit_in_rack(&mut c, "a", 2);
    assert_eq!(names_of(&c, "a"), ["h1", "h2"]);
    c.advance(60);
    assert!(unhealthy(&c, "a").is_empty());
    c.api.delete(&node_ref("ip-1.internal"));
    c.settle();
    assert_eq!(unhealthy(&c, "a"), ["h1"]);
    c.advance(1);
    assert_eq!(names_of(&c, "a"), ["h2", "h3"]);
}

#[test]
fn nodes_that_could_not_be_written_are_found_again_but_not_all_the_time() {
    for error in [
        WriteError::Transient("502".to_owned()),
        WriteError::Conflict("409".to_owned()),
        WriteError::Refused("422".to_owned()),
    ] {
        let mut c = bed(&THREE);
        submit_in_rack(&mut c, "a", 2);
        c.refuse = Some((Purpose::Place, error.clone()));
        c.api.delete(&node_ref("n1"));
        c.settle();
        c.advance(60);
        assert!(runs(&c, "a") && names_of(&c, "a") == ["n1", "n2"], "{error}");
        assert!((1..=15).contains(&c.refused), "{error}: {}", c.refused);
        c.refuse = None;
        c.advance(900);
        assert_eq!(names_of(&c, "a"), ["n2", "n3"], "{error}");
        assert!(runs(&c, "a") && unhealthy(&c, "a").is_empty(), "{error}");
    }
}

#[test]
fn a_lost_answer_keeps_the_nodes_that_may_have_been_written() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.lost = Some(Purpose::Place);
    c.blind = Some(Kind::Workload);
    c.api.delete(&node_ref("n1"));
    // The watch of Workloads says nothing: only the read shows what became of the write.
    c.settle();
    c.advance(5);
    assert_eq!(names_of(&c, "a"), ["n2", "n3"]);
    assert_eq!(c.written(Purpose::Place), 1);
    c.blind = None;
    submit_in_rack(&mut c, "b", 1);
    assert!(!runs(&c, "b"), "no node is given twice");
}

#[test]
fn nodes_that_a_look_shows_to_be_written_do_not_count_as_failed_any_more() {
    let refused = || WriteError::Refused("not yet".to_owned());
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.lost = Some(Purpose::Place);
    c.fail.extend(vec![(Purpose::Read, refused()); 3]);
    c.api.delete(&node_ref("n1"));
    c.advance(20);
    assert!(names_of(&c, "a") == ["n2", "n3"] && c.fail.is_empty());
    c.fail.push_back((Purpose::Evict, refused()));
    let of = workload(&c, "a");
    c.api.edit(&of, &json!({"spec": {"active": false}}));
    c.advance(6);
    assert!(c.fail.is_empty() && !runs(&c, "a"));
}

#[test]
fn nodes_may_go_and_workloads_end_while_a_placement_is_written() {
    // The Workload is deactivated meanwhile.
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.slow = Some(Purpose::Place);
    c.api.delete(&node_ref("n1"));
    c.settle();
    c.advance(1);
    let of = workload(&c, "a");
    c.api.edit(&of, &json!({"spec": {"active": false}}));
    c.settle();
    c.release();
    c.advance(10);
    assert!(!runs(&c, "a") && nodes_of(&c, "a").is_empty());
    submit_in_rack(&mut c, "b", 2);
    assert_eq!(names_of(&c, "b"), ["n2", "n3"]);
    // The node that was found goes, too.
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r1", "1"), ("n3", "r1", "1"), ("n4", "r1", "1")]);
    submit_in_rack(&mut c, "a", 2);
    c.slow = Some(Purpose::Place);
    c.api.delete(&node_ref("n1"));
    c.settle();
    c.advance(1);
    c.api.delete(&node_ref("n3"));
    c.settle();
    c.release();
    c.advance(5);
    assert_eq!(names_of(&c, "a"), ["n2", "n4"]);
    assert!(runs(&c, "a") && unhealthy(&c, "a").is_empty());
    // What is seen of the Workload before the answer undoes nothing: the node is not given twice.
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.slow = Some(Purpose::Place);
    c.api.delete(&node_ref("n1"));
    c.settle();
    c.advance(1);
    let of = workload(&c, "a");
    c.api.edit(&of, &json!({"metadata": {"labels": {"seen": "again"}}}));
    c.settle();
    submit_in_rack(&mut c, "b", 1);
    assert!(!runs(&c, "b"));
    assert_eq!(c.written(Purpose::Place), 1, "nor is it written twice");
    c.release();
    c.advance(5);
    assert_eq!(names_of(&c, "a"), ["n2", "n3"]);
    assert!(!runs(&c, "b"));
    // The failed node comes back: what was found is kept.
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.late = Some(Purpose::Place);
    not_ready(&mut c, "n1");
    c.advance(1);
    ready(&mut c, "n1");
    c.release();
    c.advance(60);
    assert_eq!((names_of(&c, "a"), c.written(Purpose::Place)), (vec!["n2".to_owned(), "n3".to_owned()], 1));
    submit_in_rack(&mut c, "b", 1);
    assert_eq!(names_of(&c, "b"), ["n1"]);
}

#[test]
fn a_new_leader_knows_the_nodes_of_those_before_and_judges_none_before_it_has_seen_the_pods() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    run_pods(&mut c, "a");
    not_ready(&mut c, "n1");
    let unseen = [Kind::JobPod, Kind::Pod];
    c.restart_without(&unseen);
    c.settle();
    c.advance(60);
    assert!(unhealthy(&c, "a").is_empty(), "whether pods are on the node is not known");
    submit_in_rack(&mut c, "b", 1);
    assert!(!runs(&c, "b"), "nor what is free");
    for kind in unseen {
        for pod in c.api.names(kind) {
            let seen = c.api.seen(&pod);
            c.engine.apply(c.now, sluice_engine::Input::Applied(seen));
        }
        let (present, revision) = (c.api.names(kind), c.api.revision());
        c.list(kind, present, revision);
    }
    c.settle();
    assert!(runs(&c, "b") && names_of(&c, "b") == ["n3"]);
    c.advance(60);
    assert!(unhealthy(&c, "a").is_empty());
    // Nor is a node gone that was not listed yet.
    c.restart_without(&[Kind::Node]);
    c.settle();
    c.advance(60);
    assert!(runs(&c, "a") && unhealthy(&c, "a").is_empty());
}

#[test]
fn no_nodes_are_looked_for_before_it_is_known_which_there_are() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.api.delete(&node_ref("n1"));
    c.settle();
    assert_eq!(unhealthy(&c, "a"), ["n1"]);
    let mut delayed = provisioned(&THREE);
    submit_in_rack(&mut delayed, "a", 2);
    answer(&mut delayed, "a", "Ready", "");
    for (c, nodes) in [(&mut c, ["n2", "n3"]), (&mut delayed, ["n1", "n2"])] {
        c.restart_without(&[Kind::JobPod]);
        c.settle();
        c.advance(60);
        assert!(c.notes("EvictedDueToNodeFailures").is_empty() && c.notes("SecondPassFailed").is_empty());
        assert_ne!(names_of(c, "a"), nodes);
        let revision = c.api.revision();
        c.list(Kind::JobPod, Vec::new(), revision);
        c.settle();
        c.advance(2);
        assert_eq!(names_of(c, "a"), nodes);
        assert!(runs(c, "a"));
    }
}

#[test]
fn a_node_that_is_back_when_a_manager_begins_to_lead_keeps_its_pods() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 1);
    c.settle();
    run_pods(&mut c, "a");
    assert_eq!(names_of(&c, "a"), ["n1"]);
    // A former leader listed the node as failed.
    let listed = workload(&c, "a");
    c.api.edit_status(&listed, |status| status["unhealthyNodes"] = json!([{"name": "n1"}]));
    c.restart();
    c.settle();
    c.advance(60);
    assert!(unhealthy(&c, "a").is_empty() && runs(&c, "a"));
    assert_eq!(names_of(&c, "a"), ["n1"], "no replacement that was found before is written");
}

#[test]
fn a_node_that_is_back_before_its_replacement_could_be_written_keeps_its_pods() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 1);
    let pods = run_pods(&mut c, "a");
    c.refuse = Some((Purpose::Place, WriteError::Transient("502".to_owned())));
    not_ready(&mut c, "n1");
    end_pod(&mut c, &pods["n1"]);
    c.advance(10);
    assert!(c.refused > 0 && unhealthy(&c, "a") == ["n1"]);
    ready(&mut c, "n1");
    c.refuse = None;
    c.advance(120);
    assert_eq!((names_of(&c, "a"), unhealthy(&c, "a")), (vec!["n1".to_owned()], Vec::new()));
}

#[test]
fn a_single_pod_whose_node_fails_before_its_gate_is_removed_gets_another_one_or_gives_its_quota_back() {
    for (nodes, goes_to) in [(&THREE[..], Some("n2")), (&THREE[..1], None)] {
        let mut config = gates(&[]);
        config.frameworks.insert(JobKind::POD);
        let checked = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "ok"}]}});
        let mut c = bed_with(config, nodes, &checked);
        c.api.active_check("ok");
        let mut made = pod("a", "lq", "1");
        made["spec"]["schedulingGates"] =
            json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
        c.api.add_pod(made);
        c.settle();
        c.api.delete(&node_ref("n1"));
        c.settle();
        let of = Api::workload_ref(&c.api.workloads()[0]);
        c.api.edit_status(&of, |status| status["admissionChecks"][0]["state"] = json!("Ready"));
        c.settle();
        let status = c.api.workloads().remove(0).status.unwrap();
        assert_eq!(status.unhealthy_nodes[0].name, "n1");
        // The other watch of pods shows it once its first gate is gone.
        let started = c.api.pod("a").unwrap().clone();
        assert_eq!(started["spec"]["schedulingGates"], json!([{"name": "kueue.x-k8s.io/topology"}]));
        let placed = c.api.put(Kind::JobPod, started);
        c.settle();
        c.advance(2);
        let spec = &c.api.json(&placed).unwrap()["spec"];
        assert_eq!(spec["nodeSelector"][HOSTNAME].as_str(), goes_to);
        let held = c.api.workloads().first().is_some_and(|w| condition(w, "QuotaReserved") == "True");
        assert_eq!(held, goes_to.is_some());
        assert!(c.api.workloads().iter().all(|w| w.status.as_ref().unwrap().unhealthy_nodes.is_empty()));
        assert_eq!(c.notes("EvictedDueToNodeFailures").len(), usize::from(goes_to.is_none()));
    }
}

#[test]
fn a_job_whose_nodes_the_api_server_refuses_ends_as_any_other() {
    let mut c = bed(&THREE);
    submit_in_rack(&mut c, "a", 2);
    c.refuse = Some((Purpose::Place, WriteError::Refused("422".to_owned())));
    c.api.delete(&node_ref("n1"));
    c.settle();
    c.advance(60);
    assert!(c.refused > 2, "{}", c.refused);
    c.api.finish_job("a", true);
    c.advance(600);
    assert_eq!(condition(&c.workload("a"), "Finished"), "True");
}
