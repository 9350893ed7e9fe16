//! Admission fair sharing: the decayed usage of LocalQueues, which orders a ClusterQueue (docs/reference/06-algorithm.md 6.9).

use std::collections::{BTreeMap, BTreeSet};

use crate::config::AdmissionFairSharing;
use crate::intern::{LocalId, Names, ResourceId, WorkloadId};
use crate::spec::{Time, Weight};

/// The decayed consumption of a LocalQueue, and the entry penalties of recent admissions. cpu in cores, everything else in whole units.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ledger {
    pub(crate) consumed: BTreeMap<ResourceId, f64>,
    /// When `consumed` was last brought up to date.
    pub(crate) at: Option<Time>,
    penalties: BTreeMap<WorkloadId, Vec<(ResourceId, f64)>>,
}

/// What [`Ledger::usage`] said of each LocalQueue: there may be many, and few of them change between two cycles.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usages {
    /// By LocalQueue; zero for those that are missing at the end.
    pub(crate) known: Vec<f64>,
    /// Those whose usage may have changed since.
    pub(crate) stale: BTreeSet<LocalId>,
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

    /// The key of the order: weighted usage, including penalties, divided by the LocalQueue's weight.
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
