//! Where waiting pods would fit on nodes (not in Kueue: how fragmented nodes are for them).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Scheduler;
use crate::Name;
use crate::intern::ShapeId;
use crate::scheduler::node_trial::{NodeTrial, PodsToPlace, TrialMark};
use crate::shape::Shape;
use crate::topology::{LevelFits, NodeUsage, PodSetToPlace};
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

/// Where the pods of a pod set would fit.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSetCapacity {
    /// How many pods it has.
    pub pods: i64,
    /// The pod set of the leader that is placed with them, whose pod is not among those that fit.
    pub leader: Option<Name>,
    /// By level of the flavor's topology, from the highest.
    pub levels: Vec<LevelFits>,
}

/// Where the pod sets of one workload would fit. What several of them leave to earlier ones is found once.
#[derive(Debug)]
pub struct WorkloadFits<'a> {
    scheduler: &'a Scheduler,
    workload: &'a WorkloadKey,
    trial: Option<FitsTrial<'a>>,
}

/// The nodes without what earlier pod sets take.
#[derive(Debug)]
struct FitsTrial<'a> {
    /// These, each with its flavor.
    placed: Vec<(Name, Name)>,
    /// Before them.
    start: TrialMark,
    nodes: NodeTrial<'a>,
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
        let pods = PodSetToPlace::alone(spec, None, &per_pod, spec.count);
        self.fits(&self.books.nodes, flavor, (&pods, None), most)
    }

    /// Where the pod sets of a workload would fit now.
    pub fn fits_of<'a>(&'a self, workload: &'a WorkloadKey) -> WorkloadFits<'a> {
        WorkloadFits { scheduler: self, workload, trial: None }
    }

    fn fits(
        &self,
        usage: &NodeUsage,
        flavor: &str,
        pods: (&PodSetToPlace<'_>, Option<&PodSetToPlace<'_>>),
        most: usize,
    ) -> Vec<LevelFits> {
        let world = &self.world;
        let Some(flavor) = world.names.find_flavor(flavor) else { return Vec::new() };
        let context = (&world.names, &world.config.gates);
        world.topology.domain_fits(usage, flavor, pods, context, most)
    }
}

impl WorkloadFits<'_> {
    /// Where the pods of one pod set would fit, by level of a flavor's topology from the highest: the `most` domains of each with most room. It counts as
    /// a placement does: what the pod sets `placed` before it take, each with its flavor, is not free, if all these fit now; and the workers of a group
    /// come with their leader. `None` for an unknown pod set, and for a leader, which is placed with its workers; no levels for a flavor without a topology.
    pub fn of(
        &mut self,
        (pod_set, flavor): (&str, &str),
        placed: &[(Name, Name)],
        most: usize,
    ) -> Option<PodSetCapacity> {
        let scheduler = self.scheduler;
        let world = &scheduler.world;
        let shape = world.workloads.get(world.workloads.find(self.workload)?).shape;
        let (specs, shape) = (world.shapes.pod_sets(shape), &**world.shapes.get(shape));
        let at = named(specs, pod_set)?;
        let led_by = leader(specs, shape, at);
        if led_by == Some(at) {
            return None;
        }
        let pods = |at: usize| {
            let (spec, set) = (specs.get(at)?, shape.pod_sets.get(at)?);
            Some(PodSetToPlace::alone(spec, spec.topology.as_ref(), &set.node_requests, set.count))
        };
        let (own, leader) = (pods(at)?, led_by.and_then(pods));
        let levels = if scheduler.assigns_nodes(flavor) {
            scheduler.fits(self.usage(placed, (specs, shape)), flavor, (&own, leader.as_ref()), most)
        } else {
            Vec::new()
        };
        Some(PodSetCapacity {
            pods: own.count,
            leader: leader.as_ref().map(|leader| leader.spec.name.clone()),
            levels,
        })
    }

    /// The usage of nodes, with that of these pod sets.
    fn usage(&mut self, placed: &[(Name, Name)], (specs, shape): (&[PodSetSpec], &Shape)) -> &NodeUsage {
        let scheduler = self.scheduler;
        let earlier = placed.iter().filter_map(|(pod_set, flavor)| {
            let pod_set = named(specs, pod_set)?;
            Some(PodsToPlace { pod_set, flavor, count: shape.pod_sets.get(pod_set)?.count })
        });
        let earlier: Vec<PodsToPlace<'_>> = earlier.collect();
        if earlier.is_empty() {
            return &scheduler.books.nodes;
        }
        let trial = self.trial.get_or_insert_with(|| {
            let nodes = scheduler.node_trial();
            FitsTrial { placed: Vec::new(), start: nodes.mark(), nodes }
        });
        if trial.placed != placed {
            trial.nodes.undo(trial.start);
            // Without nodes for all of these the trial is as it was.
            drop(trial.nodes.find(self.workload, &earlier));
            trial.placed = placed.to_vec();
        }
        trial.nodes.usage()
    }

    /// How many lowest domains were looked at for earlier pod sets.
    pub fn looked(&self) -> u64 {
        self.trial.as_ref().map_or(0, |trial| trial.nodes.looked())
    }
}

/// The place of a pod set.
fn named(specs: &[PodSetSpec], name: &str) -> Option<usize> {
    specs.iter().position(|spec| *spec.name == *name)
}

/// The pod set that leads the group of a pod set, if that is one of two that are placed together.
fn leader(specs: &[PodSetSpec], shape: &Shape, at: usize) -> Option<usize> {
    let group = specs.get(at)?.group.as_ref()?;
    let count = |at: usize| shape.pod_sets.get(at).map_or(0, |set| set.count);
    let of_group = |other: &usize| specs[*other].group.as_ref() == Some(group) && count(*other) > 0;
    let members: SmallVec<[usize; 2]> = (0..specs.len()).filter(of_group).collect();
    let &[first, second] = &members[..] else { return None };
    Some(if count(second) > count(first) { first } else { second })
}
