//! The nodes of a look, and what is on them, as input of the core, which finds free ones.

use std::collections::BTreeSet;

use sluice_core::{CapacityNode, FreeCapacity, NodeGroups, PodsApart};

use super::snapshot::{Snapshot, holds};
use crate::engine::Engine;

/// What is free on the nodes of a look, without the Workloads that leave. Most looks find nothing that needs it: it is made for the first that does.
pub(super) struct LazyCapacity<'s, 'a> {
    engine: &'a Engine,
    snapshot: &'s Snapshot<'a>,
    groups: &'a [NodeGroups<'a>],
    /// The numbers of the Workloads that leave.
    leaving: &'s [usize],
    /// The room, once it is made, and its steps then.
    made: Option<(FreeCapacity<'a>, u64)>,
}

impl<'s, 'a> LazyCapacity<'s, 'a> {
    /// The room of a look, not made yet.
    pub fn new(
        engine: &'a Engine,
        snapshot: &'s Snapshot<'a>,
        groups: &'a [NodeGroups<'a>],
        leaving: &'s [usize],
    ) -> Self {
        Self { engine, snapshot, groups, leaving, made: None }
    }

    /// The room.
    pub fn get(&mut self) -> &mut FreeCapacity<'a> {
        let made = self.made.take().unwrap_or_else(|| self.make());
        &mut self.made.insert(made).0
    }

    fn make(&self) -> (FreeCapacity<'a>, u64) {
        let mut room = self.engine.room(self.snapshot, self.groups);
        for at in self.leaving {
            room.release(*at);
        }
        let began = room.steps();
        (room, began)
    }

    /// Whether anything needed it.
    pub fn is_made(&self) -> bool {
        self.made.is_some()
    }

    /// The steps since it was made.
    pub fn steps(&self) -> u64 {
        self.made.as_ref().map_or(0, |(room, began)| room.steps() - began)
    }

    /// The room, for good.
    pub fn into_room(mut self) -> FreeCapacity<'a> {
        let made = self.made.take();
        made.unwrap_or_else(|| self.make()).0
    }
}

impl Engine {
    /// What pods leave free on the nodes of a look, with the look's numbers for nodes and Workloads.
    fn room<'a>(&'a self, snapshot: &Snapshot<'a>, groups: &'a [NodeGroups<'a>]) -> FreeCapacity<'a> {
        let nodes = snapshot.nodes.iter();
        let nodes = nodes.map(|seen| CapacityNode { name: seen.name, allocatable: seen.allocatable });
        let mut room = FreeCapacity::new(&self.scheduler, nodes, groups);
        for seen in &snapshot.others {
            if let Some(node) = seen.node {
                room.add_other(node, &seen.pod.requests);
            }
        }
        // Most take groups by the same label as the one before.
        let mut labels = BTreeSet::new();
        for one in &snapshot.workloads {
            if !one.takes_groups_by().eq(labels.iter().copied()) {
                labels = one.takes_groups_by().collect();
            }
            let pods = one.pods.iter().filter_map(|seen| Some((seen.node?, &*seen.pod.requests)));
            room.add_workload(one.key, pods, &labels);
        }
        room
    }

    /// Lets the core assign nodes in a room that these Workloads have left.
    pub(super) fn assign_nodes_of<'a>(
        &'a self,
        room: &mut FreeCapacity<'a>,
        snapshot: &Snapshot<'a>,
        leaving: &[usize],
    ) {
        let lost = snapshot.nodes.iter().filter(|seen| !seen.health.has_capacity());
        room.assign_nodes(lost.map(|seen| seen.name), self.pods_apart(snapshot), leaving);
    }

    /// The pods of Workloads with quota which the core counts one by one, and what it counts of each.
    fn pods_apart<'a>(&'a self, snapshot: &Snapshot<'a>) -> PodsApart<'a> {
        let mut apart = PodsApart::new();
        for (key, node, requests) in self.topology.counted() {
            let Some(pod) = self.world.pods.get(key) else { continue };
            let of = self.workloads_of_pod(key, pod).find_map(|of| {
                let at = snapshot.number(self, of)?;
                let entry = snapshot.workloads[at].entry;
                (holds(entry) && !pod.is_of_former_run(entry)).then_some(at)
            });
            if let Some(of) = of {
                apart.entry(of).or_default().push((&**node, requests));
            }
        }
        apart
    }
}
