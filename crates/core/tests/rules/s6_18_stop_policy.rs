//! 6.18 stopPolicy, hold and drain: what is queued. Evictions and conditions are the engine's.

use crate::world::{NS, World, cq, job, q};
use sluice_core::{InactiveCause, LocalQueueInactive, StopPolicy};

fn world() -> World {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.running(job("r", "a").gpu(1), "default");
    w.submit(job("j", "a").gpu(1));
    w
}

#[test]
fn s6_18_01_a_stopped_cluster_queue_makes_no_new_reservations_and_keeps_what_it_has() {
    for policy in [StopPolicy::Hold, StopPolicy::HoldAndDrain] {
        let mut w = world();
        w.cq(cq("a").quota(q(4)).with(|spec| spec.stop_policy = policy));
        assert!(w.cycle().is_empty() && !w.core.has_heads());
        let status = w.core.cluster_queue_status("a").unwrap();
        assert_eq!(status.inactive, [InactiveCause::Stopped]);
        assert_eq!((status.reserving, status.pending_active), (1, 1));
        assert_eq!(
            w.core.local_queue_status(NS, "a").unwrap().inactive,
            Some(LocalQueueInactive::ClusterQueueIsInactive)
        );
        w.cq(cq("a").quota(q(4)));
        assert_eq!(w.cycle(), ["j admitted default"]);
    }
}

#[test]
fn s6_18_02_a_stopped_local_queue_is_removed_from_the_queues_altogether() {
    for policy in [StopPolicy::Hold, StopPolicy::HoldAndDrain] {
        let mut w = world();
        w.lq("a", "a", |spec| spec.stop_policy = policy);
        assert!(w.cycle().is_empty());
        assert!(w.core.positions("a").is_empty());
        let status = w.core.local_queue_status(NS, "a").unwrap();
        assert_eq!((status.inactive, status.reserving), (Some(LocalQueueInactive::Stopped), 1));
        w.lq("a", "a", |_| {});
        assert_eq!(w.cycle(), ["j admitted default"]);
    }
}

#[test]
fn s6_18_03_a_local_queue_that_is_stopped_does_not_stop_the_others() {
    let mut w = world();
    w.lq("other", "a", |_| {});
    w.submit(job("k", "other").gpu(1));
    w.lq("a", "a", |spec| spec.stop_policy = StopPolicy::Hold);
    assert_eq!(w.settle(), ["k admitted default"]);
}

#[test]
fn s6_18_04_a_missing_or_terminating_local_queue_queues_nothing() {
    let mut w = world();
    w.lq("a", "a", |spec| spec.terminating = true);
    assert!(w.cycle().is_empty() && w.core.positions("a").is_empty());
    w.core.remove_local_queue(NS, "a");
    assert!(w.cycle().is_empty());
    assert_eq!(w.used("a"), (1, 0), "what it holds stays");
    w.lq("a", "a", |_| {});
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_18_05_a_local_queue_may_come_before_its_cluster_queue() {
    let mut w = World::new();
    w.lq("a", "a", |_| {});
    w.submit(job("j", "a").gpu(1));
    let inactive = |w: &World| w.core.local_queue_status(NS, "a").unwrap().inactive;
    assert_eq!(inactive(&w), Some(LocalQueueInactive::ClusterQueueDoesNotExist));
    assert!(w.cycle().is_empty());
    w.cq(cq("a").quota(q(1)));
    assert_eq!(inactive(&w), None);
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_18_06_a_terminating_cluster_queue_admits_nothing_and_keeps_what_it_has() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)).with(|spec| spec.terminating = true));
    assert!(w.cycle().is_empty());
    let status = w.core.cluster_queue_status("a").unwrap();
    assert_eq!((status.inactive, status.reserving), (vec![InactiveCause::Terminating], 1));
}

#[test]
fn s6_18_07_what_a_deleted_cluster_queue_had_admitted_stays_with_its_workloads() {
    let mut w = world();
    w.core.remove_cluster_queue("a");
    assert!(w.cycle().is_empty());
    assert!(w.core.cluster_queue_status("a").is_none());
    w.cq(cq("a").quota(q(1)));
    assert_eq!(w.used("a"), (1, 0));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.finished("r");
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_18_08_all_causes_are_reported_in_their_order() {
    let mut w = world();
    w.core.remove_flavor("default");
    w.cq(cq("a").quota(q(4)).with(|spec| {
        spec.terminating = true;
        spec.stop_policy = StopPolicy::Hold;
    }));
    w.core.remove_flavor("default");
    let causes = w.core.cluster_queue_status("a").unwrap().inactive;
    let reported: Vec<_> = causes.iter().map(|cause| (cause.reason(), cause.message())).collect();
    assert_eq!(
        reported,
        [
            ("Terminating", "clusterQueue is terminating".to_owned()),
            ("Stopped", "is stopped".to_owned()),
            ("FlavorNotFound", "references missing ResourceFlavor(s): default".to_owned()),
        ]
    );
}
