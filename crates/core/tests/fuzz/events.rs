//! Arbitrary event streams for the scheduler: each byte string is one. Used by the fuzz target `core_events`, and by an ordinary test with fixed
//! inputs.

use std::collections::BTreeSet;

use sluice_core::{
    Admission, AdmissionFairSharing, AffinityTerm, Amount, BorrowWithinCohort, CheckRule, ClusterQueueSpec,
    CohortSpec, Config, CycleReport, Expression, FairSharing, FairStrategy, FlavorQuotas, FlavorSpec,
    Fungibility, FungibilityPolicy, FungibilityPreference, Gates, LocalQueueSpec, Name, Operator, Outcome,
    PodSetAssignment, PodSetSpec, Preemption, PreemptionPolicy, PreferredTerm, QueueingStrategy,
    ReplacedSlice, ResourceGroup, ResourceQuota, Scheduler, Selector, StopPolicy, Taint, TaintEffect, Time,
    Toleration, TolerationOperator, Weight, WhenCanPreempt, WorkloadKey, WorkloadSpec, WorkloadState,
};

use crate::mirror::Mirror;
use crate::nodes;

/// The input: bytes that become choices. When they are used up every choice is the first.
pub(super) struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    /// A number below `n`, which is at most 256.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    pub(super) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| make(self))
    }

    /// Up to `most` things.
    pub(super) fn some<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    /// One of a few names with this prefix, mostly the first.
    pub(super) fn name(&mut self, prefix: &str, count: usize) -> Name {
        let at = self.below(2 * count);
        Name::from(format!("{prefix}{}", if at < count { at } else { 0 }))
    }

    /// Mostly small, sometimes at the edge of what there is.
    pub(super) fn amount(&mut self) -> Amount {
        let extremes = [i64::MIN, i64::MIN + 1, -1, i64::MAX / 2, i64::MAX - 1, i64::MAX];
        match self.byte() {
            at @ 250.. => Amount(extremes[usize::from(at - 250)]),
            small => Amount(i64::from(small % 9)),
        }
    }

    pub(super) fn count(&mut self) -> i64 {
        match self.byte() {
            255 => i64::MAX,
            254 => i64::MIN,
            253 => 10_000,
            small => i64::from(small % 5),
        }
    }

    pub(super) fn pairs(&mut self) -> Vec<(Name, Name)> {
        self.some(2, |c| (c.name("key", 3), c.name("value", 2)))
    }
}

fn config(c: &mut Choices<'_>) -> Config {
    let mut gates = Gates::default();
    for gate in [
        &mut gates.partial_admission,
        &mut gates.flavor_fungibility,
        &mut gates.flavor_fungibility_preserve_scan_progress,
        &mut gates.priority_sorting_within_cohort,
        &mut gates.fair_sharing_preempt_within_nominal,
        &mut gates.fair_sharing_prioritize_non_borrowing,
        &mut gates.scheduling_equivalence_hashing,
        &mut gates.prioritize_preemptor_workloads,
        &mut gates.recompute_assignment_upon_preemption_targets_overlap,
        &mut gates.tas_recompute_assignment_within_scheduling_cycle,
        &mut gates.tas_failed_node_replacement,
        &mut gates.tas_failed_node_replacement_fail_fast,
        &mut gates.elastic_jobs_via_workload_slices_with_tas,
        &mut gates.preemption_loop_guard,
        &mut gates.requeue_reclaimers_on_borrowing,
        &mut gates.admit_only_free_quota,
        &mut gates.tas_respect_node_affinity_preferred,
    ] {
        *gate ^= c.byte() & 3 == 3;
    }
    let strategies = [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
    Config {
        gates,
        fair_sharing: c.maybe(|c| FairSharing { strategies: c.some(2, |c| c.pick(&strategies)) }),
        admission_fair_sharing: c.maybe(|c| AdmissionFairSharing {
            half_life_seconds: i64::from(c.byte()),
            sampling_interval_seconds: i64::from(c.byte()),
            resource_weights: c.some(2, |c| (c.name("r", 3), f64::from(c.byte()) / 16.0)),
        }),
        ignore_undeclared: c.flag(),
        block_admission: c.byte() & 7 == 7,
    }
}

fn groups(c: &mut Choices<'_>) -> Vec<ResourceGroup> {
    c.some(3, |c| {
        let covered = c.some(3, |c| if c.byte() == 255 { Name::from("pods") } else { c.name("r", 3) });
        let flavors = c.some(3, |c| FlavorQuotas {
            name: c.name("f", 3),
            resources: covered
                .iter()
                .map(|name| ResourceQuota {
                    name: name.clone(),
                    nominal: c.amount(),
                    borrowing_limit: c.maybe(Choices::amount),
                    lending_limit: c.maybe(Choices::amount),
                })
                .collect(),
        });
        ResourceGroup { covered, flavors }
    })
}

/// Quota for `r0` in two flavors.
fn plain_group() -> ResourceGroup {
    let quota = |flavor: &str, nominal| FlavorQuotas {
        name: Name::from(flavor),
        resources: vec![ResourceQuota {
            name: Name::from("r0"),
            nominal: Amount(nominal),
            borrowing_limit: None,
            lending_limit: None,
        }],
    };
    ResourceGroup { covered: vec![Name::from("r0")], flavors: vec![quota("f0", 6), quota("f1", 3)] }
}

fn expression(c: &mut Choices<'_>) -> Expression {
    let operators =
        [Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist, Operator::Gt, Operator::Lt];
    let (key, op) = (c.name("key", 3), c.pick(&operators));
    Expression::new(key, op, c.some(2, |c| c.name("value", 2)))
}

const EFFECTS: [TaintEffect; 3] =
    [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];

fn toleration(c: &mut Choices<'_>) -> Toleration {
    Toleration {
        key: c.maybe(|c| c.name("key", 3)),
        operator: c.pick(&[
            TolerationOperator::Equal,
            TolerationOperator::Exists,
            TolerationOperator::Lt,
            TolerationOperator::Gt,
        ]),
        value: c.name("value", 2),
        effect: c.maybe(|c| c.pick(&EFFECTS)),
    }
}

fn flavor(c: &mut Choices<'_>) -> FlavorSpec {
    FlavorSpec {
        name: c.name("f", 3),
        node_labels: c.pairs(),
        taints: c.some(1, |c| Taint {
            key: c.name("key", 3),
            value: c.name("value", 2),
            effect: c.pick(&EFFECTS),
        }),
        tolerations: c.some(1, toleration),
        topology: (c.byte() > 230).then(|| nodes::topology_name(c)),
    }
}

fn weight(c: &mut Choices<'_>) -> Weight {
    Weight::from_milli(c.pick(&[1000, 0, 500, 1, i64::MAX, -1]))
}

fn stop_policy(c: &mut Choices<'_>) -> StopPolicy {
    match c.byte() {
        0..220 => StopPolicy::None,
        220..240 => StopPolicy::Hold,
        _ => StopPolicy::HoldAndDrain,
    }
}

fn cluster_queue(c: &mut Choices<'_>) -> ClusterQueueSpec {
    use PreemptionPolicy::{Any, LowerOrNewerEqualPriority, LowerPriority, Never};
    let policies = [Never, LowerPriority, LowerOrNewerEqualPriority, Any];
    let borrow = [FungibilityPolicy::MayStopSearch, FungibilityPolicy::TryNextFlavor];
    let preempt = [WhenCanPreempt::TryNextFlavor, WhenCanPreempt::MayStopSearch];
    let preferences =
        [FungibilityPreference::BorrowingOverPreemption, FungibilityPreference::PreemptionOverBorrowing];
    ClusterQueueSpec {
        name: c.name("q", 4),
        cohort: (c.byte() < 200).then(|| c.name("co", 3)),
        resource_groups: if c.byte() < 180 { vec![plain_group()] } else { groups(c) },
        strategy: c.pick(&[QueueingStrategy::BestEffortFIFO, QueueingStrategy::StrictFIFO]),
        namespace_selector: (c.byte() < 250).then(|| Selector {
            match_labels: Vec::new(),
            expressions: if c.byte() > 240 { vec![expression(c)] } else { Vec::new() },
        }),
        fungibility: Fungibility {
            when_can_borrow: c.pick(&borrow),
            when_can_preempt: c.pick(&preempt),
            preference: c.maybe(|c| c.pick(&preferences)),
        },
        preemption: Preemption {
            within_cluster_queue: c.pick(&policies),
            reclaim_within_cohort: c.pick(&policies),
            borrow_within_cohort: c.maybe(|c| BorrowWithinCohort {
                max_priority_threshold: c.maybe(|c| i32::from(c.byte()) - 100),
            }),
        },
        stop_policy: stop_policy(c),
        terminating: c.byte() > 240,
        fair_weight: weight(c),
        admission_checks: c
            .some(2, |c| CheckRule { name: c.name("check", 2), on_flavors: c.some(2, |c| c.name("f", 3)) }),
        usage_based_fair_sharing: c.flag(),
    }
}

fn local_queue(c: &mut Choices<'_>) -> LocalQueueSpec {
    LocalQueueSpec {
        namespace: c.name("ns", 2),
        name: c.name("lq", 3),
        cluster_queue: c.name("q", 4),
        stop_policy: stop_policy(c),
        terminating: c.byte() > 240,
        fair_weight: weight(c),
        consumed: c
            .some(2, |c| (c.name("r", 3), c.pick(&[1.0, 0.0, -1.0, f64::MAX, f64::NAN, f64::INFINITY]))),
    }
}

fn preferred(c: &mut Choices<'_>) -> PreferredTerm {
    let weight = c.pick(&[1, 50, 100, 0, -1, i32::MAX, i32::MIN]);
    PreferredTerm {
        weight,
        term: AffinityTerm { expressions: c.some(2, expression), ..AffinityTerm::default() },
    }
}

fn pod_set(c: &mut Choices<'_>) -> PodSetSpec {
    PodSetSpec {
        name: c.name("ps", 3),
        count: c.count(),
        min_count: c.maybe(Choices::count),
        requests: (0..=c.below(2)).map(|_| (c.name("r", 3), c.amount())).collect(),
        node_selector: if c.byte() > 200 { c.pairs() } else { Vec::new() },
        affinity: if c.byte() > 200 {
            c.some(2, |c| AffinityTerm { expressions: c.some(2, expression), ..AffinityTerm::default() })
        } else {
            Vec::new()
        },
        preferred_affinity: if c.byte() > 245 { c.some(2, preferred) } else { Vec::new() },
        tolerations: c.some(1, toleration),
        group: (c.byte() > 200).then(|| Name::from("group")),
        topology: if c.byte() > 235 { nodes::request(c) } else { None },
        ungated: false,
        node_requests: if c.byte() > 230 { Some(vec![(c.name("r", 3), c.amount())]) } else { None },
        shape: 0,
    }
}

fn state(c: &mut Choices<'_>, pod_sets: &[PodSetSpec], now: Time) -> WorkloadState {
    match c.byte() {
        0..150 => WorkloadState::PENDING,
        150..170 => WorkloadState::Inactive,
        170..200 => WorkloadState::Pending {
            requeue_at: c.maybe(|c| Time(now.0.saturating_add(i64::from(c.byte()) * 500_000_000))),
            keeps_place: c.flag(),
            requeued_false: c.flag(),
            failed_checks: c.flag(),
            invalid: c.maybe(|_| "wrong".to_owned()),
        },
        _ => {
            let assigned = pod_sets.iter().map(|pod_set| PodSetAssignment {
                name: pod_set.name.clone(),
                flavors: pod_set.requests.iter().map(|(name, _)| (name.clone(), c.name("f", 4))).collect(),
                usage: pod_set.requests.iter().map(|(name, _)| (name.clone(), c.amount())).collect(),
                count: pod_set.count,
                topology: (c.byte() > 150).then(|| nodes::assignment(c)),
                topology_delayed: c.byte() > 200,
            });
            let pod_sets = assigned.collect();
            WorkloadState::Reserved {
                admission: Admission { cluster_queue: c.name("q", 5), pod_sets },
                reserved_at: Time(i64::from(c.byte())),
                admitted: c.flag(),
                evicted: c.flag(),
                pods_ready: c.flag(),
                topology: nodes::state(c),
            }
        }
    }
}

fn key(c: &mut Choices<'_>) -> WorkloadKey {
    WorkloadKey::new(c.name("ns", 2), c.name("w", 6))
}

fn workload(c: &mut Choices<'_>, now: Time) -> WorkloadSpec {
    let key = key(c);
    let pod_sets = (0..=c.below(2)).map(|_| pod_set(c)).collect::<Vec<_>>();
    WorkloadSpec {
        uid: if c.byte() > 250 { Name::from("another") } else { key.name.clone() },
        key,
        local_queue: c.name("lq", 3),
        priority: c.pick(&[0, 1, -1, 5, i32::MIN, i32::MAX]),
        created: Time(i64::from(c.byte())),
        queue_order: Time(i64::from(c.byte())),
        generation: i64::from(c.byte() & 1),
        state: state(c, &pod_sets, now),
        pod_sets,
        preemption_gated: c.byte() > 240,
        replaces: (c.byte() > 200).then(|| slice(c)),
    }
}

fn slice(c: &mut Choices<'_>) -> ReplacedSlice {
    let flavors = (0..c.below(3)).map(|at| {
        let flavors = (0..c.below(3)).map(|_| (c.name("r", 3), c.name("f", 4))).collect();
        (Name::from(format!("p{at}").as_str()), flavors)
    });
    let flavors = flavors.collect();
    ReplacedSlice { key: key(c), flavors }
}

/// What a cycle must keep whatever the world is like.
fn check_report(core: &Scheduler, report: &CycleReport) {
    for entry in &report.entries {
        match &entry.outcome {
            Outcome::Admitted { admission, considered, .. } => {
                assert_eq!(admission.cluster_queue, entry.cluster_queue);
                assert!(core.position(&entry.key).is_none(), "{} holds quota and waits", entry.key);
                let _ = considered.to_string();
            }
            Outcome::Preempting { victims, why } => {
                assert!(!victims.is_empty() && !why.message().is_empty());
                assert!(victims.iter().all(|victim| victim.key != entry.key), "{} evicts itself", entry.key);
            }
            Outcome::Unadmitted(why) | Outcome::PreemptionGated(why) => {
                let _ = why.message();
                assert!(core.position(&entry.key).is_some(), "{} is lost", entry.key);
            }
            Outcome::SliceReclaims(victims) => {
                assert!(!victims.is_empty() && core.position(&entry.key).is_none(), "{}", entry.key);
                assert!(victims.iter().all(|victim| victim.key != entry.key), "{} evicts itself", entry.key);
            }
            Outcome::SecondPass(_) | Outcome::SlicesMoved(_) | Outcome::NodesNotReplaced(..) => {
                assert!(core.position(&entry.key).is_none(), "{} holds quota and waits", entry.key);
            }
        }
    }
    let second = |outcome: &Outcome| {
        matches!(
            outcome,
            Outcome::SecondPass(_)
                | Outcome::SlicesMoved(_)
                | Outcome::SliceReclaims(_)
                | Outcome::NodesNotReplaced(..)
        )
    };
    let heads = || report.entries.iter().filter(|entry| !second(&entry.outcome));
    let queues: BTreeSet<&Name> = heads().map(|entry| &entry.cluster_queue).collect();
    assert_eq!(queues.len(), heads().count(), "more than one head of a queue");
}

/// One event; what a cycle reported.
fn event(c: &mut Choices<'_>, core: &mut Scheduler, now: Time) -> Option<CycleReport> {
    match c.below(32) {
        0..9 | 12..14 => core.set_workload(workload(c, now), now),
        9..11 => core.set_cluster_queue(cluster_queue(c)),

        11 => core.remove_cluster_queue(&c.name("q", 4)),
        14..16 => core.set_local_queue(local_queue(c)),
        16 => core.remove_local_queue(&c.name("ns", 2), &c.name("lq", 3)),
        17 => core.set_cohort(CohortSpec {
            name: c.name("co", 4),
            parent: c.maybe(|c| c.name("co", 4)),
            resource_groups: groups(c),
            fair_weight: weight(c),
        }),
        18 => core.remove_cohort(&c.name("co", 4)),
        19..21 => core.set_flavor(flavor(c)),
        21 => core.remove_flavor(&c.name("f", 3)),
        22 => core.set_check(&c.name("check", 2), c.flag()),
        23 if c.flag() => core.remove_check(&c.name("check", 2)),
        23 => core.set_namespace(&c.name("ns", 2), c.pairs()),
        24 => core.remove_workload(&key(c), now),
        25 => core.admission_failed(&key(c), now),
        26 if c.byte() > 100 => nodes::event(c, core),
        26 => core.wake(now),
        27 => core.remove_namespace(&c.name("ns", 2)),
        _ => {
            let report = core.cycle(now);
            check_report(core, &report);
            return Some(report);
        }
    }
    None
}

/// Asks for everything that can be asked.
fn look(core: &mut Scheduler) {
    let changed = core.take_changed();
    for queue in &changed.cluster_queues {
        let status = core.cluster_queue_status(queue).expect("only what exists is listed");
        assert_eq!(core.positions(queue).len(), status.pending_active + status.pending_inadmissible);
    }
    for (namespace, name) in &changed.local_queues {
        assert!(core.local_queue_status(namespace, name).is_some());
    }
    for cohort in &changed.cohorts {
        let _ = core.cohort_status(cohort);
    }
    let _ = (core.has_heads(), core.next_wakeup(), core.snapshot());
}

/// A world to begin with, so that short inputs get somewhere: one cohort, two queues with quota for `r0` in two flavors.
fn start(core: &mut Scheduler, c: &mut Choices<'_>) {
    for number in 0..3 {
        core.set_flavor(FlavorSpec { name: Name::from(format!("f{number}")), ..flavor(&mut Choices(&[])) });
    }
    for number in 0..2 {
        let (queue, local) = (Name::from(format!("q{number}")), Name::from(format!("lq{number}")));
        core.set_local_queue(LocalQueueSpec {
            name: local,
            cluster_queue: queue.clone(),
            ..local_queue(&mut Choices(&[]))
        });
        core.set_cluster_queue(ClusterQueueSpec {
            name: queue,
            cohort: Some(Name::from("co0")),
            resource_groups: vec![plain_group()],
            namespace_selector: Some(Selector::default()),
            stop_policy: StopPolicy::None,
            terminating: false,
            admission_checks: Vec::new(),
            ..cluster_queue(c)
        });
    }
}

/// Runs one stream of events with an audit after each; returns what the cycles decided.
pub fn run(input: &[u8]) -> Vec<CycleReport> {
    let mut c = Choices(input);
    let mut core = Scheduler::new(config(&mut c));
    core.follow_moves();
    let mut mirror = Mirror::default();
    start(&mut core, &mut c);
    if c.below(3) == 0 {
        nodes::furnish(&mut core);
    }
    let mut reports = Vec::new();
    let mut step = 0_i64;
    while !c.0.is_empty() && step < 200 {
        step += 1;
        reports.extend(event(&mut c, &mut core, Time::from_seconds(step)));
        assert_eq!(core.audit(), Ok(()), "after event {step}");
        mirror.follow(&mut core);
        if step % 8 == 0 {
            look(&mut core);
        }
    }
    reports
}
