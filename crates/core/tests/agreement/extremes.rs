//! Unusual sizes: many flavors and resources, huge pod sets, deep trees. Everything goes, and nothing is left
//! behind when it is gone.

use crate::oracle::world::name;
use sluice_core::{
    Amount, ClusterQueueSpec, CohortSpec, Config, FlavorQuotas, FlavorSpec, InactiveCause, LocalQueueSpec,
    Name, Outcome, PodSetSpec, ResourceGroup, ResourceQuota, Scheduler, Selector, StopPolicy, Time, Weight,
    WorkloadKey, WorkloadSpec, WorkloadState,
};

const NOW: Time = Time(1_000_000_000);

fn quota(resource: &str, nominal: i64) -> ResourceQuota {
    ResourceQuota {
        name: name(resource),
        nominal: Amount(nominal),
        borrowing_limit: None,
        lending_limit: None,
    }
}

fn cohort(cohort: &str, parent: Option<&str>, groups: Vec<ResourceGroup>) -> CohortSpec {
    CohortSpec {
        name: name(cohort),
        parent: parent.map(name),
        resource_groups: groups,
        fair_weight: Weight::ONE,
    }
}

fn group(flavors: Vec<FlavorQuotas>) -> ResourceGroup {
    let covered = flavors[0].resources.iter().map(|quota| quota.name.clone()).collect();
    ResourceGroup { covered, flavors }
}

/// A core with one queue, `q`, its LocalQueue of the same name, and the flavors of its groups.
fn core(cohort: Option<&str>, groups: Vec<ResourceGroup>) -> Scheduler {
    let mut core = Scheduler::new(Config::default());
    core.set_namespace(&name("ns"), Vec::new());
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        core.set_flavor(FlavorSpec {
            name: flavor.name.clone(),
            node_labels: Vec::new(),
            taints: Vec::new(),
            tolerations: Vec::new(),
            topology: None,
        });
    }
    core.set_cluster_queue(ClusterQueueSpec {
        cohort: cohort.map(name),
        resource_groups: groups,
        namespace_selector: Some(Selector::default()),
        ..ClusterQueueSpec::named(name("q"))
    });
    core.set_local_queue(LocalQueueSpec {
        namespace: name("ns"),
        name: name("q"),
        cluster_queue: name("q"),
        stop_policy: StopPolicy::None,
        terminating: false,
        fair_weight: Weight::ONE,
        consumed: Vec::new(),
    });
    core
}

fn pod_set(at: usize, count: i64, min_count: Option<i64>, requests: Vec<(Name, Amount)>) -> PodSetSpec {
    PodSetSpec {
        name: name(&format!("ps{at:02}")),
        count,
        min_count,
        requests,
        node_selector: Vec::new(),
        affinity: Vec::new(),
        tolerations: Vec::new(),
        group: None,
        shape: 0,
    }
}

fn workload(number: usize, pod_sets: Vec<PodSetSpec>) -> WorkloadSpec {
    let created = Time(i64::try_from(number).expect("small"));
    WorkloadSpec {
        key: WorkloadKey::new("ns", format!("w{number}")),
        uid: name(&format!("u{number}")),
        local_queue: name("q"),
        priority: 0,
        created,
        queue_order: created,
        generation: 1,
        pod_sets,
        state: WorkloadState::PENDING,
        preemption_gated: false,
    }
}

/// One cycle; the counts and the flavors of what it admitted.
fn cycle(core: &mut Scheduler) -> Vec<(Vec<i64>, Vec<Name>)> {
    let report = core.cycle(NOW);
    core.audit().expect("the accounting is right");
    let admitted = report.entries.into_iter().filter_map(|entry| match entry.outcome {
        Outcome::Admitted { admission, .. } => Some(admission.pod_sets),
        _ => None,
    });
    let flavors = |pod_sets: &[sluice_core::PodSetAssignment]| {
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
    core.remove_workload(&WorkloadKey::new("ns", format!("w{number}")), NOW);
    core.audit().expect("the accounting is right");
    let status = core.cluster_queue_status("q").expect("the queue is there");
    assert_eq!((status.reserving, status.pending_active, status.pending_inadmissible), (0, 0, 0));
}

#[test]
fn sixty_four_flavors_of_sixty_four_resources() {
    let resources: Vec<String> = (0..64).map(|at| format!("r{at:02}")).collect();
    // Each flavor but the last has one resource that is not enough.
    let flavor = |at: usize| FlavorQuotas {
        name: name(&format!("f{at:02}")),
        resources: (0..64).map(|r| quota(&resources[r], if r == at && at < 63 { 7 } else { 8 })).collect(),
    };
    let mut core = core(Some("all"), vec![group((0..64).map(flavor).collect())]);
    let requests: Vec<(Name, Amount)> = resources.iter().map(|r| (name(r), Amount(1))).collect();
    let pod_sets =
        (0..8).map(|at| PodSetSpec { group: Some(name("one")), ..pod_set(at, 1, None, requests.clone()) });
    core.set_workload(workload(0, pod_sets.collect()), NOW);
    let admitted = cycle(&mut core);
    assert_eq!(admitted, [(vec![1; 8], vec![name("f63")])]);
    let pod_sets = (0..8).map(|at| pod_set(at, 1, None, requests.clone()));
    core.set_workload(workload(1, pod_sets.collect()), NOW);
    let admitted = cycle(&mut core);
    assert_eq!(admitted, [(vec![1; 8], vec![name("f00"), name("f01")])], "apart, seven fit into the first");
    core.remove_workload(&WorkloadKey::new("ns", "w0"), NOW);
    end(&mut core, 1);
}

#[test]
fn ten_thousand_pods_in_each_of_eight_pod_sets_are_reduced_to_what_fits() {
    let per_pod = 3;
    let room = 8 * 7_777 * per_pod;
    let flavor = FlavorQuotas { name: name("f"), resources: vec![quota("cpu", room)] };
    let mut core = core(None, vec![group(vec![flavor])]);
    let pod_sets = |min| {
        (0..8).map(|at| pod_set(at, 10_000, min, vec![(name("cpu"), Amount(per_pod))])).collect::<Vec<_>>()
    };
    core.set_workload(workload(0, pod_sets(None)), NOW);
    assert!(cycle(&mut core).is_empty());
    end(&mut core, 0);
    core.set_workload(workload(1, pod_sets(Some(1))), NOW);
    let before = core.stats().evaluations;
    assert_eq!(cycle(&mut core), [(vec![7_777; 8], vec![name("f")])]);
    let evaluations = core.stats().evaluations - before;
    assert!(evaluations < 25, "a binary search takes few probes, not {evaluations}");
    end(&mut core, 1);
}

#[test]
fn a_thousand_levels_of_cohorts_lend_from_the_top_and_as_a_cycle_stop_the_queue() {
    const DEPTH: usize = 1_000;
    let top = || vec![group(vec![FlavorQuotas { name: name("f"), resources: vec![quota("cpu", 5)] }])];
    let own = FlavorQuotas { name: name("f"), resources: vec![quota("cpu", 1)] };
    let level = |at: usize| format!("co{at:04}");
    let mut core = core(Some(&level(DEPTH - 1)), vec![group(vec![own])]);
    core.set_cohort(cohort(&level(0), None, top()));
    for at in 1..DEPTH {
        core.set_cohort(cohort(&level(at), Some(&level(at - 1)), Vec::new()));
    }
    core.set_workload(workload(0, vec![pod_set(0, 1, None, vec![(name("cpu"), Amount(6))])]), NOW);
    core.set_workload(workload(1, vec![pod_set(0, 1, None, vec![(name("cpu"), Amount(1))])]), NOW);
    assert_eq!(cycle(&mut core), [(vec![1], vec![name("f")])], "one of its own and five of the top's");
    assert!(cycle(&mut core).is_empty(), "there is no seventh");
    core.set_cohort(cohort(&level(0), Some(&level(DEPTH - 1)), top()));
    core.remove_workload(&WorkloadKey::new("ns", "w0"), NOW);
    assert!(cycle(&mut core).is_empty(), "in a cycle of cohorts nothing is admitted");
    let status = core.cluster_queue_status("q").expect("the queue is there");
    let cycle_of = status.inactive.iter().find_map(|cause| match cause {
        InactiveCause::CohortCycle(names) => Some(names.len()),
        _ => None,
    });
    assert_eq!(cycle_of, Some(DEPTH), "{:?}", status.inactive.len());
    core.set_cohort(cohort(&level(0), None, top()));
    assert_eq!(cycle(&mut core), [(vec![1], vec![name("f")])], "the cycle is gone");
    end(&mut core, 1);
}
