//! The nodes found for work that was evicted from failing nodes: kept from one search to the next, so that it is not repeated.

use super::displaced::{DisplacedWorkload, FlavorChoice};
use crate::capacity_search::{AssignedPods, CapacityMark, FreeCapacity, NodeSet};
use crate::{Amount, Name};

/// Free capacity that a search found.
#[derive(Debug, Clone)]
pub(super) struct FoundCapacity {
    /// By pod set.
    flavors: Vec<Option<Name>>,
    /// By flavor and resource: what it takes of the quota.
    pub(super) claim: Vec<(Name, Name, Amount)>,
    /// The nodes, by name: their numbers may be others in the next search.
    nodes: Vec<Name>,
    /// How many pods are on which node.
    assigned: AssignedPods,
}

impl FoundCapacity {
    /// Where a workload with this choice was placed since the mark.
    pub(super) fn of(choice: &FlavorChoice<'_>, free: &FreeCapacity<'_>, mark: CapacityMark) -> Self {
        let (nodes, assigned) = free.placed(mark);
        let nodes = nodes.iter().map(|node| Name::from(free.node_name(node))).collect();
        Self { flavors: choice.flavors.clone(), claim: choice.claim.clone(), nodes, assigned }
    }

    /// Takes it again, if it is still wanted and free; returns which of the workload's choices it is for.
    pub(super) fn take_again<'a>(
        &self,
        one: &DisplacedWorkload<'a>,
        free: &mut FreeCapacity<'a>,
    ) -> Option<usize> {
        let same = |choice: &FlavorChoice<'_>| choice.flavors == self.flavors && choice.claim == self.claim;
        let choice = one.choices.iter().position(same)?;
        let nodes = self.nodes.iter().map(|node| free.node_number(node)).collect::<Option<NodeSet>>()?;
        free.place_again(one.key, &one.choices[choice].needs, &nodes, &self.assigned).then_some(choice)
    }
}
