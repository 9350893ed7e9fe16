//! Where waiting pods would fit on nodes (not in Kueue: how fragmented nodes are for them).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Scheduler;
use crate::Name;
use crate::intern::ShapeId;
use crate::topology::{LevelFits, PodSetToPlace};
use crate::workload::{PodSetSpec, WorkloadKey};

/// The highest number of classes of workloads that are visited.
const MOST_CLASSES: usize = 4_096;

/// The usage of a node by each pod, by resource: cpu in milli-CPU, everything else in whole units.
pub type PodShape = Vec<(Name, i64)>;

/// Pods that wait and use as much of their nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingShape {
    /// The usage of a node by each pod, without `pods`.
    pub per_pod: PodShape,
    /// The pod set that stands for them, and those of its workload.
    pod_set: (usize, Arc<[PodSetSpec]>),
}

/// The waiting pods of one shape.
#[derive(Debug, Default)]
struct Waiting {
    /// How many.
    pods: i64,
    /// How many of them are of the class with most of them, and the pod set of that.
    largest: Option<(i64, ShapeId, usize)>,
}

impl Scheduler {
    /// The shapes of pods that wait in queues with this flavor: the `most` shapes with most waiting pods; and how many classes of workloads were visited.
    /// For each shape the pod set of the class with most waiting pods stands, with its selectors and tolerations.
    pub fn asked_shapes(&self, flavor: &str, most: usize) -> (Vec<WaitingShape>, usize) {
        let world = &self.world;
        let Some(flavor) = world.names.find_flavor(flavor) else { return (Vec::new(), 0) };
        let queues = world.referring_queues.of_flavor(flavor);
        let classes = queues.flat_map(|queue| world.queues[queue.at()].pending.shapes()).take(MOST_CLASSES);
        let mut waiting: BTreeMap<PodShape, Waiting> = BTreeMap::new();
        let mut looked_at = 0;
        for (id, members) in classes {
            looked_at += 1;
            let members = i64::try_from(members).unwrap_or(i64::MAX);
            let sets = world.shapes.get(id).pod_sets.iter().enumerate();
            for (at, set) in sets.filter(|(_, set)| set.count > 0 && !set.node_requests.is_empty()) {
                let each = set.node_requests.iter();
                let each = each.map(|(id, amount)| (world.names.resource_name(*id).clone(), *amount));
                let pods = members.saturating_mul(set.count);
                let of_shape = waiting.entry(each.collect()).or_default();
                of_shape.pods = of_shape.pods.saturating_add(pods);
                if of_shape.largest.is_none_or(|largest| pods > largest.0) {
                    of_shape.largest = Some((pods, id, at));
                }
            }
        }
        let mut shapes: Vec<_> = waiting.into_iter().collect();
        shapes.sort_by_key(|(_, waiting)| Reverse(waiting.pods));
        let shape = |(per_pod, waiting): (PodShape, Waiting)| {
            let (_, id, at) = waiting.largest?;
            Some(WaitingShape { per_pod, pod_set: (at, world.shapes.shared_pod_sets(id)) })
        };
        (shapes.into_iter().take(most).filter_map(shape).collect(), looked_at)
    }

    /// Where pods that wait would fit now, one by one, by level of a flavor's topology from the highest: the `most` domains of each with most room.
    /// Empty for a flavor without a topology.
    pub fn shape_fits(&self, flavor: &str, shape: &WaitingShape, most: usize) -> Vec<LevelFits> {
        let (at, pod_sets) = &shape.pod_set;
        let known: Option<Vec<_>> = shape
            .per_pod
            .iter()
            .map(|(name, amount)| Some((self.world.names.find_resource(name)?, *amount)))
            .collect();
        let (Some(per_pod), Some(spec)) = (known, pod_sets.get(*at)) else { return Vec::new() };
        self.fits(flavor, &PodSetToPlace::alone(spec, None, &per_pod, spec.count), most)
    }

    /// How many pods a pod set of a workload has, and where they would fit now, by level of a flavor's topology from the highest: the `most` domains of
    /// each with most room. `None` for an unknown pod set; no levels for a flavor without a topology.
    pub fn pod_set_fits(
        &self,
        workload: &WorkloadKey,
        pod_set: &str,
        flavor: &str,
        most: usize,
    ) -> Option<(i64, Vec<LevelFits>)> {
        let world = &self.world;
        let shape = world.workloads.get(world.workloads.find(workload)?).shape;
        let specs = world.shapes.pod_sets(shape);
        let at = specs.iter().position(|spec| *spec.name == *pod_set)?;
        let (spec, set) = (&specs[at], world.shapes.get(shape).pod_sets.get(at)?);
        let pods = PodSetToPlace::alone(spec, spec.topology.as_ref(), &set.node_requests, set.count);
        Some((set.count, self.fits(flavor, &pods, most)))
    }

    fn fits(&self, flavor: &str, pod_set: &PodSetToPlace<'_>, most: usize) -> Vec<LevelFits> {
        let world = &self.world;
        let Some(flavor) = world.names.find_flavor(flavor) else { return Vec::new() };
        let context = (&world.names, &world.config.gates);
        world.topology.domain_fits(&self.books.nodes, flavor, pod_set, context, most)
    }
}
