//! A slice that lost a node without a replacement in its domain moves as a whole, if Hotswap acts for its queue (not in Kueue).

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::contract::submit;
use crate::model::{Cluster, condition};
use crate::topology::{
    HOSTNAME, add_node, add_pod, bed_with, gates, names_of, node_ref, not_ready, runs, taint, unhealthy,
    workload,
};

pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const RACKS: [(&str, &str, &str); 6] = [
    ("a0", "a", "1"),
    ("a1", "a", "1"),
    ("b0", "b", "1"),
    ("b1", "b", "1"),
    ("c0", "c", "1"),
    ("c1", "c", "1"),
];
pub const BEFORE: [&str; 4] = ["a0", "a1", "b0", "b1"];
pub const AFTER: [&str; 4] = ["c0", "c1", "b0", "b1"];

pub fn hotswap() -> Value {
    json!({"preemption": {"reclaimOutOfCohort": {"enable": true}}})
}

/// Slices of two pods, each of them in one rack.
pub fn in_slices(view: &mut JobView) {
    in_slices_of(view, 2);
}

/// Slices of so many pods, each of them in one rack.
fn in_slices_of(view: &mut JobView, pods: i32) {
    let request = PodSetTopologyRequest {
        pod_set_slice_required_topology: Some("rack".to_owned()),
        pod_set_slice_size: Some(pods),
        pod_index_label: Some(INDEX.to_owned()),
        ..PodSetTopologyRequest::default()
    };
    view.pod_sets[0].topology_request = Some(Box::new(request));
}

/// Two racks of three are taken by the two slices of a job, whose pods run.
pub fn started(changes: &[(Gate, bool)], queue: &Value, change: impl FnOnce(&mut JobView)) -> Cluster {
    let mut c = bed_with(gates(changes), &RACKS, queue);
    submit(&mut c, "a", "lq", 4, |view| {
        in_slices(view);
        change(view);
    });
    assert_eq!(names_of(&c, "a"), BEFORE);
    for (rank, node) in BEFORE.iter().enumerate() {
        put(&mut c, &format!("p{rank}"), rank, Some(node));
    }
    c.settle();
    c
}

fn bed() -> Cluster {
    started(&[], &hotswap(), |_| {})
}

/// A pod of the job: where it runs, or one that waits as its controller makes it.
pub fn put(c: &mut Cluster, name: &str, rank: usize, node: Option<&str>) {
    let view = c.api.job("a").view.clone();
    let set = &view.pod_sets[0].scheduling;
    let mut labels = json!(set.labels);
    labels[INDEX] = json!(rank.to_string());
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "controller": true, "uid": view.job.uid});
    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
    let mut pod = json!({
        "metadata": {"namespace": "team-a", "name": name, "labels": labels, "annotations": set.annotations,
            "ownerReferences": [owner]},
        "spec": {"schedulingGates": set.scheduling_gates, "containers": [container]},
        "status": {"phase": "Pending"},
    });
    if let Some(node) = node {
        pod["spec"]["schedulingGates"] = json!(null);
        pod["spec"]["nodeSelector"] = json!({HOSTNAME: node});
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
        c.api.put(Kind::Pod, pod.clone());
    }
    c.api.put(Kind::JobPod, pod);
}

pub fn pod_ref(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::JobPod, "team-a", name)
}

/// A node is gone, and its pod with it.
pub fn lose(c: &mut Cluster, node: &str, pod: &str) {
    lose_all(c, &[(node, pod)]);
    c.advance(2);
}

/// The same for several at once, without any time.
fn lose_all(c: &mut Cluster, lost: &[(&str, &str)]) {
    for (node, pod) in lost {
        c.api.delete(&node_ref(node));
        end(c, pod);
    }
    c.settle();
}

/// A pod is gone.
pub fn end(c: &mut Cluster, pod: &str) {
    for kind in [Kind::Pod, Kind::JobPod] {
        c.api.delete(&ObjectRef { kind, ..pod_ref(pod) });
    }
}

/// The pods that are there, each with the node that it is to go to, or `-`.
pub fn pods(c: &Cluster) -> Vec<String> {
    let seat = |pod: &ObjectRef| {
        let node = &c.api.json(pod).unwrap()["spec"]["nodeSelector"][HOSTNAME];
        format!("{} {}", pod.name, node.as_str().unwrap_or("-"))
    };
    c.api.names(Kind::JobPod).iter().map(seat).collect()
}

pub fn evicted(c: &Cluster) -> Vec<String> {
    c.notes("EvictedDueToNodeFailures")
}

/// It was evicted, and this is why its slice did not move.
fn stays_because(c: &Cluster, why: &str) {
    let said = "Workload/job-a: Workload was evicted as there was no replacement for unhealthy node(s): a1; the slice that lost it cannot \
                move: ";
    let notes = evicted(c);
    assert_eq!(notes.len(), 1, "{notes:?}");
    let found = notes[0].strip_prefix(said).unwrap_or_default();
    assert!(found.starts_with(why), "{found}");
    assert_eq!(c.written(Purpose::MovePod), 0);
}

#[test]
fn only_the_pods_of_the_slice_are_made_again_and_each_rank_gets_its_place() {
    let mut c = bed();
    c.slow = Some(Purpose::Place);
    lose(&mut c, "a1", "p1");
    assert_eq!(
        (names_of(&c, "a"), pods(&c).len()),
        (BEFORE.map(str::to_owned).to_vec(), 3),
        "not before it is written"
    );
    c.release();
    c.settle();
    assert_eq!(names_of(&c, "a"), AFTER);
    assert!(unhealthy(&c, "a").is_empty() && evicted(&c).is_empty() && runs(&c, "a"));
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
    let note = "No node in the same domain replaces the unhealthy node(s) a1 alone: the slice moves to c0, c1, and with it 1 pod(s) on \
                other nodes; all other pods stay";
    assert!(
        c.notes("SliceMoved").iter().any(|reported| *reported == format!("Workload/job-a: {note}")),
        "{:?}",
        c.notes("SliceMoved")
    );
    assert_eq!(c.written(Purpose::MovePod), 2, "its condition and its deletion");
    // The second of the slice comes before the first.
    put(&mut c, "q1", 1, None);
    c.settle();
    put(&mut c, "q0", 0, None);
    c.settle();
    assert_eq!(pods(&c), ["p2 b0", "p3 b1", "q0 c0", "q1 c1"]);
    c.advance(600);
    assert_eq!((c.written(Purpose::Place), c.written(Purpose::MovePod)), (1, 2));
}

#[test]
fn a_pod_says_that_it_is_disrupted_before_it_is_deleted() {
    let mut c = bed();
    c.fail.push_back((Purpose::MovePod, WriteError::Transient("down".to_owned())));
    c.slow = Some(Purpose::MovePod);
    lose(&mut c, "a1", "p1");
    // The pod that is made for the lost rank waits for its own place, although the first place of the slice is not taken yet.
    put(&mut c, "q1", 1, None);
    c.settle();
    assert_eq!(pods(&c), ["p0 a0", "p2 b0", "p3 b1", "q1 c1"]);
    c.release();
    c.advance(5);
    assert_eq!(pods(&c), ["p2 b0", "p3 b1", "q1 c1"]);
}

#[test]
fn a_manager_that_begins_in_between_ends_it() {
    let mut c = bed();
    c.slow = Some(Purpose::MovePod);
    lose(&mut c, "a1", "p1");
    assert_eq!((names_of(&c, "a"), pods(&c).len()), (AFTER.map(str::to_owned).to_vec(), 3));
    c.slow = None;
    c.restart();
    c.settle();
    c.advance(2);
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
    assert!(evicted(&c).is_empty());
}

#[test]
fn a_node_of_the_same_rack_comes_first() {
    let mut c = bed();
    add_node(&mut c, "a9", "a", "1");
    lose(&mut c, "a0", "p0");
    assert_eq!(names_of(&c, "a"), ["a9", "a1", "b0", "b1"], "the ranks keep their order");
    assert_eq!((pods(&c).len(), c.written(Purpose::MovePod)), (3, 0));
    put(&mut c, "q0", 0, None);
    c.settle();
    assert_eq!(pods(&c)[3], "q0 a9");
}

#[test]
fn a_drained_node_moves_its_slice_too_and_another_loss_moves_another_one() {
    let mut c = bed();
    add_node(&mut c, "d0", "d", "2");
    taint(&mut c, "a1", &json!([{"key": "out", "effect": "NoExecute"}]));
    end(&mut c, "p1");
    c.settle();
    c.advance(2);
    assert_eq!(names_of(&c, "a"), AFTER);
    for rank in [0, 1] {
        put(&mut c, &format!("q{rank}"), rank, Some(AFTER[rank]));
    }
    c.settle();
    // The rack a has a free node, and one that no pod may go to.
    lose(&mut c, "b0", "p2");
    assert_eq!(names_of(&c, "a"), ["c0", "c1", "d0"]);
    assert_eq!(pods(&c), ["q0 c0", "q1 c1"]);
}

#[test]
fn a_slice_that_lost_all_its_nodes_at_once_moves_and_the_other_one_stays() {
    let mut c = bed();
    lose_all(&mut c, &[("a0", "p0"), ("a1", "p1")]);
    assert_eq!(unhealthy(&c, "a"), ["a0", "a1"]);
    c.advance(2);
    assert_eq!(names_of(&c, "a"), AFTER);
    assert_eq!((unhealthy(&c, "a").len(), evicted(&c), runs(&c, "a")), (0, vec![], true));
    assert_eq!((pods(&c), c.written(Purpose::MovePod)), (vec!["p2 b0".to_owned(), "p3 b1".into()], 0));
    for (name, rank) in [("q1", 1), ("q0", 0)] {
        put(&mut c, name, rank, None);
    }
    c.settle();
    assert_eq!(pods(&c), ["p2 b0", "p3 b1", "q0 c0", "q1 c1"]);
}

#[test]
fn a_second_node_of_the_slice_that_fails_before_it_moves_moves_with_it() {
    let mut c = bed();
    lose_all(&mut c, &[("a1", "p1")]);
    assert_eq!(unhealthy(&c, "a"), ["a1"]);
    lose_all(&mut c, &[("a0", "p0")]);
    assert_eq!(unhealthy(&c, "a"), ["a1", "a0"]);
    c.advance(2);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
}

#[test]
fn nodes_of_the_slice_that_are_not_ready_move_with_it_although_their_pods_leave_later() {
    let mut c = bed();
    for node in ["a0", "a1"] {
        not_ready(&mut c, node);
    }
    end(&mut c, "p1");
    c.settle();
    assert_eq!(unhealthy(&c, "a"), ["a1"], "the other one has its pod still");
    c.advance(2);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    assert_eq!(pods(&c), ["p0 a0", "p2 b0", "p3 b1"]);
    end(&mut c, "p0");
    c.settle();
    c.advance(2);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    assert_eq!((c.written(Purpose::Place), c.written(Purpose::MovePod)), (1, 0));
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
}

#[test]
fn a_cordoned_node_of_the_slice_moves_with_it_and_one_of_another_slice_evicts_as_ever() {
    let lose_beside = |cordoned: &str| {
        let mut c = bed();
        c.api.edit(&node_ref(cordoned), &json!({"spec": {"unschedulable": true}}));
        c.settle();
        lose(&mut c, "a1", "p1");
        c
    };
    let c = lose_beside("a0");
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
    let said = "Workload/job-a: Workload was evicted as there was no replacement for unhealthy node(s): a1";
    assert_eq!(evicted(&lose_beside("b0")), [said]);
}

#[test]
fn nodes_of_two_slices_that_fail_together_evict_and_say_why() {
    let mut c = bed();
    lose_all(&mut c, &[("a1", "p1"), ("b0", "p2")]);
    let said = "Workload/job-a: Workload eviction triggered due to multiple TAS assigned node failures, including: a1, b0; its slices \
                cannot move: the nodes have pods of several slices";
    assert_eq!(evicted(&c), [said]);
}

#[test]
fn more_nodes_than_the_status_lists_evict_and_say_why() {
    let names: Vec<String> = (0..9).map(|at| format!("a{at}")).collect();
    let nodes: Vec<_> = names.iter().map(|name| (&**name, "a", "1")).collect();
    for (lost, why) in [(8, None), (9, Some("; its slices cannot move: more than 8 of its nodes failed"))] {
        let mut c = bed_with(gates(&[]), &nodes, &hotswap());
        submit(&mut c, "a", "lq", 9, |view| in_slices_of(view, 9));
        for name in &names[..lost] {
            c.api.delete(&node_ref(name));
        }
        c.settle();
        let all = names.join(", ");
        let said = "Workload/job-a: Workload eviction triggered due to multiple TAS assigned node failures, including: ";
        let expected: Vec<String> = why.iter().map(|why| format!("{said}{all}{why}")).collect();
        assert_eq!(evicted(&c), expected);
        assert_eq!(unhealthy(&c, "a").len(), if why.is_some() { 0 } else { lost });
    }
}

#[test]
fn without_another_rack_the_whole_job_moves_and_says_why() {
    let mut c = bed();
    add_pod(&mut c, "other", "c0", "1");
    lose(&mut c, "a1", "p1");
    stays_because(&c, "topology \"dc\" doesn't allow to fit any of 1 slice(s). Total nodes: 5; excluded: ");
    assert!(!runs(&c, "a") && condition(&c.workload("a"), "Requeued") == "True");
}

#[test]
fn where_it_is_not_wanted_the_job_is_evicted_as_ever() {
    let off = json!({"preemption": {"reclaimOutOfCohort": {"enable": false}}});
    let mut c = started(&[], &off, |_| {});
    lose_all(&mut c, &[("a0", "p0"), ("a1", "p1")]);
    let several = "Workload eviction triggered due to multiple TAS assigned node failures, including: a0, a1";
    assert_eq!(evicted(&c), [format!("Workload/job-a: {several}")]);
    for (changes, queue) in [
        (&[][..], json!({})),
        (&[], off),
        (&[(Gate::HotswapSlices, false)], hotswap()),
        (&[(Gate::Hotswap, false)], hotswap()),
    ] {
        let mut c = started(changes, &queue, |_| {});
        lose(&mut c, "a1", "p1");
        let said = "Workload was evicted as there was no replacement for unhealthy node(s): a1";
        assert_eq!(evicted(&c), [format!("Workload/job-a: {said}")], "{changes:?} {queue}");
        assert_eq!(c.written(Purpose::MovePod), 0);
    }
}

#[test]
fn a_job_that_would_fail_by_it_is_evicted_instead() {
    for (spare, why) in [
        (
            Some(1),
            "Job \"a\" would fail: its backoffLimit allows 1 more pod(s) to fail, and 2 would be deleted",
        ),
        (None, "Sluice does not know how Job \"a\" handles deleted pods"),
    ] {
        let mut c = started(&[], &hotswap(), |view| view.spare_failures = spare);
        lose(&mut c, "a1", "p1");
        stays_because(&c, why);
    }
    let mut c = started(&[], &hotswap(), |view| view.spare_failures = Some(2));
    lose(&mut c, "a1", "p1");
    assert_eq!(names_of(&c, "a"), AFTER);
}

#[test]
fn a_failure_whose_pod_is_made_again_already_is_counted_once() {
    for (spare, moves) in [(1, true), (0, false)] {
        let mut c = started(&[], &hotswap(), |view| view.spare_failures = Some(spare));
        c.api.delete(&node_ref("a1"));
        end(&mut c, "p1");
        put(&mut c, "q1", 1, None);
        c.settle();
        c.advance(2);
        if moves {
            assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
        } else {
            stays_because(
                &c,
                "Job \"a\" would fail: its backoffLimit allows 0 more pod(s) to fail, and 1 would be deleted",
            );
        }
    }
}

#[test]
fn pods_that_are_not_where_their_ranks_belong_stay() {
    let mut c = bed();
    for (name, rank) in [("p0", "2"), ("p2", "0")] {
        c.api.edit(&pod_ref(name), &json!({"metadata": {"labels": {INDEX: rank}}}));
    }
    lose(&mut c, "a1", "p1");
    stays_because(&c, "its pods are not where their ranks belong");
}

#[test]
fn without_ranks_as_many_pods_as_are_too_many_are_made_again() {
    let mut c = started(&[], &hotswap(), |view| {
        view.pod_sets[0].topology_request.as_mut().unwrap().pod_index_label = None;
    });
    lose(&mut c, "a1", "p1");
    assert_eq!(
        (names_of(&c, "a"), pods(&c)),
        (AFTER.map(str::to_owned).to_vec(), vec!["p2 b0".into(), "p3 b1".into()])
    );
}

#[test]
fn what_retries_says_why_each_time_and_moves_once_there_is_room() {
    let mut c = started(&[(Gate::TASFailedNodeReplacementFailFast, false)], &hotswap(), |_| {});
    let other = add_pod(&mut c, "other", "c0", "1");
    lose(&mut c, "a1", "p1");
    let notes = c.notes("SecondPassFailed");
    assert!(
        notes[0].contains("; the slice cannot move: topology \"dc\" doesn't allow to fit any of 1 slice(s)"),
        "{notes:?}"
    );
    c.api.delete(&other);
    c.settle();
    c.advance(60);
    assert_eq!(names_of(&c, "a"), AFTER);
    assert_eq!(pods(&c), ["p2 b0", "p3 b1"]);
}

#[test]
fn a_slice_that_lost_a_node_moves_once_its_queue_wants_that() {
    let mut c = started(&[(Gate::TASFailedNodeReplacementFailFast, false)], &json!({}), |_| {});
    lose(&mut c, "a1", "p1");
    assert_eq!(unhealthy(&c, "a"), ["a1"]);
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": hotswap()}));
    c.advance(60);
    assert_eq!(names_of(&c, "a"), AFTER);
}

/// The first slice has other nodes assigned than those on which its pods run.
pub fn assigned_elsewhere(c: &mut Cluster) {
    let key = workload(c, "a");
    c.api.edit_status(&key, |status| {
        let sets = &mut status["admission"]["podSetAssignments"];
        sets[0]["topologyAssignment"]["slices"] = json!([{
            "domainCount": 4, "podCounts": {"universal": 1},
            "valuesPerLevel": [{"individual": {"roots": AFTER}}],
        }]);
    });
}

#[test]
fn pods_of_a_job_that_would_fail_by_it_stay_where_they_are() {
    for (spare, stay) in [(Some(1), true), (Some(2), false)] {
        let mut c = started(&[], &hotswap(), |view| view.spare_failures = spare);
        assigned_elsewhere(&mut c);
        c.settle();
        c.advance(1);
        assert_eq!(pods(&c).contains(&"p0 a0".to_owned()), stay, "{spare:?}: {:?}", pods(&c));
    }
}

#[test]
fn a_pod_that_did_not_get_to_its_node_says_that_it_is_disrupted_when_it_is_failed() {
    let mut c = bed();
    put(&mut c, "late", 1, Some("a1"));
    c.api.edit(&pod_ref("late"), &json!({"spec": {"nodeName": null}}));
    c.api.edit_status(&pod_ref("late"), |status| status["phase"] = json!("Pending"));
    assigned_elsewhere(&mut c);
    c.settle();
    let late = c.api.json(&pod_ref("late")).unwrap();
    assert_eq!(late["status"]["phase"], "Failed");
    let mut conditions = late["status"]["conditions"].as_array().unwrap().iter();
    assert!(conditions.any(|condition| condition["type"] == "DisruptionTarget"), "{late}");
}

#[test]
fn a_pod_that_nothing_placed_and_one_on_a_node_that_is_not_well_are_let_be() {
    let mut c = bed();
    put(&mut c, "own", 0, Some("c1"));
    c.api.edit(&pod_ref("own"), &json!({"spec": {"nodeSelector": null}}));
    let foreign = c.api.json(&pod_ref("own")).unwrap()["metadata"]["uid"].clone();
    c.settle();
    assigned_elsewhere(&mut c);
    let ready = json!([{"type": "Ready", "status": "Unknown", "lastTransitionTime": c.now.to_string()}]);
    c.api.edit_status(&node_ref("a1"), |status| status["conditions"] = ready);
    c.settle();
    c.advance(1);
    assert!(
        pods(&c).contains(&"p1 a1".to_owned()) && !pods(&c).contains(&"p0 a0".to_owned()),
        "{:?}",
        pods(&c)
    );
    assert_eq!(c.api.json(&pod_ref("own")).unwrap()["metadata"]["uid"], foreign);
}
