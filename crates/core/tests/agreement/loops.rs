//! The preemption-loop guard on the smallest loop: A takes B's place by preemption, and B is first to take it back.

use crate::oracle::world::{
    BorrowWithinCohort, Cohort, Flavor, Fungibility, Group, Name, PodSet, Policy, PreemptionPolicies, Queue,
    Quota, Strategy, Workload, World, name,
};
use crate::pair::scheduler;
use crate::random_worlds::upstream;
use crate::translate;
use sluice_core::{Detail, Gates, LoopKind, Outcome, Scheduler, WorkloadState};
use sluice_quantity::Amount;
use std::collections::BTreeMap;

/// Preempts no workload.
pub const NO_PREEMPTION: PreemptionPolicies = PreemptionPolicies {
    within_cluster_queue: Policy::Never,
    reclaim_within_cohort: Policy::Never,
    borrow_within_cohort: None,
};

/// A queue that takes back what it lent, also while it borrows.
pub fn queue(cohort: &str, cpu: i64, gpu: i64) -> Queue {
    let quota = |nominal| Quota { nominal: Amount(nominal), borrowing_limit: None, lending_limit: None };
    let quotas = BTreeMap::from([(name("cpu"), quota(cpu)), (name("gpu"), quota(gpu))]);
    Queue {
        cohort: Some(name(cohort)),
        groups: vec![Group { covered: vec![name("cpu"), name("gpu")], flavors: vec![(name("f"), quotas)] }],
        strategy: Strategy::BestEffortFifo,
        preemption: PreemptionPolicies {
            within_cluster_queue: Policy::Never,
            reclaim_within_cohort: Policy::Any,
            borrow_within_cohort: Some(BorrowWithinCohort { threshold: None }),
        },
        fungibility: Fungibility::default(),
        weight: 1.0,
        active: true,
    }
}

/// `owner` has the cpu, `guest` borrows it, and `owner` may take it back although it borrows the gpu of `lender` besides.
/// But for that it has to borrow from farther away than the guest, which is first when both want the cpu.
fn world() -> World {
    let mut world = World::default();
    world.flavors.insert(name("f"), Flavor::default());
    for (cohort, parent) in [("near", Some(name("far"))), ("far", None)] {
        world.cohorts.insert(name(cohort), Cohort { parent, groups: Vec::new(), weight: 1.0 });
    }
    world.queues.insert(name("owner"), queue("near", 1, 0));
    world.queues.insert(name("guest"), Queue { preemption: NO_PREEMPTION, ..queue("near", 0, 0) });
    world.queues.insert(name("lender"), Queue { preemption: NO_PREEMPTION, ..queue("far", 0, 1) });
    world
}

pub fn workload(queue: &str, priority: i32, requests: &[&str]) -> Workload {
    Workload {
        key: name(&format!("{queue}/w")),
        uid: name(queue),
        queue: name(queue),
        priority,
        created: 1000,
        pod_sets: vec![PodSet {
            name: name("main"),
            count: 1,
            requests: requests.iter().map(|resource| (name(resource), Amount(1))).collect(),
            ..PodSet::default()
        }],
        gated: false,
        replaces: None,
    }
}

struct Run {
    core: Scheduler,
    workloads: BTreeMap<Name, Workload>,
    now: i64,
    holders: Vec<String>,
    evictions: usize,
    refused: Vec<(String, LoopKind, String)>,
}

impl Run {
    fn new(gates: Gates) -> Run {
        Run {
            core: scheduler(&world(), gates),
            workloads: BTreeMap::new(),
            now: 2_000_000,
            holders: Vec::new(),
            evictions: 0,
            refused: Vec::new(),
        }
    }

    fn submit(&mut self, workload: Workload) {
        let spec = translate::workload(&workload, WorkloadState::PENDING);
        self.core.set_workload(spec, translate::time(self.now));
        self.workloads.insert(workload.key.clone(), workload);
    }

    /// Cycles; victims leave at once and wait again.
    fn cycles(&mut self, number: usize) {
        for _ in 0..number {
            self.now += 1;
            let mut victims: Vec<Name> = Vec::new();
            for entry in self.core.cycle(translate::time(self.now)).entries {
                match entry.outcome {
                    Outcome::Admitted { .. } => self.holders.push(entry.key.to_string()),
                    Outcome::Preempting { victims: chosen, .. } => {
                        victims.extend(chosen.iter().map(|victim| name(&victim.key.to_string())));
                    }
                    Outcome::Unadmitted(why) => {
                        if let Detail::PreemptionLoop { victim, kind, .. } = &why.detail {
                            self.refused.push((victim.to_string(), *kind, why.message()));
                        }
                    }
                    Outcome::PreemptionGated(_)
                    | Outcome::SecondPass(_)
                    | Outcome::SlicesMoved(_)
                    | Outcome::SliceReclaims(_)
                    | Outcome::NodesNotReplaced(..) => {}
                }
            }
            for key in victims {
                self.evictions += 1;
                self.holders.retain(|holder| **holder != *key);
                self.submit(self.workloads[&key].clone());
            }
        }
    }

    /// The guest is there first, then the owner comes.
    fn story(gates: Gates) -> Run {
        let mut run = Run::new(gates);
        run.submit(workload("guest", 0, &["cpu"]));
        run.cycles(1);
        assert_eq!(run.holders, ["guest/w"]);
        run.submit(workload("owner", 1, &["cpu", "gpu"]));
        run.cycles(40);
        run
    }
}

#[test]
fn without_the_guard_the_owner_evicts_the_guest_for_ever() {
    let run = Run::story(upstream(true));
    assert_eq!((run.holders.len(), run.evictions), (1, 20));
}

#[test]
fn a_workload_that_evicts_the_same_victim_again_goes_first_and_gets_the_room() {
    let run = Run::story(Gates::default());
    assert_eq!((run.holders, run.evictions, run.refused), (vec!["owner/w".to_owned()], 2, vec![]));
}
