//! What waiting pods would use of a node (not in Kueue: how fragmented nodes are for them).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::Scheduler;
use crate::Name;

/// The highest number of classes of workloads that are visited.
const MOST_CLASSES: usize = 4_096;

/// The usage of a node by each pod, by resource: cpu in milli-CPU, everything else in whole units.
pub type PodShape = Vec<(Name, i64)>;

impl Scheduler {
    /// The shapes of pods that wait in queues with this flavor, without `pods`: the `most` shapes with most waiting pods; and how many classes of
    /// workloads were visited.
    pub fn asked_shapes(&self, flavor: &str, most: usize) -> (Vec<PodShape>, usize) {
        let world = &self.world;
        let Some(flavor) = world.names.find_flavor(flavor) else { return (Vec::new(), 0) };
        let queues = world.referring_queues.of_flavor(flavor);
        let classes = queues.flat_map(|queue| world.queues[queue.at()].pending.shapes()).take(MOST_CLASSES);
        let mut waiting: BTreeMap<PodShape, i64> = BTreeMap::new();
        let mut looked_at = 0;
        for (shape, members) in classes {
            looked_at += 1;
            let members = i64::try_from(members).unwrap_or(i64::MAX);
            let shape = world.shapes.get(shape);
            for set in shape.pod_sets.iter().filter(|set| set.count > 0 && !set.node_requests.is_empty()) {
                let each = set.node_requests.iter();
                let each = each.map(|(id, amount)| (world.names.resource_name(*id).clone(), *amount));
                let pods = waiting.entry(each.collect()).or_default();
                *pods = pods.saturating_add(members.saturating_mul(set.count));
            }
        }
        let mut shapes: Vec<_> = waiting.into_iter().collect();
        shapes.sort_by_key(|(_, pods)| Reverse(*pods));
        (shapes.into_iter().take(most).map(|(shape, _)| shape).collect(), looked_at)
    }
}
