//! Converts a case's plan to the specs that the core receives.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use sluice_core::{
    Admission, BorrowWithinCohort, ClusterQueueSpec, CohortSpec, Config, FairSharing, FlavorQuotas,
    FlavorSpec, Fungibility, FungibilityPolicy, FungibilityPreference, Gates, LocalQueueSpec, Name,
    PodSetAssignment, PodSetSpec, Preemption, PreemptionPolicy, QueueingStrategy, ResourceGroup,
    ResourceQuota, Scheduler, Selector, StopPolicy, Time, TopologyRequest, TopologyState, Weight,
    WhenCanPreempt, WorkloadKey, WorkloadSpec, WorkloadState,
};
use sluice_quantity::{Amount, Quantity, amount_of};

use super::format::{Case, Class, Quota, Text};
use super::plan::{CREATION_EPOCH, PlannedCohort, PlannedQueue, PlannedWorkload};
use super::topology;

/// The name of every LocalQueue.
const LOCAL_QUEUE: &str = "lq";

/// The parts of a case that its workloads share.
pub struct World<'a> {
    case: &'a Case,
    /// The flavor of each resource for what is preadmitted.
    first_flavors: BTreeMap<&'a str, Name>,
    local_queue: Name,
    pod_set: Name,
    queue_names: Vec<Name>,
    /// Requests per pod, by class.
    requests: Vec<Vec<(Name, Amount)>>,
    /// The topology request of each class's pod set.
    topology: Vec<Option<TopologyRequest>>,
}

impl<'a> World<'a> {
    /// Builds the world and a scheduler that knows its flavor, cohorts, queues and namespaces.
    pub fn build(
        case: &'a Case,
        cohorts: &[PlannedCohort],
        queues: &[PlannedQueue],
    ) -> anyhow::Result<(Self, Scheduler)> {
        let world = Self {
            case,
            first_flavors: case
                .first_flavors()
                .into_iter()
                .map(|(resource, flavor)| (resource, Name::from(flavor)))
                .collect(),
            local_queue: Name::from(LOCAL_QUEUE),
            pod_set: Name::from("main"),
            queue_names: queues.iter().map(|queue| Name::from(queue.name.as_str())).collect(),
            requests: case.workloads.iter().map(requests).collect::<anyhow::Result<_>>()?,
            topology: case
                .workloads
                .iter()
                .map(|class| class.topology.as_ref().map(topology::request).transpose())
                .collect::<anyhow::Result<_>>()?,
        };
        let mut scheduler = Scheduler::new(Config {
            gates: gates(case)?,
            fair_sharing: case.fair_sharing.then(FairSharing::default),
            ..Config::default()
        });
        for (flavor, _) in case.groups().into_iter().flatten() {
            scheduler.set_flavor(FlavorSpec {
                name: Name::from(flavor),
                node_labels: Vec::new(),
                taints: Vec::new(),
                tolerations: Vec::new(),
                topology: None,
            });
        }
        if let Some(topology) = &case.topology {
            let labels = topology.node_labels.iter();
            scheduler.set_flavor(FlavorSpec {
                name: Name::from(case.flavor.as_str()),
                node_labels: labels
                    .map(|(key, value)| (Name::from(key.as_str()), Name::from(value.as_str())))
                    .collect(),
                taints: Vec::new(),
                tolerations: Vec::new(),
                topology: Some(Name::from(topology.name.as_str())),
            });
            topology::build(&mut scheduler, topology)?;
        }
        for (index, cohort) in cohorts.iter().enumerate() {
            scheduler.set_cohort(CohortSpec {
                name: Name::from(cohort.name.as_str()),
                parent: cohort.parent.as_deref().map(Name::from),
                resource_groups: Vec::new(),
                fair_weight: cycled(&case.cohorts.fair_weights, index)?,
            });
        }
        let groups = world.resource_groups()?;
        let (strategy, preemption) = policies(case)?;
        let fungibility = fungibility(case)?;
        for (index, queue) in queues.iter().enumerate() {
            scheduler.set_namespace(&world.queue_names[index], Vec::new());
            scheduler.set_cluster_queue(ClusterQueueSpec {
                cohort: queue.cohort.as_deref().map(Name::from),
                resource_groups: groups.clone(),
                strategy,
                namespace_selector: Some(Selector::default()),
                preemption,
                fungibility,
                fair_weight: cycled(&case.cluster_queues.fair_weights, index)?,
                ..ClusterQueueSpec::named(world.queue_names[index].clone())
            });
        }
        Ok((world, scheduler))
    }

    fn resource_groups(&self) -> anyhow::Result<Vec<ResourceGroup>> {
        self.case.groups().iter().map(|flavors| resource_group(flavors)).collect()
    }

    /// The names of the ClusterQueues, in global order.
    pub fn queue_names(&self) -> &[Name] {
        &self.queue_names
    }

    /// The class of a workload.
    pub fn class(&self, workload: PlannedWorkload) -> &'a Class {
        &self.case.workloads[workload.class]
    }

    /// The LocalQueue in front of a ClusterQueue, in the namespace of the same name.
    pub fn local_queue(&self, cluster_queue: &str) -> LocalQueueSpec {
        LocalQueueSpec {
            namespace: Name::from(cluster_queue),
            name: self.local_queue.clone(),
            cluster_queue: Name::from(cluster_queue),
            stop_policy: StopPolicy::None,
            terminating: false,
            fair_weight: Weight::ONE,
            consumed: Vec::new(),
        }
    }

    /// The workload's key.
    pub fn key(&self, workload: PlannedWorkload) -> WorkloadKey {
        let class = &self.class(workload).name;
        WorkloadKey {
            namespace: self.queue_names[workload.queue].clone(),
            name: Name::from(format!("{class}-{:05}", workload.number)),
        }
    }

    /// The key as digests have it: `namespace/name`.
    pub fn key_line(&self, workload: PlannedWorkload) -> String {
        let class = &self.class(workload).name;
        format!("{}/{class}-{:05}", self.queue_names[workload.queue], workload.number)
    }

    /// The total requests of a workload.
    pub fn total(&self, workload: PlannedWorkload) -> impl Iterator<Item = (&str, Amount)> {
        let pods = self.class(workload).pods;
        self.requests[workload.class]
            .iter()
            .map(move |(resource, amount)| (&**resource, amount.saturating_mul(pods)))
    }

    /// A workload that waits.
    pub fn pending(&self, workload: PlannedWorkload, seq: usize) -> WorkloadSpec {
        let created = created(seq);
        let class = self.class(workload);
        WorkloadSpec {
            key: self.key(workload),
            uid: Name::from(format!("u{seq:08}")),
            local_queue: self.local_queue.clone(),
            priority: class.priority,
            created,
            queue_order: created,
            generation: 1,
            pod_sets: vec![PodSetSpec {
                name: self.pod_set.clone(),
                count: class.pods,
                min_count: class.min_pods,
                requests: self.requests[workload.class].clone(),
                node_selector: Vec::new(),
                affinity: Vec::new(),
                preferred_affinity: Vec::new(),
                tolerations: Vec::new(),
                group: None,
                topology: self.topology[workload.class].clone(),
                ungated: false,
                node_requests: None,
                shape: 0,
            }],
            state: WorkloadState::PENDING,
            preemption_gated: false,
            replaces: None,
        }
    }

    /// A workload that has held quota since its creation.
    pub fn preadmitted(&self, workload: PlannedWorkload, seq: usize) -> WorkloadSpec {
        let class = self.class(workload);
        let requests = &self.requests[workload.class];
        let admission = Admission {
            cluster_queue: self.queue_names[workload.queue].clone(),
            pod_sets: vec![PodSetAssignment {
                name: self.pod_set.clone(),
                flavors: requests
                    .iter()
                    .filter_map(|(resource, _)| {
                        Some((resource.clone(), self.first_flavors.get(&**resource)?.clone()))
                    })
                    .collect(),
                usage: requests
                    .iter()
                    .map(|(resource, amount)| (resource.clone(), amount.saturating_mul(class.pods)))
                    .collect(),
                count: class.pods,
                topology: None,
                topology_delayed: false,
            }],
        };
        let reserved_at = created(seq);
        WorkloadSpec {
            state: WorkloadState::Reserved {
                admission,
                reserved_at,
                admitted: true,
                evicted: false,
                pods_ready: true,
                topology: TopologyState::default(),
            },
            ..self.pending(workload, seq)
        }
    }
}

fn resource_group(flavors: &[(&str, &BTreeMap<String, Quota>)]) -> anyhow::Result<ResourceGroup> {
    let quota = |(resource, quota): (&String, &Quota)| {
        let limit = |text: &Option<Text>| text.as_ref().map(|text| amount(resource, text)).transpose();
        Ok(ResourceQuota {
            name: Name::from(resource.as_str()),
            nominal: amount(resource, &quota.nominal)?,
            borrowing_limit: limit(&quota.borrowing_limit)?,
            lending_limit: limit(&quota.lending_limit)?,
        })
    };
    let of_flavor = |(name, quotas): &(&str, &BTreeMap<String, Quota>)| {
        let resources = quotas.iter().map(quota).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(FlavorQuotas { name: Name::from(*name), resources })
    };
    let covered = flavors.first().context("a resource group has a flavor")?.1;
    Ok(ResourceGroup {
        covered: covered.keys().map(|resource| Name::from(resource.as_str())).collect(),
        flavors: flavors.iter().map(of_flavor).collect::<anyhow::Result<_>>()?,
    })
}

fn created(seq: usize) -> Time {
    let seconds = i64::try_from(seq).expect("a case has fewer than 2^63 workloads");
    Time::from_seconds(CREATION_EPOCH + seconds)
}

fn requests(class: &Class) -> anyhow::Result<Vec<(Name, Amount)>> {
    class
        .request
        .iter()
        .map(|(resource, text)| Ok((Name::from(resource.as_str()), amount(resource, text)?)))
        .collect()
}

fn amount(resource: &str, text: &Text) -> anyhow::Result<Amount> {
    let quantity =
        Quantity::parse(&text.0).with_context(|| format!("quantity {:?} of {resource}", text.0))?;
    Ok(amount_of(resource, &quantity))
}

/// The weight of the `index`-th object: cycled, 1 without any.
fn cycled(weights: &[Text], index: usize) -> anyhow::Result<Weight> {
    if weights.is_empty() {
        return Ok(Weight::ONE);
    }
    let text = &weights[index % weights.len()].0;
    let quantity = Quantity::parse(text).with_context(|| format!("weight {text:?}"))?;
    Ok(Weight::from_milli(quantity.milli_value()))
}

fn policies(case: &Case) -> anyhow::Result<(QueueingStrategy, Preemption)> {
    let queues = &case.cluster_queues;
    let strategy = match queues.queueing_strategy.as_str() {
        "StrictFIFO" => QueueingStrategy::StrictFIFO,
        "BestEffortFIFO" => QueueingStrategy::BestEffortFIFO,
        other => bail!("queueingStrategy {other:?}"),
    };
    let policy = |text: &str| {
        Ok(match text {
            "Never" => PreemptionPolicy::Never,
            "LowerPriority" => PreemptionPolicy::LowerPriority,
            "LowerOrNewerEqualPriority" => PreemptionPolicy::LowerOrNewerEqualPriority,
            "Any" => PreemptionPolicy::Any,
            other => bail!("preemption policy {other:?}"),
        })
    };
    let borrow_within_cohort = match &queues.borrow_within_cohort {
        Some(borrow) if borrow.policy == "LowerPriority" => {
            Some(BorrowWithinCohort { max_priority_threshold: borrow.max_priority_threshold })
        }
        Some(borrow) if borrow.policy != "Never" => bail!("borrowWithinCohort.policy {:?}", borrow.policy),
        _ => None,
    };
    let preemption = Preemption {
        within_cluster_queue: policy(&queues.within_cluster_queue)?,
        reclaim_within_cohort: policy(&queues.reclaim_within_cohort)?,
        borrow_within_cohort,
    };
    Ok((strategy, preemption))
}

/// `flavorFungibility` of every queue.
fn fungibility(case: &Case) -> anyhow::Result<Fungibility> {
    let spec = &case.cluster_queues.flavor_fungibility;
    let mut fungibility = Fungibility::default();
    match spec.when_can_borrow.as_deref() {
        None => {}
        Some("MayStopSearch") => fungibility.when_can_borrow = FungibilityPolicy::MayStopSearch,
        Some("TryNextFlavor") => fungibility.when_can_borrow = FungibilityPolicy::TryNextFlavor,
        Some(other) => bail!("whenCanBorrow {other:?}"),
    }
    match spec.when_can_preempt.as_deref() {
        None => {}
        Some("MayStopSearch") => fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch,
        Some("TryNextFlavor") => fungibility.when_can_preempt = WhenCanPreempt::TryNextFlavor,
        Some(other) => bail!("whenCanPreempt {other:?}"),
    }
    fungibility.preference = match spec.preference.as_deref() {
        None => None,
        Some("BorrowingOverPreemption") => Some(FungibilityPreference::BorrowingOverPreemption),
        Some("PreemptionOverBorrowing") => Some(FungibilityPreference::PreemptionOverBorrowing),
        Some(other) => bail!("preference {other:?}"),
    };
    Ok(fungibility)
}

/// Upstream's default gates with the case's overrides.
fn gates(case: &Case) -> anyhow::Result<Gates> {
    // Kueue has no such gates: a case tests Kueue's rules, including the loops that they allow.
    let mut gates = Gates {
        admit_only_free_quota: false,
        preemption_loop_guard: false,
        requeue_reclaimers_on_borrowing: false,
        ..Gates::default()
    };
    for (name, &on) in &case.feature_gates {
        let gate = match name.as_str() {
            "PartialAdmission" => &mut gates.partial_admission,
            "FlavorFungibility" => &mut gates.flavor_fungibility,
            "FlavorFungibilityPreserveScanProgress" => &mut gates.flavor_fungibility_preserve_scan_progress,
            "PrioritySortingWithinCohort" => &mut gates.priority_sorting_within_cohort,
            "FairSharingPreemptWithinNominal" => &mut gates.fair_sharing_preempt_within_nominal,
            "FairSharingPrioritizeNonBorrowing" => &mut gates.fair_sharing_prioritize_non_borrowing,
            "AdmissionFairSharing" => &mut gates.admission_fair_sharing,
            "SchedulingEquivalenceHashing" => &mut gates.scheduling_equivalence_hashing,
            "PrioritizePreemptorWorkloads" => &mut gates.prioritize_preemptor_workloads,
            "RecomputeAssignmentUponPreemptionTargetsOverlap" => {
                &mut gates.recompute_assignment_upon_preemption_targets_overlap
            }
            "QuotaCheckStrategy" => &mut gates.quota_check_strategy,
            "RequeueReclaimersOnBorrowing" => &mut gates.requeue_reclaimers_on_borrowing,
            "AdmitOnlyFreeQuota" => &mut gates.admit_only_free_quota,
            "PreemptionLoopGuard" => &mut gates.preemption_loop_guard,
            "TASRecomputeAssignmentWithinSchedulingCycle" => {
                &mut gates.tas_recompute_assignment_within_scheduling_cycle
            }
            other => bail!("feature gate {other} does not concern the engine's cases"),
        };
        *gate = on;
    }
    Ok(gates)
}
