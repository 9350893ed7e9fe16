//! Admission fair sharing: the decayed usage of LocalQueues, which orders a ClusterQueue (reference 06, 6.9).

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::config::AdmissionFairSharing;
use crate::intern::{LocalId, Names, ResourceId, WorkloadId};
use crate::scheduler::Scheduler;
use crate::spec::{Time, Weight};

/// What a LocalQueue consumed, decayed, and the entry penalties of what was just let in. cpu in cores, everything else
/// in whole units.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ledger {
    pub(crate) consumed: BTreeMap<ResourceId, f64>,
    /// When `consumed` was last brought up to date.
    pub(crate) at: Option<Time>,
    penalties: BTreeMap<WorkloadId, Vec<(ResourceId, f64)>>,
}

/// The unit of the ledger: cores for cpu, whole units for everything else.
#[expect(clippy::cast_precision_loss, reason = "the ledger is kept in floating-point numbers")]
pub(crate) fn in_units(names: &Names, resource: ResourceId, amount: i128) -> f64 {
    let amount = amount as f64;
    if &**names.resource_name(resource) == sluice_quantity::CPU { amount / 1000.0 } else { amount }
}

/// How much of the present enters the average after `seconds`: 1 − 0.5^(seconds / half-life).
fn alpha(config: &AdmissionFairSharing, seconds: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
    let half_life = config.half_life_seconds as f64;
    1.0 - libm::pow(0.5, seconds / half_life)
}

impl Ledger {
    /// The resources that are accounted for.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        let charged = self.penalties.values().flatten().map(|(id, _)| *id);
        self.consumed.keys().copied().chain(charged)
    }

    /// Whether a workload is charged.
    pub(crate) fn has_charges(&self) -> bool {
        !self.penalties.is_empty()
    }

    /// Starts from what the status says.
    pub(crate) fn seed(&mut self, consumed: impl IntoIterator<Item = (ResourceId, f64)>) {
        self.consumed = consumed.into_iter().filter(|(_, value)| value.is_finite()).collect();
    }

    /// Brings the average up to `now`, with the present usage of admitted workloads. Returns whether anything changed.
    pub(crate) fn sample(
        &mut self,
        config: &AdmissionFairSharing,
        usage: &BTreeMap<ResourceId, f64>,
        now: Time,
    ) -> bool {
        let before = self.consumed.clone();
        let first = self.at.is_none();
        let elapsed = self.at.map_or(0, |at| now.0.saturating_sub(at.0).max(0));
        self.at = Some(now);
        if config.half_life_seconds <= 0 {
            self.consumed.clear();
            return first || !before.is_empty();
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
        let share = alpha(config, elapsed as f64 / 1e9);
        for &resource in usage.keys() {
            self.consumed.entry(resource).or_insert(0.0);
        }
        for (resource, value) in &mut self.consumed {
            *value = (1.0 - share) * *value + share * usage.get(resource).copied().unwrap_or(0.0);
        }
        first || self.consumed != before
    }

    /// When the next sample is due.
    pub(crate) fn due(&self, config: &AdmissionFairSharing) -> Time {
        let interval = config.sampling_interval_seconds.max(1).saturating_mul(1_000_000_000);
        self.at.map_or(Time(i64::MIN), |at| Time(at.0.saturating_add(interval)))
    }

    /// Charges a workload that was let in until it counts as admitted usage.
    pub(crate) fn charge(
        &mut self,
        config: &AdmissionFairSharing,
        workload: WorkloadId,
        requests: impl IntoIterator<Item = (ResourceId, f64)>,
    ) {
        if config.half_life_seconds <= 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a number of seconds")]
        let share = alpha(config, config.sampling_interval_seconds as f64);
        let penalty = requests.into_iter().map(|(resource, amount)| (resource, amount * share)).collect();
        self.penalties.insert(workload, penalty);
    }

    /// Takes a charge back; if the workload is admitted, it becomes part of what was consumed.
    pub(crate) fn settle(&mut self, workload: WorkloadId, admitted: bool) {
        let Some(penalty) = self.penalties.remove(&workload) else { return };
        if admitted {
            for (resource, value) in penalty {
                *self.consumed.entry(resource).or_insert(0.0) += value;
            }
        }
    }

    /// What orders the queue: weighted usage, penalties included, divided by the LocalQueue's weight.
    pub(crate) fn usage(&self, config: &AdmissionFairSharing, names: &Names, weight: Weight) -> f64 {
        if weight.is_zero() {
            return f64::INFINITY;
        }
        let mut sums = self.consumed.clone();
        for &(resource, value) in self.penalties.values().flatten() {
            *sums.entry(resource).or_insert(0.0) += value;
        }
        let weighted: f64 = sums
            .iter()
            .map(|(&resource, value)| {
                let name = names.resource_name(resource);
                let weight =
                    config.resource_weights.iter().find(|(other, _)| other == name).map_or(1.0, |(_, w)| *w);
                weight * value
            })
            .sum();
        weighted / weight.as_f64()
    }
}

impl Scheduler {
    /// The configuration, if ledgers are kept: of every LocalQueue, whether its ClusterQueue is ordered by them or not (reference 11.1.18).
    fn keeps_ledgers(&self) -> Option<&AdmissionFairSharing> {
        let config = self.config.admission_fair_sharing.as_ref();
        config.filter(|_| self.config.gates.admission_fair_sharing)
    }

    /// Takes samples of a LocalQueue from now on.
    pub(crate) fn begin_samples(&mut self, id: LocalId) {
        if let Some(config) = self.keeps_ledgers() {
            let due = self.locals[id.at()].ledger.due(config);
            self.samples.insert((due, id));
        }
    }

    /// Takes no more samples of a LocalQueue, and forgets what it consumed.
    pub(crate) fn end_samples(&mut self, id: LocalId) {
        if let Some(config) = self.keeps_ledgers() {
            let due = self.locals[id.at()].ledger.due(config);
            self.samples.remove(&(due, id));
        }
        self.locals[id.at()].ledger = Ledger::default();
    }

    /// When the next sample is due.
    pub(crate) fn next_sample(&self) -> Option<Time> {
        self.samples.first().map(|&(due, _)| due)
    }

    /// Takes the samples that are due.
    pub(crate) fn sample(&mut self, now: Time) {
        let Some(config) = self.keeps_ledgers().cloned() else { return };
        while let Some(&(due, id)) = self.samples.first().filter(|&&(due, _)| due <= now) {
            self.samples.remove(&(due, id));
            let mut usage = BTreeMap::new();
            for (&pair, &(_, admitted)) in &self.locals[id.at()].usage {
                let (_, resource) = self.names.flavor_and_resource(pair);
                *usage.entry(resource).or_insert(0.0) += in_units(&self.names, resource, admitted);
            }
            if self.locals[id.at()].ledger.sample(&config, &usage, now) {
                self.changed_locals.mark(id.at());
            }
            self.samples.insert((self.locals[id.at()].ledger.due(&config), id));
        }
    }

    /// What a LocalQueue consumed: of each resource of its ClusterQueue, nothing of those that it never used; and of others that it used.
    pub(crate) fn consumed(&self, id: LocalId) -> Vec<(Name, f64)> {
        let local = &self.locals[id.at()];
        let mut consumed = local.ledger.consumed.clone();
        if self.keeps_ledgers().is_some_and(|config| config.half_life_seconds > 0) {
            let groups = local.queue.map(|queue| &self.queues[queue.at()].groups);
            for &resource in groups.into_iter().flatten().flat_map(|group| &group.covered) {
                consumed.entry(resource).or_insert(0.0);
            }
        }
        let named = consumed.into_iter().map(|(r, value)| (self.names.resource_name(r).clone(), value));
        named.collect()
    }

    /// The LocalQueues that exist are those that samples are taken of, each when it is due; for the audit.
    pub(crate) fn audit_samples(&self, found: &mut Vec<String>) {
        let config = self.keeps_ledgers();
        let exist = self.locals.iter().enumerate().filter(|(_, local)| local.spec.is_some());
        let due = |(at, local): (usize, &crate::local_queue::LocalQueue)| {
            config.map(|config| (local.ledger.due(config), LocalId::new(at)))
        };
        let samples: BTreeSet<_> = exist.filter_map(due).collect();
        if samples != self.samples {
            found.push("the samples of admission fair sharing are wrong".to_owned());
        }
    }

    /// The usage that orders a LocalQueue; zero without admission fair sharing.
    pub(crate) fn fair_usage(&self, id: LocalId) -> f64 {
        let local = &self.locals[id.at()];
        match (&self.config.admission_fair_sharing, &local.spec) {
            (Some(config), Some(spec)) => local.ledger.usage(config, &self.names, spec.fair_weight),
            _ => 0.0,
        }
    }
}
