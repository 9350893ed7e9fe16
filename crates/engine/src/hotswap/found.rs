//! Where there is room for work that was evicted for its nodes: kept from one look to the next, so that it is not searched again.

use std::sync::Arc;

use sluice_core::{Amount, AssignedPods, CapacityMark, FreeCapacity, Name, NodeSet};

use super::needs::{Choice, Flavors};
use super::snapshot::Snapshot;

/// Room that a search found.
#[derive(Clone, Debug)]
pub(crate) struct FoundRoom {
    flavors: Flavors,
    claim: Vec<(Name, Name, Amount)>,
    nodes: Vec<Arc<str>>,
    assigned: AssignedPods,
}

impl FoundRoom {
    /// Where a Workload with this choice was placed since the mark.
    pub fn of(
        way: &Choice<'_>,
        room: &FreeCapacity<'_>,
        mark: CapacityMark,
        snapshot: &Snapshot<'_>,
    ) -> Self {
        let (nodes, assigned) = room.placed(mark);
        let nodes = nodes.iter().map(|node| Arc::from(snapshot.nodes[node].name)).collect();
        Self { flavors: way.flavors.clone(), claim: way.claim.clone(), nodes, assigned }
    }

    /// Takes it again, if it is still wanted and there; which of the choices that is.
    pub fn take_again<'a>(
        &self,
        choices: &[Choice<'a>],
        room: &mut FreeCapacity<'a>,
        snapshot: &Snapshot<'_>,
    ) -> Option<usize> {
        let same = |way: &Choice<'_>| way.flavors == self.flavors && way.claim == self.claim;
        let choice = choices.iter().position(same)?;
        let nodes = self.nodes.iter().map(|node| snapshot.node(node)).collect::<Option<NodeSet>>()?;
        room.place_again(&choices[choice].needs, &nodes, &self.assigned).then_some(choice)
    }
}
