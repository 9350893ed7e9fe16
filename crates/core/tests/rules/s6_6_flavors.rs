//! 6.6 Flavor assignment: where the scan starts, what a flavor is refused for, what a resource needs.

use crate::world::{Cq, Job, World, cohort, cq, job, n, pairs, q};
use sluice_core::PreemptionPolicy::{Any, LowerPriority};
use sluice_core::{
    AffinityTerm, BorrowWithinCohort, Detail, Expression, FairStrategy, FlavorSpec, Fungibility,
    FungibilityPolicy, InactiveCause, Operator, PreemptionPossibility, Refusal, Taint, TaintEffect,
    Toleration, TolerationOperator, WhenCanPreempt,
};

const MAY_STOP: Fungibility = Fungibility {
    when_can_borrow: FungibilityPolicy::MayStopSearch,
    when_can_preempt: WhenCanPreempt::MayStopSearch,
    preference: None,
};
/// A queue with gpu in flavors x and y.
fn xy(name: &str, x: i64, y: i64) -> Cq {
    cq(name).flavor("x", &[("gpu", q(x))]).flavor("y", &[("gpu", q(y))])
}

fn fungible(queue: Cq, fungibility: Fungibility) -> Cq {
    queue.with(|spec| spec.fungibility = fungibility)
}

#[test]
fn s6_6_01_pod_sets_of_a_group_get_one_flavor_and_their_requests_are_summed() {
    let grouped = |group: Option<&str>| {
        let mut w = World::new();
        w.cq(xy("a", 3, 4));
        let group = group.map(n);
        let job =
            job("j", "a").gpu(2).pod(|pod_set| pod_set.group.clone_from(&group)).pod_set("second").gpu(2);
        w.submit(job.pod(|pod_set| pod_set.group = group));
        w.cycle().pop().unwrap()
    };
    assert_eq!(grouped(Some("g")), "j admitted y");
    assert_eq!(grouped(None), "j admitted x,y");
}

#[test]
fn s6_6_02_all_resources_of_a_resource_group_get_the_same_flavor() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("cpu", q(1)), ("gpu", q(9))]).flavor("y", &[("cpu", q(2)), ("gpu", q(2))]));
    w.submit(job("j", "a").gpu(2).req("cpu", 2));
    assert_eq!(w.cycle(), ["j admitted y"]);
    assert_eq!(w.flavors("j"), ["cpu=y", "gpu=y"]);
}

#[test]
fn s6_6_03_resource_groups_choose_their_flavors_apart() {
    let mut w = World::new();
    let queue = cq("a").flavor("x", &[("cpu", q(1))]).flavor("y", &[("cpu", q(2))]);
    w.cq(queue.flavor("v", &[("gpu", q(2))]).flavor("w", &[("gpu", q(9))]));
    w.submit(job("j", "a").gpu(2).req("cpu", 2));
    w.cycle();
    assert_eq!(w.flavors("j"), ["cpu=y", "gpu=v"]);
}

#[test]
fn s6_6_04_flavors_are_tried_in_the_order_of_the_queue() {
    let mut w = World::new();
    w.cq(cq("a").flavor("z", &[("gpu", q(1))]).flavor("y", &[("gpu", q(9))]).flavor("x", &[("gpu", q(9))]));
    w.submit_all([job("one", "a").gpu(1), job("two", "a").gpu(1)]);
    assert_eq!(w.settle(), ["one admitted z", "two admitted y"]);
}

/// Both flavors are full of a victim; `j` may not preempt. The queue takes the first flavor with a preemption.
fn scanning(gate: bool) -> World {
    let mut w = World::gated(|gates| gates.flavor_fungibility_preserve_scan_progress = gate);
    w.cq(fungible(xy("a", 5, 4).within(LowerPriority).cohort("co"), MAY_STOP));
    w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(1))]));
    w.running(job("vx", "a").gpu(4), "x");
    w.running(job("vy", "a").gpu(4), "y");
    w.running(job("own", "a").gpu(1).priority(9), "x");
    w.running(job("r", "b").gpu(1), "x");
    w.submit(gated_job());
    assert_eq!(scan(&mut w), "x");
    w
}

fn gated_job() -> Job {
    job("j", "a").gpu(4).priority(1).with(|spec| spec.preemption_gated = true)
}

/// The flavor that a cycle looked at for `j`.
fn scan(w: &mut World) -> &'static str {
    assert!(w.cycle().contains(&"j gated".to_owned()));
    match (w.message("j").contains("flavor x"), w.message("j").contains("flavor y")) {
        (true, false) => "x",
        (false, true) => "y",
        other => panic!("{other:?}"),
    }
}

#[test]
fn s6_6_05_the_scan_resumes_behind_the_flavor_tried_last() {
    let mut w = scanning(true);
    assert_eq!(scan(&mut w), "y");
}

#[test]
fn s6_6_06_after_the_last_flavor_the_scan_is_over_and_starts_again() {
    let mut w = scanning(true);
    assert_eq!(scan(&mut w), "y");
    assert_eq!(w.inadmissible("a"), ["j"], "no flavors are left to try");
    w.finished("r");
    assert_eq!(scan(&mut w), "x");
    // The flavor tried last is the last one that is left.
    let mut w = scanning(true);
    w.cq(fungible(cq("a").flavor("x", &[("gpu", q(5))]).within(LowerPriority).cohort("co"), MAY_STOP));
    assert_eq!(scan(&mut w), "x");
}

#[test]
fn s6_6_07_progress_survives_a_change_of_capacity_for_one_cycle() {
    let mut w = scanning(true);
    w.finished("own");
    assert_eq!(scan(&mut w), "y");
    let mut w = scanning(false);
    w.finished("own");
    assert_eq!(scan(&mut w), "x", "without the gate every change of the queue's own workloads drops it");
    let mut w = scanning(false);
    w.finished("r");
    assert_eq!(scan(&mut w), "y", "what ends in another queue does not");
}

#[test]
fn s6_6_08_progress_is_dropped_when_it_is_old_and_capacity_changed() {
    type Change = fn(&mut World);
    let policy = |spec: &mut sluice_core::ClusterQueueSpec| spec.preemption.reclaim_within_cohort = Any;
    let changes: [(Change, &str); 4] = [
        (|w| w.finished("own"), "x"),
        (|w| w.cq(cq("b").cohort("co").flavor("x", &[("gpu", q(2))])), "x"),
        (|w| w.finished("r"), "y"),
        (|_| {}, "y"),
    ];
    let mut w = scanning(true);
    w.submit(job("first", "a").gpu(0).priority(5));
    w.cq(fungible(xy("a", 5, 4).within(LowerPriority).cohort("co"), MAY_STOP).with(policy));
    assert_eq!(w.cycle(), ["first admitted x"], "j waits for a cycle");
    assert_eq!(scan(&mut w), "y", "policies have nothing to do with it");
    for (change, flavor) in changes {
        let mut w = scanning(true);
        w.submit(job("first", "a").gpu(0).priority(5));
        change(&mut w);
        assert_eq!(w.cycle(), ["first admitted x"], "j waits for a cycle");
        assert_eq!(scan(&mut w), flavor);
    }
}

#[test]
fn s6_6_09_progress_is_dropped_when_the_shape_changed() {
    let mut w = scanning(true);
    w.submit(gated_job().pod(|pod_set| pod_set.shape = 3));
    assert_eq!(scan(&mut w), "x");
    let mut w = scanning(true);
    w.submit(gated_job().priority(2));
    assert_eq!(scan(&mut w), "x", "nor does it outlast another priority");
}

#[test]
fn s6_6_10_a_missing_flavor_makes_the_queue_inactive_and_is_named() {
    let mut w = World::new();
    w.cq(xy("a", 4, 4));
    w.core.remove_flavor("y");
    w.submit(job("j", "a").gpu(1));
    assert!(w.cycle().is_empty());
    let status = w.core.cluster_queue_status("a").unwrap();
    assert_eq!(status.inactive, [InactiveCause::FlavorNotFound(vec![n("y")])]);
    assert_eq!(Refusal::FlavorNotFound { flavor: n("y") }.to_string(), "flavor y not found");
    w.flavor("y", |_| {});
    assert_eq!(w.cycle(), ["j admitted x"]);
}

fn taint(effect: TaintEffect) -> Taint {
    Taint { key: n("spot"), value: n("yes"), effect }
}

fn toleration(effect: Option<TaintEffect>) -> Toleration {
    Toleration { key: Some(n("spot")), operator: TolerationOperator::Equal, value: n("yes"), effect }
}

/// A queue with the one flavor x, changed like this, and a job, changed like that.
fn with_flavor(flavor: impl FnOnce(&mut FlavorSpec), change: impl FnOnce(Job) -> Job) -> (World, String) {
    let mut w = World::new();
    w.flavor("x", flavor);
    w.cq(cq("a").flavor("x", &[("gpu", q(4))]));
    w.submit(change(job("j", "a").gpu(1)));
    let line = w.cycle().pop().unwrap();
    (w, line)
}

#[test]
fn s6_6_11_an_untolerated_taint_refuses_the_flavor() {
    for effect in [TaintEffect::NoSchedule, TaintEffect::NoExecute] {
        let (w, line) = with_flavor(|flavor| flavor.taints = vec![taint(effect)], |job| job);
        assert_eq!(line, "j NoMatchingFlavor");
        let taint = format!("{{spot yes {} <nil>}}", effect.as_str());
        assert_eq!(
            w.message("j"),
            format!("couldn't assign flavors to pod set main: untolerated taint {taint} in flavor x")
        );
    }
}

#[test]
fn s6_6_12_tolerations_of_the_pod_and_of_the_flavor_count_and_prefer_no_schedule_does_not() {
    let tainted = |flavor: &mut FlavorSpec| flavor.taints = vec![taint(TaintEffect::NoSchedule)];
    let pod = |effect| move |job: Job| job.pod(|pod_set| pod_set.tolerations = vec![toleration(effect)]);
    assert_eq!(with_flavor(tainted, pod(None)).1, "j admitted x");
    assert_eq!(with_flavor(tainted, pod(Some(TaintEffect::NoSchedule))).1, "j admitted x");
    assert_eq!(with_flavor(tainted, pod(Some(TaintEffect::NoExecute))).1, "j NoMatchingFlavor");
    let all = Toleration { key: None, operator: TolerationOperator::Exists, value: n(""), effect: None };
    assert_eq!(
        with_flavor(tainted, |job| job.pod(|pod_set| pod_set.tolerations = vec![all])).1,
        "j admitted x"
    );
    let itself = |flavor: &mut FlavorSpec| {
        tainted(flavor);
        flavor.tolerations = vec![toleration(None)];
    };
    assert_eq!(with_flavor(itself, |job| job).1, "j admitted x");
    let rather_not = |flavor: &mut FlavorSpec| flavor.taints = vec![taint(TaintEffect::PreferNoSchedule)];
    assert_eq!(with_flavor(rather_not, |job| job).1, "j admitted x");
}

fn zone_a(flavor: &mut FlavorSpec) {
    flavor.node_labels = pairs(&[("zone", "a")]);
}

fn select<'a>(labels: &'a [(&'a str, &'a str)]) -> impl FnOnce(Job) -> Job + 'a {
    move |job| job.pod(|pod_set| pod_set.node_selector = pairs(labels))
}

#[test]
fn s6_6_13_a_node_selector_that_differs_from_a_label_of_the_flavor_refuses_it() {
    assert_eq!(with_flavor(zone_a, select(&[("zone", "a")])).1, "j admitted x");
    let (w, line) = with_flavor(zone_a, select(&[("zone", "b")]));
    assert_eq!(line, "j NoMatchingFlavor");
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: flavor x doesn't match node affinity"
    );
}

#[test]
fn s6_6_14_keys_that_are_no_labels_of_this_flavor_are_dropped() {
    assert_eq!(with_flavor(zone_a, select(&[("zone", "a"), ("disk", "ssd")])).1, "j admitted x");
    assert_eq!(with_flavor(|_| {}, select(&[("zone", "b")])).1, "j admitted x");
}

/// A key that only another flavor of the resource group has does not restrict this one, neither in a selector nor in an
/// affinity: each flavor is asked about its own labels.
#[test]
fn s6_6_14_keys_of_other_flavors_of_the_resource_group_are_dropped_too() {
    let flavor_of = |change: &dyn Fn(Job) -> Job| {
        let mut w = World::new();
        w.flavor("x", zone_a);
        w.flavor("y", |flavor| flavor.node_labels = pairs(&[("disk", "ssd")]));
        w.cq(xy("a", 4, 4));
        w.submit(change(job("j", "a").gpu(1)));
        w.cycle().pop().unwrap()
    };
    assert_eq!(flavor_of(&|job| select(&[("zone", "b")])(job)), "j admitted y");
    assert_eq!(flavor_of(&|job| select(&[("zone", "b"), ("disk", "ssd")])(job)), "j admitted y");
    assert_eq!(flavor_of(&|job| select(&[("zone", "b"), ("disk", "hdd")])(job)), "j NoMatchingFlavor");
    let zone_b = || vec![expression("zone", Operator::In, &["b"])];
    assert_eq!(flavor_of(&|job| affinity(vec![zone_b()])(job)), "j admitted y");
    let hdd = || vec![expression("disk", Operator::In, &["hdd"])];
    assert_eq!(flavor_of(&|job| affinity(vec![hdd()])(job)), "j admitted x");
}

fn expression(key: &str, op: Operator, values: &[&str]) -> Expression {
    Expression::new(n(key), op, values.iter().map(|value| n(value)).collect())
}

fn affinity(terms: Vec<Vec<Expression>>) -> impl FnOnce(Job) -> Job {
    let terms = terms
        .into_iter()
        .map(|expressions| AffinityTerm { expressions, ..AffinityTerm::default() })
        .collect();
    move |job| job.pod(|pod_set| pod_set.affinity = terms)
}

#[test]
fn s6_6_15_one_of_the_affinity_terms_must_match_with_all_its_expressions() {
    let zone = |op, values: &[&str]| expression("zone", op, values);
    let admitted = "j admitted x";
    let refused = "j NoMatchingFlavor";
    let terms: [(Vec<Vec<Expression>>, &str); 7] = [
        (vec![vec![zone(Operator::In, &["a", "c"])]], admitted),
        (vec![vec![zone(Operator::In, &["b"])]], refused),
        (vec![vec![zone(Operator::NotIn, &["a"])]], refused),
        (vec![vec![zone(Operator::In, &["b"])], vec![zone(Operator::Exists, &[])]], admitted),
        (vec![vec![zone(Operator::Exists, &[]), zone(Operator::In, &["b"])]], refused),
        (vec![vec![zone(Operator::DoesNotExist, &[])]], refused),
        (vec![vec![zone(Operator::In, &["a"]), expression("disk", Operator::In, &["ssd"])]], admitted),
    ];
    for (terms, expected) in terms {
        let reported = format!("{terms:?}");
        assert_eq!(with_flavor(zone_a, affinity(terms)).1, expected, "{reported}");
    }
}

#[test]
fn s6_6_16_a_term_of_which_no_key_is_a_label_makes_the_whole_affinity_ignored() {
    let terms = vec![
        vec![expression("zone", Operator::In, &["b"])],
        vec![expression("disk", Operator::In, &["ssd"])],
    ];
    assert_eq!(with_flavor(zone_a, affinity(terms)).1, "j admitted x");
    assert_eq!(with_flavor(zone_a, affinity(vec![vec![]])).1, "j admitted x");
}

#[test]
fn s6_6_17_more_than_the_maximum_capacity_never_fits() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(2).borrow(1)));
    w.cq(cq("b").cohort("co").quota(q(9)));
    w.submit(job("j", "a").gpu(2).pod_set("second").gpu(2));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set second: insufficient quota for gpu in flavor default, previously \
         considered podsets requests (2) + current podset request (2) > maximum capacity (3)"
    );
}

#[test]
fn s6_6_17_what_a_removed_cohort_had_is_not_part_of_the_maximum_capacity() {
    let mut w = World::new();
    w.cohort(cohort("co").parent("top").quota(q(5)));
    w.cohort(cohort("top").quota(q(7)));
    w.cq(cq("a").cohort("co").quota(q(1)));
    w.submit(job("j", "a").gpu(99));
    let most = |w: &mut World, most: &str| {
        assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
        assert!(w.message("j").ends_with(&format!("> maximum capacity ({most})")), "{}", w.message("j"));
    };
    most(&mut w, "13");
    w.core.remove_cohort("top");
    most(&mut w, "6");
    w.core.remove_cohort("co");
    most(&mut w, "1");
}

#[test]
fn s6_6_47_a_taint_of_a_device_keeps_out_only_pods_that_do_not_ask_for_it() {
    let device = |key: &str| Taint { key: n(key), value: n("present"), effect: TaintEffect::NoSchedule };
    let admitted = |key: &str, resource: &str| {
        let mut w = World::new();
        w.flavor("x", |flavor| flavor.taints = vec![device(key)]);
        w.cq(cq("a").flavor("x", &[(resource, q(4))]));
        w.submit(job("j", "a").req(resource, 1));
        w.cycle().pop().unwrap()
    };
    assert_eq!(admitted("google.com/tpu", "google.com/tpu"), "j admitted x");
    assert_eq!(admitted("google.com/tpu", "nvidia.com/gpu"), "j NoMatchingFlavor");
    // Only what is an extended resource is tolerated so.
    assert_eq!(admitted("cpu", "cpu"), "j NoMatchingFlavor");
}

#[test]
fn s6_6_18_quota_in_use_is_reported_with_what_is_missing() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("cpu", q(4000)), ("memory", q(8 << 30))]));
    w.running(job("r", "a").req("cpu", 2500).req("memory", 4 << 30), "x");
    w.submit(job("j", "a").req("cpu", 3000).req("memory", 6 << 30));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor x, 1500m more needed, \
         insufficient unused quota for memory in flavor x, 2Gi more needed"
    );
}

/// What a preemption would bring, as the refusal has it.
fn possibility(w: &World, name: &str) -> PreemptionPossibility {
    let Detail::Flavors { pod_sets, .. } = &w.why(name).detail else { panic!("{:?}", w.why(name)) };
    match &pod_sets[0].refusals[0] {
        Refusal::InsufficientQuota { preemption, .. } => *preemption,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s6_6_19_preemption_is_considered_within_nominal_quota() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(2)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.running(job("r", "b").gpu(3), "default");
    w.submit(job("above", "a").gpu(3));
    assert_eq!(w.cycle(), ["above WaitingForQuota"]);
    assert_eq!(possibility(&w, "above"), PreemptionPossibility::NotAllowed);
    w.submit(job("within", "a").gpu(2));
    assert_eq!(w.cycle(), ["within preempts r:InCohortReclamation"]);
    assert_eq!(possibility(&w, "within"), PreemptionPossibility::Reclaim);
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)).within(LowerPriority));
    w.running(job("low", "a").gpu(2).priority(-1), "default");
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j preempts low:InClusterQueue"]);
    assert_eq!(possibility(&w, "j"), PreemptionPossibility::Preempt);
    assert_eq!(w.core.stats().preemption_searches, 1, "the flavor's search is the one for victims");
}

#[test]
fn s6_6_20_preemption_is_considered_where_a_smaller_subtree_has_the_quota() {
    let world = |parent: Option<&str>| {
        let mut w = World::new();
        let mid = cohort("mid").quota(q(3));
        w.cohort(match parent {
            Some(parent) => mid.parent(parent),
            None => mid,
        });
        w.cq(cq("a").cohort("mid").quota(q(0)).reclaim(Any));
        w.cq(cq("b").cohort(parent.unwrap_or("mid")).quota(q(0)));
        w.running(job("r", "b").gpu(1), "default");
        w.submit(job("j", "a").gpu(3));
        (w.cycle().pop().unwrap(), possibility(&w, "j"))
    };
    assert_eq!(
        world(Some("root")),
        ("j preempts r:InCohortReclamation".to_owned(), PreemptionPossibility::Reclaim)
    );
    assert_eq!(
        world(None),
        ("j WaitingForQuota".to_owned(), PreemptionPossibility::NotAllowed),
        "mid is the whole tree"
    );
}

#[test]
fn s6_6_21_preemption_is_considered_while_borrowing_if_that_is_configured() {
    let world = |configured: bool| {
        let mut w = World::new();
        let borrow = configured.then_some(BorrowWithinCohort { max_priority_threshold: None });
        let queue = cq("a").cohort("co").quota(q(2)).reclaim(LowerPriority);
        w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = borrow));
        w.cq(cq("b").cohort("co").quota(q(2)));
        w.running(job("r", "b").gpu(3), "default");
        w.submit(job("j", "a").gpu(3));
        (w.cycle().pop().unwrap(), possibility(&w, "j"))
    };
    assert_eq!(world(false), ("j WaitingForQuota".to_owned(), PreemptionPossibility::NotAllowed));
    assert_eq!(world(true), ("j WaitingForQuota".to_owned(), PreemptionPossibility::NoCandidates));
}

#[test]
fn s6_6_22_fair_sharing_considers_preemption_while_borrowing_if_it_may_reclaim() {
    let world = |reclaim| {
        let mut w = World::fair(&[FairStrategy::LessThanOrEqualToFinalShare]);
        w.cq(cq("a").cohort("co").quota(q(0)).reclaim(reclaim));
        w.cq(cq("b").cohort("co").quota(q(0)));
        w.cohort(cohort("co").quota(q(4)));
        w.running(job("r1", "b").gpu(2), "default");
        w.running(job("r2", "b").gpu(2), "default");
        w.submit(job("j", "a").gpu(2));
        w.cycle().pop().unwrap()
    };
    assert_eq!(world(Any), "j preempts r2:InCohortFairSharing");
    assert_eq!(world(sluice_core::PreemptionPolicy::Never), "j WaitingForQuota");
}
