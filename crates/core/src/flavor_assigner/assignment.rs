//! The result of a flavor search: the flavors, their sums, and the reasons against the other flavors.

use smallvec::SmallVec;

use crate::Name;
use crate::intern::{FlavorId, FrId, Names, ResourceId};
use crate::last_assignment::{LastAssignment, Scan};
use crate::plan::Plan;
use crate::reason::{PodSetRefusal, Reason, Refusal};
use crate::report::{Considered, ConsideredFlavor, FlavorMode};
use crate::view::FlavorResourceQuantity;
use crate::workloads::PodSetNodes;

/// The mode of a whole assignment: the worst over its pod sets, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Mode {
    /// Not now.
    #[default]
    NoFit,
    /// After a preemption, which may or may not have candidates.
    Preempt,
    /// When victims of earlier heads are gone.
    DeferredFit,
    /// At once.
    Fit,
}

/// The flavor of one resource of one pod set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlavorAssignment {
    pub(crate) pod_set: usize,
    pub(crate) resource: ResourceId,
    pub(crate) flavor: FlavorId,
    pub(crate) pair: FrId,
    /// The pod set's total.
    pub(crate) amount: i64,
    pub(crate) mode: FlavorMode,
    /// Place of the flavor tried last; −1 when the scan reached the end.
    pub(super) tried: i32,
}

/// One flavor that was considered and does not simply fit without borrowing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FlavorAttempt {
    /// The place of the group of pod sets in the plan, and of the resource group in that.
    pub(super) group: usize,
    pub(super) block: usize,
    pub(super) flavor: Option<FlavorId>,
    pub(super) mode: FlavorMode,
    pub(super) height: u32,
    pub(super) refusals: SmallVec<[Refusal; 1]>,
    pub(super) reason: Reason,
    /// Counts as something in the way: the search of this resource group did not end in a fit.
    pub(super) counts: bool,
}

/// The result of the search for one workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) mode: Mode,
    /// The highest borrowing.
    pub(crate) borrow: u32,
    /// Sorted by pod set, then by the resource's name.
    pub(crate) flavors: SmallVec<[FlavorAssignment; 2]>,
    /// The totals per (flavor, resource).
    pub(crate) usage: SmallVec<[FlavorResourceQuantity; 2]>,
    /// How many pods of each pod set.
    pub(crate) counts: SmallVec<[i64; 2]>,
    /// The nodes of pod sets whose flavor has a topology: assigned nodes, or nodes reserved while victims leave.
    pub(crate) nodes: Vec<PodSetNodes>,
    pub(super) attempts: Vec<FlavorAttempt>,
}

impl FlavorAttempt {
    /// In place of a resource group: the nodes of the assigned flavor.
    pub(super) const NODES: usize = usize::MAX - 1;

    /// It concerns nodes, not quota.
    pub(super) fn is_about_nodes(&self) -> bool {
        self.block == Self::NODES
    }
}

impl Assignment {
    /// What is held already: it fits, and adds no usage (docs/reference/06-algorithm.md 6.15).
    pub(crate) fn kept() -> Self {
        Self { mode: Mode::Fit, ..Self::default() }
    }

    /// Some of its pods have nodes.
    pub(crate) fn has_nodes(&self) -> bool {
        self.nodes.iter().any(|nodes| !nodes.pods.places.is_empty())
    }

    /// How many pods a pod set has.
    pub(crate) fn count(&self, pod_set: usize) -> i64 {
        self.counts.get(pod_set).copied().unwrap_or(0)
    }

    /// The flavors of a pod set, which are adjacent.
    pub(crate) fn of_pod_set(&self, pod_set: usize) -> &[FlavorAssignment] {
        let rest = self.flavors.iter().position(|assigned| assigned.pod_set == pod_set);
        let rest = rest.map_or(&[][..], |from| &self.flavors[from..]);
        let many = rest.iter().take_while(|assigned| assigned.pod_set == pod_set).count();
        &rest[..many]
    }

    pub(super) fn has(&self, pod_set: usize, resource: ResourceId, flavor: FlavorId) -> bool {
        self.flavors.iter().any(|assigned| {
            assigned.pod_set == pod_set && assigned.resource == resource && assigned.flavor == flavor
        })
    }

    /// The (flavor, resource) pairs that need a preemption.
    pub(crate) fn needing_preemption(&self) -> SmallVec<[FrId; 2]> {
        let mut pairs: SmallVec<[FrId; 2]> = SmallVec::new();
        for assigned in &self.flavors {
            if assigned.mode != FlavorMode::Fit && !pairs.contains(&assigned.pair) {
                pairs.push(assigned.pair);
            }
        }
        pairs
    }

    /// Where the scan stopped, if there is something left to try.
    pub(crate) fn last_assignment(&self, of: &Scan) -> Option<Box<LastAssignment>> {
        if self.flavors.iter().all(|assigned| assigned.tried == -1) {
            return None;
        }
        let tried = self
            .flavors
            .iter()
            .map(|assigned| (assigned.pod_set, assigned.resource, assigned.tried))
            .collect();
        let &Scan { shape, cycle, generation, since } = of;
        Some(Box::new(LastAssignment {
            tried,
            shape,
            cycle,
            generation,
            since,
            kept_out_by: Vec::new(),
            before: None,
        }))
    }

    /// The reason of the condition: per resource group the least severe attempt, and the most severe of these.
    pub(crate) fn reason(&self) -> Reason {
        let mut worst: Option<Reason> = None;
        let mut at = 0;
        let counted: SmallVec<[&FlavorAttempt; 4]> =
            self.attempts.iter().filter(|attempt| attempt.counts).collect();
        while at < counted.len() {
            let same = counted[at..]
                .iter()
                .take_while(|other| (other.group, other.block) == (counted[at].group, counted[at].block))
                .count();
            let least_severe =
                counted[at..at + same].iter().map(|attempt| attempt.reason).min_by_key(|r| r.severity());
            worst = worst.max_by_severity(least_severe);
            at += same;
        }
        worst.unwrap_or(Reason::NoMatchingFlavor)
    }

    /// What prevented each pod set.
    pub(crate) fn refusals(&self, plan: &Plan) -> Vec<PodSetRefusal> {
        let mut pod_sets = Vec::new();
        for (at, group) in plan.groups.iter().enumerate() {
            let refusals: Vec<Refusal> = self
                .attempts
                .iter()
                .filter(|attempt| attempt.counts && attempt.group == at)
                .flat_map(|attempt| attempt.refusals.iter().cloned())
                .collect();
            if refusals.is_empty() {
                continue;
            }
            for &member in &group.members {
                let name = plan.requests.get(member).map_or_else(|| Name::from(""), |(name, _)| name.clone());
                pod_sets.push(PodSetRefusal { name, refusals: refusals.clone() });
            }
        }
        pod_sets
    }

    /// The other considered flavors, for the event of the admission.
    pub(crate) fn considered(&self, names: &Names, plan: &Plan) -> Considered {
        let mut considered = Considered::default();
        if self.attempts.is_empty() {
            return considered;
        }
        for (at, group) in plan.groups.iter().enumerate() {
            let flavors: Vec<ConsideredFlavor> = self
                .attempts
                .iter()
                .filter(|attempt| attempt.group == at)
                .filter_map(|attempt| {
                    Some(ConsideredFlavor {
                        flavor: names.flavor_name(attempt.flavor?).clone(),
                        mode: attempt.mode,
                        borrow: attempt.height,
                        refusals: attempt.refusals.to_vec(),
                    })
                })
                .collect();
            if flavors.is_empty() {
                continue;
            }
            let names = group.members.iter().filter_map(|&member| Some(&plan.requests.get(member)?.0));
            let of_group = std::iter::repeat_n(flavors, names.clone().count());
            considered.pod_sets.extend(names.cloned().zip(of_group));
        }
        considered
    }
}

/// The more severe of two reasons.
trait MaxBySeverity {
    fn max_by_severity(self, other: Self) -> Self;
}

impl MaxBySeverity for Option<Reason> {
    fn max_by_severity(self, other: Self) -> Self {
        [self, other].into_iter().flatten().max_by_key(|reason| reason.severity())
    }
}
