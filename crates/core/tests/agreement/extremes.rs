//! Unusual sizes: many flavors and resources, huge pod sets, deep trees. All of them work, and nothing remains after their removal.

use sluice_core::fixtures::{Cq, NS, cohort, cq, flavor, job, key, lq, n, pods, q};
use sluice_core::{
    Amount, Config, InactiveCause, Name, Outcome, PodSetAssignment, PodSetSpec, Scheduler, Time, WorkloadSpec,
};

const NOW: Time = Time(1_000_000_000);

/// A core with one queue, `q`, its LocalQueue of the same name, and the flavors of its groups.
fn core(queue: Cq) -> Scheduler {
    let mut core = Scheduler::new(Config::default());
    core.set_namespace(&n(NS), Vec::new());
    for of_group in queue.0.resource_groups.iter().flat_map(|group| &group.flavors) {
        core.set_flavor(flavor(&of_group.name));
    }
    core.set_cluster_queue(queue.0);
    core.set_local_queue(lq("q", "q"));
    core
}

fn pod_set(at: usize, count: i64, min_count: Option<i64>, requests: Vec<(Name, Amount)>) -> PodSetSpec {
    PodSetSpec { count, min_count, requests, ..pods(&format!("ps{at:02}")) }
}

fn workload(number: usize, pod_sets: Vec<PodSetSpec>) -> WorkloadSpec {
    let created = Time(i64::try_from(number).expect("small"));
    WorkloadSpec { created, queue_order: created, pod_sets, ..job(&format!("w{number}"), "q").spec }
}

/// One cycle; the counts and the flavors of what it admitted.
fn cycle(core: &mut Scheduler) -> Vec<(Vec<i64>, Vec<Name>)> {
    let report = core.cycle(NOW);
    core.audit().expect("the accounting is right");
    let admitted = report.entries.into_iter().filter_map(|entry| match entry.outcome {
        Outcome::Admitted { admission, .. } => Some(admission.pod_sets),
        _ => None,
    });
    let flavors = |pod_sets: &[PodSetAssignment]| {
        let mut flavors: Vec<Name> =
            pod_sets.iter().flat_map(|set| set.flavors.iter().map(|(_, flavor)| flavor.clone())).collect();
        flavors.sort();
        flavors.dedup();
        flavors
    };
    admitted.map(|pod_sets| (pod_sets.iter().map(|set| set.count).collect(), flavors(&pod_sets))).collect()
}

/// The workload ends, and nothing is used any more.
fn end(core: &mut Scheduler, number: usize) {
    core.remove_workload(&key(&format!("w{number}")), NOW);
    core.audit().expect("the accounting is right");
    let status = core.cluster_queue_status("q").expect("the queue is there");
    assert_eq!((status.reserving, status.pending_active, status.pending_inadmissible), (0, 0, 0));
}

#[test]
fn sixty_four_flavors_of_sixty_four_resources() {
    let resources: Vec<String> = (0..64).map(|at| format!("r{at:02}")).collect();
    // Each flavor but the last has one resource that is not enough.
    let nominal = |flavor: usize, r: usize| q(if r == flavor && flavor < 63 { 7 } else { 8 });
    let queue = (0..64).fold(cq("q").cohort("all"), |queue, at| {
        let quotas: Vec<_> = (0..64).map(|r| (resources[r].as_str(), nominal(at, r))).collect();
        queue.flavor(&format!("f{at:02}"), &quotas)
    });
    let mut core = core(queue);
    let requests: Vec<(Name, Amount)> = resources.iter().map(|r| (n(r), Amount(1))).collect();
    let pod_sets =
        (0..8).map(|at| PodSetSpec { group: Some(n("one")), ..pod_set(at, 1, None, requests.clone()) });
    core.set_workload(workload(0, pod_sets.collect()), NOW);
    let admitted = cycle(&mut core);
    assert_eq!(admitted, [(vec![1; 8], vec![n("f63")])]);
    let pod_sets = (0..8).map(|at| pod_set(at, 1, None, requests.clone()));
    core.set_workload(workload(1, pod_sets.collect()), NOW);
    let admitted = cycle(&mut core);
    assert_eq!(admitted, [(vec![1; 8], vec![n("f00"), n("f01")])], "apart, seven fit into the first");
    core.remove_workload(&key("w0"), NOW);
    end(&mut core, 1);
}

#[test]
fn ten_thousand_pods_in_each_of_eight_pod_sets_are_reduced_to_what_fits() {
    let per_pod = 3;
    let room = 8 * 7_777 * per_pod;
    let mut core = core(cq("q").flavor("f", &[("cpu", q(room))]));
    let pod_sets = |min| {
        (0..8).map(|at| pod_set(at, 10_000, min, vec![(n("cpu"), Amount(per_pod))])).collect::<Vec<_>>()
    };
    core.set_workload(workload(0, pod_sets(None)), NOW);
    assert!(cycle(&mut core).is_empty());
    end(&mut core, 0);
    core.set_workload(workload(1, pod_sets(Some(1))), NOW);
    let before = core.stats().evaluations;
    assert_eq!(cycle(&mut core), [(vec![7_777; 8], vec![n("f")])]);
    let evaluations = core.stats().evaluations - before;
    assert!(evaluations < 25, "a binary search takes few probes, not {evaluations}");
    end(&mut core, 1);
}

#[test]
fn a_thousand_levels_of_cohorts_lend_from_the_top_and_as_a_cycle_stop_the_queue() {
    const DEPTH: usize = 1_000;
    let level = |at: usize| format!("co{at:04}");
    let top = || cohort(&level(0)).flavor("f", &[("cpu", q(5))]);
    let mut core = core(cq("q").cohort(&level(DEPTH - 1)).flavor("f", &[("cpu", q(1))]));
    core.set_cohort(top().0);
    for at in 1..DEPTH {
        core.set_cohort(cohort(&level(at)).parent(&level(at - 1)).0);
    }
    core.set_workload(workload(0, vec![pod_set(0, 1, None, vec![(n("cpu"), Amount(6))])]), NOW);
    core.set_workload(workload(1, vec![pod_set(0, 1, None, vec![(n("cpu"), Amount(1))])]), NOW);
    assert_eq!(cycle(&mut core), [(vec![1], vec![n("f")])], "one of its own and five of the top's");
    assert!(cycle(&mut core).is_empty(), "there is no seventh");
    core.set_cohort(top().parent(&level(DEPTH - 1)).0);
    core.remove_workload(&key("w0"), NOW);
    assert!(cycle(&mut core).is_empty(), "in a cycle of cohorts nothing is admitted");
    let status = core.cluster_queue_status("q").expect("the queue is there");
    let cycle_of = status.inactive.iter().find_map(|cause| match cause {
        InactiveCause::CohortCycle(names) => Some(names.len()),
        _ => None,
    });
    assert_eq!(cycle_of, Some(DEPTH), "{:?}", status.inactive.len());
    core.set_cohort(top().0);
    assert_eq!(cycle(&mut core), [(vec![1], vec![n("f")])], "the cycle is gone");
    end(&mut core, 1);
}
