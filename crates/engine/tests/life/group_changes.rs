//! Groups of pods whose users replace some, or change how many they are.

use serde_json::json;
use sluice_engine::{Purpose, WriteError};

use crate::model::pods::{member, pod};
use crate::model::{Api, Cluster, condition};
use crate::plain_pods::{add_high, bed};
use crate::pod_groups::{add, free, run, running, workload};

/// Their controller, or their user, makes them as soon as it sees that the others are being deleted.
#[test]
fn replacements_wait_for_the_places_of_pods_that_are_leaving() {
    let mut c = running(2);
    c.pods_vanish = false;
    add_high(&mut c, "2");
    add(&mut c, "r", 3, 2);
    assert_eq!(c.api.pods(), ["high", "p0", "p1", "r0", "r1"], "there are two places");
    assert_eq!(c.notes("ExcessPodDeleted"), ["Pod/r2: Excess pod deleted"]);
    assert!(["r0", "r1"].iter().all(|name| c.api.is_gated(name)));
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.is_free("high"));
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c), ["r0", "r1"]);
    assert_eq!(c.notes("ExcessPodDeleted").len(), 1);
}

/// Its owners may be too many, or another webhook may refuse them.
#[test]
fn an_evicted_group_is_stopped_although_its_new_owner_is_refused() {
    let mut c = bed("2");
    add(&mut c, "p", 2, 2);
    run(&mut c, "Running");
    c.api.run_pod("p0", "Failed");
    c.settle();
    let why = "etcdserver: request is too large";
    c.refuse = Some((Purpose::UpdateWorkload, WriteError::Refused(why.to_owned())));
    add(&mut c, "r", 1, 2);
    assert!(c.refused > 0 && condition(&workload(&c), "Admitted") == "True");
    let group = Api::workload_ref(&workload(&c));
    c.api.edit(&group, &json!({"spec": {"active": false}}));
    c.advance(900);
    assert_eq!(condition(&workload(&c), "QuotaReserved"), "False");
}

/// A group of `total` pods of the role `main` waits behind the pod `first`.
fn waiting(total: usize) -> Cluster {
    let mut c = bed("3");
    c.api.add_pod(pod("first", "lq", "3"));
    c.settle();
    add(&mut c, "p", total, total);
    assert_eq!(sets(&c), [("main".to_owned(), i32::try_from(total).unwrap())]);
    c
}

/// The pod sets of the group's Workload.
fn sets(c: &Cluster) -> Vec<(String, i32)> {
    let all = c.api.workloads();
    let own = all.iter().find(|workload| workload.metadata.name.as_deref() == Some("g")).unwrap();
    own.spec.pod_sets.iter().map(|set| (set.name.clone(), set.count)).collect()
}

fn first_ends(c: &mut Cluster) {
    c.api.run_pod("first", "Succeeded");
    c.settle();
}

#[test]
fn a_pod_that_waits_may_be_replaced_by_one_of_another_shape() {
    let mut c = waiting(2);
    c.api.delete_queued_pod("p1");
    c.settle();
    assert_eq!(sets(&c), [("main".to_owned(), 2)], "another may come");
    c.api.add_pod(member("q", "g", 2, "other"));
    c.settle();
    assert_eq!(sets(&c), [("main".to_owned(), 1), ("other".to_owned(), 1)]);
    first_ends(&mut c);
    assert_eq!(free(&c), ["p0", "q"]);
}

#[test]
fn the_number_of_pods_of_a_group_that_waits_may_change() {
    let agree = |c: &mut Cluster, pods: &[&str], total: &str| {
        for name in pods {
            let total = json!({"kueue.x-k8s.io/pod-group-total-count": total});
            c.api.edit_pod(name, &json!({"metadata": {"annotations": total}}));
            c.settle();
        }
    };
    let mut c = waiting(3);
    c.api.delete_queued_pod("p2");
    c.settle();
    agree(&mut c, &["p0", "p1"], "2");
    assert_eq!(sets(&c), [("main".to_owned(), 2)]);
    first_ends(&mut c);
    assert_eq!(free(&c), ["p0", "p1"]);

    let mut c = waiting(2);
    agree(&mut c, &["p0", "p1"], "3");
    c.api.add_pod(member("q", "g", 3, "main"));
    c.settle();
    assert_eq!(sets(&c), [("main".to_owned(), 3)]);
    first_ends(&mut c);
    assert_eq!(free(&c), ["p0", "p1", "q"]);
}

#[test]
fn replacements_of_an_evicted_group_may_have_other_shapes() {
    let mut c = running(3);
    add_high(&mut c, "2");
    assert!(c.api.is_free("high"));
    add(&mut c, "r", 2, 3);
    c.api.add_pod(member("q", "g", 3, "other"));
    c.settle();
    assert_eq!(sets(&c), [("main".to_owned(), 2), ("other".to_owned(), 1)]);
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c), ["q", "r0", "r1"]);
}

#[test]
fn a_group_that_was_evicted_while_it_waited_can_be_deleted() {
    let mut c = waiting(2);
    let all = c.api.workloads();
    let own = all.iter().find(|workload| workload.metadata.name.as_deref() == Some("g")).unwrap();
    let own = Api::workload_ref(own);
    c.api.edit(&own, &json!({"spec": {"active": false}}));
    c.settle();
    let is_evicted = |c: &Cluster| c.api.workloads().iter().any(|w| condition(w, "Evicted") == "True");
    assert!(is_evicted(&c));
    c.api.delete_queued_pod("p0");
    c.api.delete_queued_pod("p1");
    c.settle();
    assert_eq!(c.api.pods(), ["first"]);
    assert!(c.api.json(&own).is_none());
}

#[test]
fn an_evicted_group_that_waits_can_be_deleted_though_a_pod_of_it_has_succeeded() {
    let mut c = running(3);
    c.api.run_pod("p0", "Succeeded");
    c.settle();
    add_high(&mut c, "2");
    assert!(c.api.is_free("high"));
    add(&mut c, "r", 2, 3);
    assert_eq!(c.api.pods(), ["high", "p0", "r0", "r1"]);
    for name in ["p0", "r0", "r1"] {
        c.api.delete_queued_pod(name);
    }
    c.settle();
    assert_eq!(c.api.pods(), ["high"]);
    assert_eq!(c.api.workloads().len(), 1, "the group's is gone");
}
