//! What is kept between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use sluice_core::{CapacitySums, Name, NotMoved, SearchResults, WorkloadKey};

use super::group_index::GroupIndex;
use super::planned::Planned;
use crate::index_map::IndexSet;

/// Unused names are dropped once there are this many more than twice the used ones.
const MOST_UNUSED: usize = 64;

/// What is kept between two evaluations.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
#[derive(Clone, Debug, Default)]
pub(crate) struct HotswapState {
    /// Something changed that decisions depend on.
    pub(super) stale: bool,
    /// When the last evaluation ran.
    pub(super) evaluated_at: Option<Timestamp>,
    /// How many ran.
    pub(super) evaluations: u64,
    /// The last evaluation did not reach all displaced Workloads: it continues in the next cycle.
    pub(super) resumes: bool,
    /// The evaluation that is due continues the last one; nothing else has changed.
    pub(super) resuming: bool,
    /// What the searches of the evaluations since then have found, and not found.
    pub(super) results: SearchResults,
    /// Something changed meanwhile: once all had their turn, all have it again.
    pub(super) again: bool,
    /// The moves that the last look found, and that are still to be made.
    pub(super) planned: Planned,
    /// What the searches of this cycle have looked at.
    pub(super) steps: u64,
    /// When a look is due because of a swarm: it is woken then.
    pub(super) due: Option<Timestamp>,
    /// Some node of a flavor in scope is not healthy, or a Workload is displaced: changes of Workloads matter, too.
    pub(super) degraded: bool,
    /// The last evaluation asked for what is free on the nodes, so that each pod may make a difference.
    pub(super) needs_room: bool,
    /// The Workloads whose every change matters at once: displaced ones, their victims, and those with pods on nodes that do not count.
    pub(super) concerned: BTreeSet<WorkloadKey>,
    /// The Workloads with pods that leave, or on nodes that are not healthy, as of the last look.
    pub(super) unsettled: BTreeSet<WorkloadKey>,
    /// The labels of nodes that the last look read to find nodes for displaced pods; none if it looked for none.
    pub(super) selected_by: Option<BTreeSet<String>>,
    /// The flavors in scope at the last look, with the resources that queues have quota of.
    pub(super) flavors: BTreeMap<Name, BTreeSet<Name>>,
    /// By flavor: the sums of the last look, with the pods that have come and gone since. None if pods that do may change more than that.
    pub(super) capacity: Option<BTreeMap<Name, CapacitySums>>,
    /// The flavors whose limits are still to follow those sums.
    pub(super) changed_capacity: BTreeSet<Name>,
    /// When limits were last set for pods alone.
    pub(super) limited_at: Option<Timestamp>,
    /// What was known about nodes at the last look, or at a start after nodes, flavors or queues have changed since.
    pub(super) nodes_to_avoid: OnceLock<NodesToAvoid>,
    /// The same before some nodes have changed, until a start asks for it.
    pub(super) outdated: Option<Outdated>,
    /// The groups of nodes that the labels of `users` make.
    pub(super) groups: GroupIndex,
    /// The ClusterQueues with JobSets that take whole groups of nodes, and the labels that make those, as of the last look.
    pub(super) users: BTreeSet<(Name, String)>,
    /// The nodes that pods left while their Workload ran, until as many run again or the node is healthy.
    pub(super) left: BTreeMap<WorkloadKey, BTreeSet<Name>>,
    /// The nodes of flavors in scope that are about to go, although they are ready, as of the last look.
    pub(crate) departing: BTreeSet<Name>,
    /// Why each Workload that stays on lost nodes does so, from its last event.
    pub(super) reported: BTreeMap<WorkloadKey, NotMoved>,
    /// The names of namespaces, nodes, resources and JobSets that pods name, shared.
    pub(super) names: IndexSet<Name>,
    /// How many of them were in use when that was last counted.
    pub(super) names_used: usize,
}

impl HotswapState {
    /// The shared copy of a name.
    pub(super) fn intern(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return Name::clone(known);
        }
        // Names of deleted pods and nodes are dropped from time to time.
        if self.names.len() > 2 * self.names_used + MOST_UNUSED {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.names_used = self.names.len();
        }
        let name = Name::from(name);
        self.names.insert(Name::clone(&name));
        name
    }
}

/// What is known about the nodes of the flavors in scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodesToAvoid {
    pub(super) flavors: BTreeMap<Name, Nodes>,
    /// The ClusterQueues with JobSets that take whole groups of nodes, and the labels that make those.
    pub(super) users: BTreeSet<(Name, String)>,
    /// When the first node that wavers is lost.
    pub(super) until: Option<Timestamp>,
}

impl NodesToAvoid {
    /// Whether no node has been lost since because time has passed.
    pub(super) fn is_in_time(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| until > now)
    }
}

/// What was known about nodes before some have changed.
#[derive(Clone, Debug)]
pub(super) struct Outdated {
    pub(super) known: NodesToAvoid,
    /// The groups of these nodes, before and after: label and value.
    pub(super) groups: BTreeSet<(String, String)>,
}

/// What is known about the nodes of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes {
    /// When the first announced maintenance begins, in Unix seconds.
    pub(super) first: Option<i64>,
    /// By the label that makes groups: the broken groups.
    pub(super) broken: BTreeMap<String, BTreeSet<String>>,
    /// By label that makes groups: when the first maintenance in each begins.
    pub(super) announced: BTreeMap<String, BTreeMap<String, i64>>,
}

impl Nodes {
    /// A group of a label is broken, or is not.
    pub(super) fn set_broken(&mut self, label: &str, group: &str, is: bool) {
        if is {
            self.broken.entry(label.to_owned()).or_default().insert(group.to_owned());
        } else if let Some(groups) = self.broken.get_mut(label) {
            groups.remove(group);
            if groups.is_empty() {
                self.broken.remove(label);
            }
        }
    }

    /// The first maintenance in a group of a label begins then, or none is announced.
    pub(super) fn set_announced(&mut self, label: &str, group: &str, begins: Option<i64>) {
        if let Some(begins) = begins {
            self.announced.entry(label.to_owned()).or_default().insert(group.to_owned(), begins);
        } else if let Some(groups) = self.announced.get_mut(label) {
            groups.remove(group);
            if groups.is_empty() {
                self.announced.remove(label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_uses_any_more_are_forgotten() {
        let mut state = HotswapState::default();
        let kept: Vec<Name> = (0..10).map(|n| state.intern(&format!("node-{n}"))).collect();
        for n in 0..100_000 {
            state.intern(&format!("gone-{n}"));
        }
        assert!(state.names.len() <= 2 * (kept.len() + MOST_UNUSED), "{}", state.names.len());
        assert!(Arc::ptr_eq(&kept[3], &state.intern("node-3")), "those in use are shared still");
    }
}
