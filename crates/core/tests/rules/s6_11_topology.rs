//! 6.11 Topology-aware scheduling in the flavor search, and 6.5 and 6.7 as far as nodes are concerned.

use crate::world::{Job, World, cohort, cq, domains, job, key, n, node, q, topology};
use sluice_core::{
    Admission, Amount, CheckController, CheckRule, CheckSpec, FairSharing, FairStrategy, HOSTNAME,
    PreemptionPolicy, RequestedLevel, SliceLayer, TopologyRequest,
};

const RACK: &str = "rack";

/// A world with a topology of racks and hosts; the flavor `default` has it.
fn world() -> World {
    configured(|_| {})
}

fn configured(change: impl FnOnce(&mut sluice_core::Config)) -> World {
    let mut w = World::configured(change);
    w.core.set_topology(&topology("t", &[RACK, HOSTNAME]));
    w.flavor("default", |spec| spec.topology = Some(n("t")));
    w
}

/// A host of a rack with `gpus` GPUs.
fn host(w: &mut World, rack: &str, name: &str, gpus: i64) {
    w.core.set_node(&node(name, &[(RACK, rack)], &[("gpu", gpus)]));
}

fn asks(job: Job, level: RequestedLevel) -> Job {
    job.pod(|pod_set| pod_set.topology = Some(TopologyRequest { level, slices: Vec::new() }))
}

fn required(job: Job, level: &str) -> Job {
    asks(job, RequestedLevel::Required(n(level)))
}

/// Where the pods of the first pod set of a workload are.
fn nodes(w: &World, name: &str) -> String {
    w.core.nodes(&key(name)).first().map_or_else(String::new, |(_, assignment)| domains(assignment))
}

#[test]
fn s6_11_01_a_request_needs_a_flavor_with_a_topology() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.submit(required(job("p", "a").gpu(1), RACK));
    w.cycle();
    assert_eq!(
        w.message("p"),
        "couldn't assign flavors to pod set main: Flavor \"default\" does not support TopologyAwareScheduling"
    );
}

#[test]
fn s6_11_02_without_a_request_only_a_queue_of_topologies_gives_nodes() {
    let mut w = world();
    host(&mut w, "r1", "h1", 4);
    w.cq(cq("only").quota(q(4)));
    w.cq(cq("mixed").quota(q(4)).flavor("plain", &[("gpu", q(4))]));
    w.submit(job("implied", "only").gpu(1));
    assert_eq!(w.cycle(), ["implied admitted default"]);
    assert_eq!(nodes(&w, "implied"), "h1=1");
    w.submit(job("none", "mixed").gpu(1));
    assert_eq!(w.cycle(), ["none admitted plain"]);
    assert_eq!(nodes(&w, "none"), "");
    w.cq(cq("mixed").quota(q(4)).flavor("plain", &[("gpu", q(0))]));
    w.submit(job("more", "mixed").gpu(2));
    w.cycle();
    let message = w.message("more");
    assert!(message.contains("Flavor \"default\" supports only TopologyAwareScheduling"), "{message}");
}

#[test]
fn s6_11_03_the_levels_that_a_request_names_must_exist() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)));
    w.submit(required(job("level", "a").gpu(1), "block"));
    w.cycle();
    let missing =
        "couldn't assign flavors to pod set main: Flavor \"default\" does not contain the requested level";
    assert_eq!(w.message("level"), missing);
    let slices = vec![SliceLayer { level: n("block"), size: 1 }];
    let request = TopologyRequest { level: RequestedLevel::Unconstrained, slices };
    w.submit(job("slices", "a").gpu(1).pod(|pod_set| pod_set.topology = Some(request)));
    w.cycle();
    assert_eq!(w.message("slices"), missing);
}

#[test]
fn s6_11_04_what_is_only_counted_may_have_a_flavor_without_topology() {
    let mut w = world();
    host(&mut w, "r1", "h1", 4);
    w.cq(cq("a").quota(q(4)).flavor("credits", &[("credit", q(10))]));
    let transformed = |job: Job| {
        job.req("credit", 2).pod(|pod_set| pod_set.node_requests = Some(vec![(n("gpu"), Amount(1))]))
    };
    w.submit(required(transformed(job("p", "a").gpu(1)), RACK));
    assert_eq!(w.cycle().len(), 1);
    assert_eq!(nodes(&w, "p"), "h1=1");
}

#[test]
fn s6_11_05_the_resources_of_a_pod_set_have_one_flavor_with_a_topology() {
    let mut w = world();
    w.flavor("other", |spec| spec.topology = Some(n("t")));
    w.cq(cq("a").quota(q(4)).flavor("other", &[("cpu", q(10))]));
    w.submit(job("p", "a").gpu(1).req("cpu", 1));
    w.cycle();
    assert!(w.message("p").contains("more than one flavor assigned: default, other"), "{}", w.message("p"));
}

#[test]
fn s6_11_05_a_request_needs_a_resource_whose_flavor_has_a_topology() {
    let mut w = configured(|config| config.ignore_undeclared = true);
    host(&mut w, "r1", "h1", 4);
    w.cq(cq("a").quota(q(4)).flavor("credits", &[("credit", q(10))]));
    // Of what these pods ask of their node nothing is covered; of what they ask of quota all is only counted.
    let nothing = |job: Job| required(job.req("other", 1), RACK);
    let counted = |job: Job| {
        let transformed = required(job.req("credit", 2), RACK);
        transformed.pod(|pods| pods.node_requests = Some(vec![(n("other"), Amount(1))]))
    };
    let beside = |job: Job| nothing(required(job.gpu(1), RACK).pod_set("second"));
    for (name, asks) in
        [("nothing", &nothing as &dyn Fn(Job) -> Job), ("counted", &counted), ("beside", &beside)]
    {
        w.submit(asks(job(name, "a")));
        let lines = w.cycle();
        assert_eq!(lines, [format!("{name} TopologyPlacementFailed")]);
        assert!(w.message(name).ends_with("no TAS flavor assigned"), "{}", w.message(name));
    }
    w.submit(job("free", "a").req("other", 1));
    assert_eq!(w.cycle(), ["free admitted "], "it asks for no nodes");
}

#[test]
fn s6_11_06_checks_that_bring_nodes_delay_the_placement() {
    for controller in [CheckController::MultiKueue, CheckController::ProvisioningRequest] {
        let mut w = world();
        w.core.set_check(&n("check"), CheckSpec { active: true, controller });
        let rule = CheckRule { name: n("check"), on_flavors: Vec::new() };
        w.cq(cq("a").quota(q(4)).with(|spec| spec.admission_checks = vec![rule]));
        w.submit(job("p", "a").gpu(1));
        assert_eq!(w.cycle().len(), 1, "it needs no node yet");
        let admission: &Admission = w.admission("p");
        assert!(admission.pod_sets[0].topology_delayed && admission.pod_sets[0].topology.is_none());
    }
    let mut w = world();
    w.core
        .set_check(&n("check"), CheckSpec { active: true, controller: CheckController::ProvisioningRequest });
    let rule = CheckRule { name: n("check"), on_flavors: vec![n("elsewhere")] };
    host(&mut w, "r1", "h1", 1);
    w.cq(cq("a").quota(q(4)).with(|spec| spec.admission_checks = vec![rule]));
    w.submit(job("p", "a").gpu(1));
    assert_eq!(w.cycle(), ["p admitted default"], "the check is about another flavor");
    assert_eq!(nodes(&w, "p"), "h1=1");
}

#[test]
fn s6_11_07_quota_without_nodes_waits_until_there_are_some() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)));
    host(&mut w, "r1", "h1", 1);
    w.submit(required(job("p", "a").gpu(1).count(2), RACK));
    w.cycle();
    assert!(
        w.message("p").contains("topology \"t\" allows to fit only 1 out of 2 pod(s)"),
        "{}",
        w.message("p")
    );
    assert!(w.cycle().is_empty(), "nothing changed");
    host(&mut w, "r2", "h2", 1);
    w.cycle();
    assert!(w.core.position(&key("p")).is_some(), "not in one rack");
    host(&mut w, "r1", "h3", 1);
    assert_eq!(w.cycle(), ["p admitted default"]);
    assert_eq!(nodes(&w, "p"), "h1=1,h3=1");
}

#[test]
fn s6_11_08_what_other_pods_take_is_not_free() {
    let mut w = world();
    w.cq(cq("a").quota(q(4)));
    host(&mut w, "r1", "h1", 2);
    w.core.set_other_usage(&n("h1"), &[(n("gpu"), Amount(1)), (n("pods"), Amount(1))]);
    w.submit(job("p", "a").gpu(2));
    w.cycle();
    assert!(w.core.position(&key("p")).is_some());
    w.core.set_other_usage(&n("h1"), &[]);
    assert_eq!(w.cycle(), ["p admitted default"]);
}

#[test]
fn s6_11_09_nodes_are_preempted_for_although_quota_is_free() {
    let mut w = world();
    w.cq(cq("a").quota(q(8)).within(PreemptionPolicy::LowerPriority));
    host(&mut w, "r1", "h1", 2);
    host(&mut w, "r2", "h2", 2);
    w.submit(required(job("low1", "a").gpu(1), RACK));
    w.cycle();
    w.submit(required(job("low2", "a").gpu(2), RACK));
    w.cycle();
    assert_eq!((nodes(&w, "low1"), nodes(&w, "low2")), ("h1=1".to_owned(), "h2=1".to_owned()));
    w.submit(required(job("high", "a").gpu(2).priority(1), RACK));
    let lines = w.cycle();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("high preempts low"), "{lines:?}");
    assert!(!lines[0].contains("low1") || !lines[0].contains("low2"), "one rack is enough: {lines:?}");
}

#[test]
fn s6_11_10_nothing_is_preempted_where_not_even_empty_nodes_suffice() {
    let mut w = world();
    w.cq(cq("a").quota(q(8)).within(PreemptionPolicy::LowerPriority));
    host(&mut w, "r1", "h1", 2);
    host(&mut w, "r2", "h2", 2);
    w.submit(job("low", "a").gpu(2));
    w.cycle();
    w.submit(required(job("high", "a").gpu(2).count(2).priority(1), RACK));
    let lines = w.cycle();
    assert!(lines[0].starts_with("high TopologyPlacementFailed"), "{lines:?}");
}

#[test]
fn s6_11_11_heads_of_one_cycle_do_not_get_the_same_nodes() {
    for recompute in [true, false] {
        let mut w = configured(|config| {
            config.gates.tas_recompute_assignment_within_scheduling_cycle = recompute;
        });
        host(&mut w, "r1", "h1", 1);
        host(&mut w, "r1", "h2", 1);
        w.cq(cq("a").quota(q(1)));
        w.cq(cq("b").quota(q(1)));
        w.submit_all([job("p", "a").gpu(1), job("q", "b").gpu(1)]);
        let lines = w.cycle();
        assert_eq!(lines[0], "p admitted default");
        if recompute {
            assert_eq!(lines[1], "q admitted default");
        } else {
            assert!(lines[1].contains("Workload no longer fits"), "{lines:?}");
            assert_eq!(w.cycle(), ["q admitted default"]);
        }
        assert_eq!((nodes(&w, "p"), nodes(&w, "q")), ("h1=1".to_owned(), "h2=1".to_owned()));
    }
}

/// `r` of one queue wants a whole rack, of which `v` has a host; `e` of another tree wants the other host, and `twin` is its equal.
fn reserves_a_rack(change: impl FnOnce(&mut sluice_core::Config)) -> World {
    let mut w = configured(change);
    host(&mut w, "r1", "h1", 1);
    host(&mut w, "r1", "h2", 1);
    for queue in ["a", "b"] {
        w.cq(cq(queue).quota(q(4)));
    }
    w.submit(job("v", "a").gpu(1));
    assert_eq!(w.cycle(), ["v admitted default"]);
    w.submit(required(job("r", "a").gpu(1).count(2).priority(9), RACK));
    w.submit_all([job("e", "b").gpu(1), job("twin", "b").gpu(1)]);
    w
}

#[test]
fn s6_11_11_nodes_that_a_head_only_reserved_are_given_in_the_next_cycle() {
    for recompute in [true, false] {
        let mut w = reserves_a_rack(|config| {
            config.gates.tas_recompute_assignment_within_scheduling_cycle = recompute;
        });
        let lines = w.cycle();
        assert!(lines[0].starts_with("r ") && lines[1].starts_with("e "), "{lines:?}");
        assert!(!lines[1].contains("admitted"), "{lines:?}");
        assert_eq!(w.cycle(), ["e admitted default"], "recompute: {recompute}");
        w.finished("e");
        // Both are heads again, and the one that reserves goes first.
        let lines = w.settle();
        assert!(lines.contains(&"twin admitted default".to_owned()), "{lines:?}");
    }
}

#[test]
fn s6_11_11_a_flavor_whose_nodes_were_only_reserved_is_tried_again() {
    for recompute in [true, false] {
        let mut w = reserves_a_rack(|config| {
            config.gates.tas_recompute_assignment_within_scheduling_cycle = recompute;
        });
        w.flavor("full", |spec| spec.topology = Some(n("t")));
        w.cq(cq("b").quota(q(4)).flavor("full", &[("gpu", q(0))]));
        // The search continues with the other flavor, finds nothing there either, and begins again.
        let lines: Vec<String> = (0..3).flat_map(|_| w.cycle()).collect();
        assert!(lines.contains(&"e admitted default".to_owned()), "{lines:?}");
    }
}

#[test]
fn s6_11_12_nodes_that_become_free_wake_the_queues_of_other_trees() {
    let mut w = world();
    host(&mut w, "r1", "h1", 1);
    w.cq(cq("a").quota(q(1)).cohort("x"));
    w.cq(cq("b").quota(q(1)).cohort("y"));
    w.submit(job("p", "a").gpu(1));
    w.cycle();
    w.submit(job("waits", "b").gpu(1));
    w.cycle();
    assert!(w.core.position(&key("waits")).is_some());
    w.finished("p");
    assert_eq!(w.cycle(), ["waits admitted default"]);
}

#[test]
fn s6_11_13_fewer_pods_are_tried_where_nodes_are_short() {
    let mut w = world();
    host(&mut w, "r1", "h1", 3);
    w.cq(cq("a").quota(q(8)));
    w.submit(required(job("p", "a").gpu(1).count(5).min(2), RACK));
    assert_eq!(w.cycle().len(), 1);
    assert_eq!(nodes(&w, "p"), "h1=3");
}

#[test]
fn s6_11_14_a_leader_and_its_workers_are_placed_together() {
    let mut w = world();
    host(&mut w, "r1", "h1", 2);
    host(&mut w, "r2", "h2", 4);
    w.cq(cq("a").quota(q(8)));
    let group = |job: Job| required(job, RACK).pod(|pod_set| pod_set.group = Some(n("g")));
    let leader = group(job("p", "a").gpu(1));
    w.submit(group(leader.pod_set("workers").gpu(1).count(3)));
    assert_eq!(w.cycle().len(), 1);
    let all: Vec<String> = w.core.nodes(&key("p")).iter().map(|(_, nodes)| domains(nodes)).collect();
    assert_eq!(all, ["h2=1", "h2=3"]);
}

#[test]
fn s6_11_15_what_a_preemptor_waits_for_is_not_given_to_the_next_head() {
    let mut w = world();
    host(&mut w, "r1", "h1", 2);
    w.cq(cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority));
    w.cq(cq("b").quota(q(4)));
    w.submit(job("low", "a").gpu(1));
    w.cycle();
    w.submit_all([job("high", "a").gpu(2).priority(9), job("other", "b").gpu(1)]);
    let lines = w.cycle();
    assert!(lines[0].starts_with("high preempts low"), "{lines:?}");
    assert!(!lines[1].contains("admitted"), "{lines:?}");
}

/// Two hosts full of workloads of the borrowing queue `b`, of one GPU each.
fn borrower(w: &mut World, priorities: [i32; 4]) {
    host(w, "r1", "h1", 2);
    host(w, "r2", "h2", 2);
    let names = ["one", "two", "three", "four"];
    for (name, priority) in names.into_iter().zip(priorities) {
        w.submit(job(name, "b").gpu(1).priority(priority));
        w.cycle();
    }
    assert_eq!(names.map(|name| nodes(w, name)), ["h1=1", "h1=1", "h2=1", "h2=1"]);
}

/// What `p` preempts, in any order; when that is gone it is on a host.
fn takes(w: &mut World, reason: &str, victims: [&str; 2]) {
    w.submit(required(job("p", "a").gpu(2), HOSTNAME));
    let lines = w.cycle();
    let mut taken: Vec<&str> =
        lines[0].strip_prefix("p preempts ").expect("it preempts").split(' ').collect();
    taken.sort_unstable();
    assert_eq!(taken, victims.map(|victim| format!("{victim}:{reason}")));
    for victim in victims {
        w.finished(victim);
    }
    assert_eq!(w.cycle(), ["p admitted default"]);
}

#[test]
fn s6_11_16_what_is_reclaimed_frees_a_whole_node() {
    let mut w = world();
    w.cq(cq("a").quota(q(3)).cohort("co").reclaim(PreemptionPolicy::Any));
    w.cq(cq("b").quota(q(1)).cohort("co"));
    // The two of priority 0 would be enough for quota, and leave one GPU free on each host.
    borrower(&mut w, [0, 1, 0, 2]);
    takes(&mut w, "InCohortReclamation", ["one", "two"]);
    assert_eq!(nodes(&w, "p"), "h1=1");
}

#[test]
fn s6_11_17_fair_sharing_takes_what_frees_a_whole_node() {
    for strategy in [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare] {
        let mut w =
            configured(|config| config.fair_sharing = Some(FairSharing { strategies: vec![strategy] }));
        w.cohort(cohort("co").quota(q(3)));
        for queue in ["a", "b"] {
            w.cq(cq(queue).quota(q(1)).cohort("co").reclaim(PreemptionPolicy::Any));
        }
        // The one of priority 0 would be enough for quota.
        borrower(&mut w, [2, 3, 0, 1]);
        takes(&mut w, "InCohortFairSharing", ["four", "three"]);
        assert_eq!(nodes(&w, "p"), "h2=1", "{strategy:?}");
    }
}

#[test]
fn s6_11_18_nothing_is_reclaimed_where_no_node_becomes_whole() {
    let mut w = world();
    host(&mut w, "r1", "h1", 2);
    host(&mut w, "r2", "h2", 2);
    w.cq(cq("a").quota(q(2)).cohort("co").reclaim(PreemptionPolicy::Any));
    w.cq(cq("b").quota(q(2)).cohort("co"));
    w.cq(cq("c").quota(q(0)).cohort("co"));
    // Of each host one GPU is used within nominal quota; the borrower has one of the others.
    for (name, queue) in [("borrows", "c"), ("keeps1", "b"), ("keeps2", "b")] {
        w.submit(job(name, queue).gpu(1));
        w.cycle();
    }
    assert_eq!(["borrows", "keeps1", "keeps2"].map(|name| nodes(&w, name)), ["h1=1", "h1=1", "h2=1"]);
    w.submit(required(job("p", "a").gpu(2), HOSTNAME));
    let lines = w.cycle();
    assert!(lines.len() == 1 && !lines[0].contains("preempts"), "{lines:?}");
    assert!(w.core.position(&key("p")).is_some());
}

#[test]
fn s6_11_20_pods_that_nothing_holds_back_get_no_flavor_with_a_topology() {
    let mut w = world();
    host(&mut w, "r1", "h1", 4);
    w.cq(cq("only").quota(q(4)));
    w.cq(cq("mixed").quota(q(4)).flavor("plain", &[("gpu", q(4))]));
    let ungated = |job: Job| job.gpu(1).pod(|pods| pods.ungated = true);
    let refused = "Flavor \"default\" supports only TopologyAwareScheduling, and no scheduling gate can hold the pods back";
    w.submit(ungated(job("implied", "only")));
    w.cycle();
    assert_eq!(w.message("implied"), format!("couldn't assign flavors to pod set main: {refused}"));
    w.submit(ungated(required(job("asks", "mixed"), RACK)));
    w.cycle();
    assert!(w.message("asks").contains(refused), "{}", w.message("asks"));
    w.submit(ungated(job("plain", "mixed")));
    assert_eq!(w.cycle(), ["plain admitted plain"]);
    w.submit(job("gated", "only").gpu(1));
    assert_eq!(w.cycle(), ["gated admitted default"]);
    assert_eq!(nodes(&w, "gated"), "h1=1");
}
