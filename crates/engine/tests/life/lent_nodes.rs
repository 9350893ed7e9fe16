//! Nodes that are lent out in the Cohort come back for a slice that lost a node and can move (not in Kueue).

use serde_json::json;
use sluice_api::gates::Gate;
use sluice_core::FairSharing;
use sluice_engine::{EngineConfig, ObjectRef, Purpose, WriteError};

use crate::contract::submit;
use crate::model::Cluster;
use crate::moved_slices::{
    AFTER, BEFORE, INDEX, RACKS, end, evicted, hotswap, in_slices, lose, pod_ref, put,
};
use crate::topology::{add_node, add_pod, bed_with, gates, in_rack, names_of, node_ref, not_ready, runs};

/// Two racks of three are taken by the two slices of the job `a`, and the third one by the job `v` with this priority. The quota is that of their
/// queues; another queue of the Cohort has plenty.
fn bed(config: EngineConfig, (own, other): (&str, &str), priority: i32) -> Cluster {
    let mut queue = hotswap();
    queue["cohortName"] = json!("co");
    queue["resourceGroups"] = json!([{
        "coveredResources": ["cpu"],
        "flavors": [{"name": "tas", "resources": [{"name": "cpu", "nominalQuota": own}]}],
    }]);
    let mut c = bed_with(config, &RACKS, &queue);
    let cohort = json!({"cohortName": "co"});
    c.api.cluster_queue("other", "tas", other, &cohort);
    c.api.cluster_queue("spare", "tas", "100", &cohort);
    c.api.local_queue("team-a", "lq-other", "other");
    c.api.priority_class("class", priority);
    submit(&mut c, "a", "lq", 4, in_slices);
    assert_eq!(names_of(&c, "a"), BEFORE);
    for (rank, node) in BEFORE.iter().enumerate() {
        put(&mut c, &format!("p{rank}"), rank, Some(node));
    }
    submit(&mut c, "v", "lq-other", 2, |view| {
        in_rack(view);
        view.workload_priority_class = Some("class".to_owned());
    });
    assert_eq!(names_of(&c, "v"), ["c0", "c1"]);
    c
}

/// The job `u`, which is preempted after `v`, borrows nodes of a fourth rack.
fn another_borrows(c: &mut Cluster) {
    for name in ["d0", "d1"] {
        add_node(c, name, "d", "1");
    }
    c.api.priority_class("higher", -1);
    submit(c, "u", "lq-other", 2, |view| {
        in_rack(view);
        view.workload_priority_class = Some("higher".to_owned());
    });
    assert_eq!(names_of(c, "u"), ["d0", "d1"]);
}

fn refusal() -> WriteError {
    WriteError::Refused("no".to_owned())
}

/// The only job that was preempted is the one that borrows.
fn reclaimed(c: &Cluster) -> bool {
    let notes = c.notes("Preempted");
    let why =
        " out of the cohort for work on failing nodes; preemptor path: /co/cq; preemptee path: /co/other";
    notes.len() == 1 && notes[0].starts_with("Workload/job-v: ") && notes[0].contains(why)
}

/// The job that borrows is evicted and still stops when the pod `old` is seen on one of its nodes, which stays after the quota is free.
fn pods_leave_late() -> (Cluster, ObjectRef) {
    pods_leave_late_after(0)
}

/// The same with a job that takes so many seconds to stop.
fn pods_leave_late_after(seconds: i64) -> (Cluster, ObjectRef) {
    let mut c = bed(gates(&[]), ("100", "0"), -1);
    c.pods_vanish = false;
    lose(&mut c, "a1", "p1");
    assert!(reclaimed(&c), "{:?}", c.notes("Preempted"));
    assert_eq!(names_of(&c, "a"), BEFORE, "the nodes are still used");
    let old = add_pod(&mut c, "old", "c0", "1");
    c.advance(seconds);
    c.pods_vanish = true;
    c.settle();
    assert!(names_of(&c, "v").is_empty(), "its quota is free");
    (c, old)
}

#[test]
fn what_borrows_its_nodes_is_evicted_and_does_not_get_them_again() {
    for fair_sharing in [None, Some(FairSharing::default())] {
        let config = EngineConfig { fair_sharing, ..gates(&[]) };
        let mut c = bed(config, ("100", "0"), -1);
        lose(&mut c, "a1", "p1");
        assert!(reclaimed(&c), "{:?}", c.notes("Preempted"));
        assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
        assert!(runs(&c, "a") && !runs(&c, "v"));
        c.advance(120);
        assert_eq!((names_of(&c, "a"), c.written(Purpose::Place)), (AFTER.map(str::to_owned).to_vec(), 1));
        assert!(reclaimed(&c) && !runs(&c, "v"));
    }
}

#[test]
fn an_eviction_that_could_not_be_written_is_tried_again() {
    for error in [WriteError::Transient("502".to_owned()), refusal()] {
        let mut c = bed(gates(&[]), ("100", "0"), -1);
        c.fail.push_back((Purpose::Evict, error));
        lose(&mut c, "a1", "p1");
        c.advance(120);
        assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
        assert!(reclaimed(&c) && runs(&c, "a") && !runs(&c, "v"), "{:?}", c.notes("Preempted"));
    }
}

#[test]
fn other_nodes_come_back_if_the_eviction_of_a_victim_is_refused_three_times() {
    let mut c = bed(gates(&[]), ("100", "0"), -2);
    another_borrows(&mut c);
    c.fail.extend(vec![(Purpose::Evict, refusal()); 3]);
    lose(&mut c, "a1", "p1");
    c.advance(10);
    assert!(c.notes("Preempted").is_empty() && runs(&c, "u"), "it is tried again");
    c.advance(60);
    let notes = c.notes("Preempted");
    assert!(notes.len() == 1 && notes[0].starts_with("Workload/job-u: "), "{notes:?}");
    assert_eq!(names_of(&c, "a"), ["d0", "d1", "b0", "b1"]);
    assert!(evicted(&c).is_empty() && runs(&c, "a") && runs(&c, "v") && !runs(&c, "u"));
}

#[test]
fn other_nodes_come_back_if_the_end_of_the_job_of_a_victim_is_refused_three_times() {
    let mut c = bed(gates(&[]), ("100", "0"), -2);
    another_borrows(&mut c);
    c.fail.push_back((Purpose::StopJob, refusal()));
    c.refuse = Some((Purpose::SuspendJob, refusal()));
    lose(&mut c, "a1", "p1");
    c.advance(20);
    assert!(reclaimed(&c) && runs(&c, "u"), "it is tried again");
    c.advance(30);
    assert_eq!(names_of(&c, "a"), ["d0", "d1", "b0", "b1"]);
    assert!(evicted(&c).is_empty() && runs(&c, "a") && runs(&c, "v") && !runs(&c, "u"));
}

#[test]
fn the_whole_job_is_evicted_if_the_eviction_of_its_only_victim_is_refused_three_times() {
    let mut c = bed(gates(&[]), ("100", "0"), -1);
    c.fail.extend(vec![(Purpose::Evict, refusal()); 3]);
    lose(&mut c, "a1", "p1");
    c.advance(10);
    assert!(evicted(&c).is_empty(), "{:?}", evicted(&c));
    c.advance(60);
    let notes = evicted(&c);
    let said = "Workload/job-a: Workload was evicted as there was no replacement for unhealthy node(s): a1";
    assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:?}");
    assert!(c.notes("Preempted").is_empty() && runs(&c, "v"), "{:?}", c.notes("Preempted"));
}

#[test]
fn no_other_job_gets_its_nodes_while_pods_leave_them_after_their_quota_is_free() {
    let (mut c, old) = pods_leave_late();
    submit(&mut c, "w", "lq", 1, in_rack);
    assert!(!runs(&c, "w"), "the other node of the rack is free, and kept");
    assert_eq!((names_of(&c, "a"), evicted(&c)), (BEFORE.map(str::to_owned).to_vec(), vec![]));
    c.api.delete(&old);
    c.settle();
    c.advance(2);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    assert!(reclaimed(&c) && !runs(&c, "v"));
}

#[test]
fn after_a_minute_the_whole_job_is_evicted_and_others_get_the_nodes_that_were_kept() {
    let (mut c, _) = pods_leave_late();
    submit(&mut c, "w", "lq-other", 1, in_rack);
    c.advance(50);
    assert!(evicted(&c).is_empty() && !runs(&c, "w"), "{:?}", evicted(&c));
    c.advance(20);
    let notes = evicted(&c);
    let said = "Workload/job-a: Workload was evicted as there was no replacement for unhealthy node(s): a1";
    assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:?}");
    assert!(runs(&c, "w"));
    assert!(reclaimed(&c), "no other one: {:?}", c.notes("Preempted"));
}

#[test]
fn the_minute_begins_when_the_quota_is_free() {
    for seconds in [55, 600] {
        let (mut c, old) = pods_leave_late_after(seconds);
        c.advance(50);
        assert!(evicted(&c).is_empty(), "{:?}", evicted(&c));
        c.api.delete(&old);
        c.settle();
        c.advance(2);
        assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
    }
}

#[test]
fn what_is_not_lent_to_a_lower_priority_by_a_queue_within_its_quota_stays() {
    for (quota, priority) in [(("100", "100"), -1), (("100", "0"), 0), (("3", "0"), -1)] {
        let mut c = bed(gates(&[]), quota, priority);
        lose(&mut c, "a1", "p1");
        assert_eq!((evicted(&c).len(), c.notes("Preempted")), (1, vec![]), "{quota:?} {priority}");
        assert!(runs(&c, "v"), "{quota:?} {priority}");
    }
}

#[test]
fn nothing_else_is_evicted_while_most_nodes_look_bad() {
    for (bad, reclaims) in [(5, true), (6, false)] {
        let mut c = bed(gates(&[]), ("100", "0"), -1);
        for at in 0..bad {
            let name = format!("bad{at}");
            add_node(&mut c, &name, &name, "1");
            not_ready(&mut c, &name);
        }
        lose(&mut c, "a1", "p1");
        assert_eq!((reclaimed(&c), runs(&c, "v")), (reclaims, !reclaims), "{:?}", c.notes("Preempted"));
        let said = "Workload/job-a: Workload was evicted as there was no replacement for unhealthy node(s): a1; the slice that lost it \
                    cannot move: more than 55 % of the flavor's nodes look unhealthy, so nothing else is evicted for it";
        let notes = evicted(&c);
        assert!(if reclaims { notes.is_empty() } else { notes == [said] }, "{notes:?}");
    }
}

#[test]
fn how_many_nodes_look_bad_is_counted_once_for_all_slices_of_a_cycle() {
    let mut c = bed(gates(&[]), ("100", "0"), -1);
    for (name, rack) in [("d0", "d"), ("d1", "d")] {
        add_node(&mut c, name, rack, "1");
    }
    submit(&mut c, "b", "lq", 2, in_slices);
    for (name, rack) in [("e0", "e"), ("e1", "e")] {
        add_node(&mut c, name, rack, "1");
    }
    submit(&mut c, "w", "lq-other", 2, |view| {
        in_rack(view);
        view.workload_priority_class = Some("class".to_owned());
    });
    assert_eq!([names_of(&c, "b"), names_of(&c, "w")], [["d0", "d1"], ["e0", "e1"]]);
    let before = c.engine.work().brakes;
    for node in ["a1", "d1"] {
        c.api.delete(&node_ref(node));
    }
    end(&mut c, "p1");
    c.settle();
    c.advance(2);
    assert_eq!((c.notes("Preempted").len(), evicted(&c)), (2, vec![]));
    assert!(runs(&c, "a") && runs(&c, "b") && !runs(&c, "v") && !runs(&c, "w"));
    assert_eq!(c.engine.work().brakes - before, 1);
}

#[test]
fn without_fail_fast_it_waits_and_evicts_nothing_while_most_nodes_look_bad() {
    let mut c = bed(gates(&[(Gate::TASFailedNodeReplacementFailFast, false)]), ("100", "0"), -1);
    for at in 0..6 {
        let name = format!("bad{at}");
        add_node(&mut c, &name, &name, "1");
        not_ready(&mut c, &name);
    }
    lose(&mut c, "a1", "p1");
    c.advance(30);
    assert!(c.notes("Preempted").is_empty() && evicted(&c).is_empty() && runs(&c, "v"));
    assert!(c.notes("SecondPassFailed")[0].contains("more than 55 % of the flavor's nodes look unhealthy"));
    for at in 0..6 {
        c.api.delete(&node_ref(&format!("bad{at}")));
    }
    c.settle();
    c.advance(60);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (AFTER.map(str::to_owned).to_vec(), vec![]));
}

#[test]
fn nothing_is_evicted_for_a_slice_whose_node_is_back() {
    let mut c = bed(gates(&[]), ("100", "0"), -1);
    c.api.delete(&node_ref("a1"));
    end(&mut c, "p1");
    c.settle();
    // That is not written yet.
    c.slow = Some(Purpose::UnhealthyNodes);
    add_node(&mut c, "a1", "a", "1");
    c.settle();
    c.advance(10);
    assert!(c.notes("Preempted").is_empty() && runs(&c, "v"), "{:?}", c.notes("Preempted"));
    c.release();
    c.advance(60);
    assert_eq!((names_of(&c, "a"), evicted(&c)), (BEFORE.map(str::to_owned).to_vec(), vec![]));
    assert!(c.notes("Preempted").is_empty() && runs(&c, "v"), "{:?}", c.notes("Preempted"));
}

#[test]
fn nothing_is_evicted_for_a_slice_that_may_not_move_any_more() {
    let mut c = bed(gates(&[]), ("100", "0"), -1);
    c.api.delete(&node_ref("a1"));
    end(&mut c, "p1");
    c.settle();
    for (name, rank) in [("p0", "2"), ("p2", "0")] {
        c.api.edit(&pod_ref(name), &json!({"metadata": {"labels": {INDEX: rank}}}));
    }
    c.settle();
    c.advance(10);
    let notes = evicted(&c);
    let said = "; the slice that lost it cannot move: its pods are not where their ranks belong";
    assert!(notes.len() == 1 && notes[0].ends_with(said), "{notes:?}");
    assert!(c.notes("Preempted").is_empty() && runs(&c, "v"), "{:?}", c.notes("Preempted"));
}
