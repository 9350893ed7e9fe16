//! Pods that stay where they are while others are placed: node replacement and slices of elastic jobs
//! (docs/reference/06-algorithm.md 6.12 "Elastic", 6.14).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Name;
use crate::topology::placer::{InLeaves, Part, Placer, truncate};
use crate::topology::request::{
    PlacementFailure, PlacementFit, PodSetPlacement, PodSetToPlace, UnmovedSlice,
};
use crate::topology::slice_moves::{Row, filled, leaf_of_broken};
use crate::topology::spec::{
    AssignedDomain, RequestedLevel, SliceLayer, SliceMoves, TopologyAssignment, TopologyRequest,
};

/// The pods of an elastic slice that keep their places.
#[derive(Debug)]
pub(crate) enum Reused {
    /// All that are asked for: nothing is left to be placed.
    All(PodSetPlacement),
    /// These, and this number more has to be placed.
    Some(InLeaves, i64),
}

/// Where the pods of lost nodes have to go.
#[derive(Debug)]
struct Home {
    leaves: Range<usize>,
    /// The request there, if it differs from that of the pod set.
    request: Option<TopologyRequest>,
}

impl Placer<'_> {
    /// The leaf of an assigned domain, if it has a node.
    fn leaf(&self, domain: &AssignedDomain) -> Option<usize> {
        let shared = self.gates.tas_handle_overlapping_flavors;
        let key = self.tree.place_key(&domain.values.clone().into(), shared);
        let leaf = self.places.find(&key).and_then(|place| self.layout.leaf(place));
        leaf.filter(|&leaf| !self.layout.is_closed(leaf))
    }

    /// The leaves of an assignment's domains; the first value of the first domain without a node if there is one.
    fn find(&self, domains: &[AssignedDomain]) -> Result<InLeaves, Name> {
        let leaf = |domain: &AssignedDomain| {
            let first = || domain.values.first().cloned().unwrap_or_else(|| Name::from(""));
            self.leaf(domain).map(|leaf| (leaf, domain.count)).ok_or_else(first)
        };
        domains.iter().map(leaf).collect()
    }

    /// Finds places for the pods of a pod set that were on lost nodes. The others stay; if there is no such place and slices may move, the other pods
    /// of an affected slice move, too. `beside`: a leaf of the pod set that it is in a group with.
    pub(crate) fn replace(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        previous: &TopologyAssignment,
        beside: Option<usize>,
    ) -> Result<PodSetPlacement, PlacementFailure> {
        let gone = self.lost;
        let is_lost = |domain: &AssignedDomain| is_on(domain, gone);
        let (lost, kept): (Vec<_>, Vec<_>) = previous.domains.iter().cloned().partition(is_lost);
        let kept = self.find(&kept).map_err(|stale| {
            self.failure(PlacementFit::Other(format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale \
                 domain {stale}"
            )))
        })?;
        let Some(node) = lost.first().and_then(|domain| domain.values.last()) else {
            return Ok(self.placement(&kept, pod_set.per_pod));
        };
        let count = total(lost.iter().map(|domain| domain.count));
        let rows = || Row::all(&previous.domains, is_lost, &kept);
        let ends_short = ends_short(pod_set.request, total(previous.domains.iter().map(|one| one.count)));
        let home = if ends_short {
            self.home_by_rank(pod_set.request, &rows())
        } else {
            self.home_by_count(pod_set.request, &kept, count)
        };
        let home = home.or_else(|| {
            let near = kept.first().map(|&(leaf, _)| leaf).or(beside)?;
            Some(Home { leaves: self.required_domain(pod_set.request?, near)?, request: None })
        });
        match self.replace_alone(pod_set, home.as_ref(), (node, count), &[]) {
            Ok(found) => {
                // With ranks in order, it is known which pods a slice has.
                let by_rank = ends_short || *self.slice_moves != SliceMoves::Off;
                let ordered =
                    by_rank.then(|| self.in_order(pod_set, home.as_ref(), (node, count), &rows(), &found));
                let (found, leaves) = ordered.flatten().unwrap_or_else(|| {
                    let leaves = merged(kept, found.clone());
                    (found, leaves)
                });
                self.assume(&found, pod_set.per_pod);
                Ok(self.placement(&leaves, pod_set.per_pod))
            }
            Err(failure) => match self.move_slices(pod_set, count, rows) {
                Ok(leaves) => Ok(self.placement(&leaves, pod_set.per_pod)),
                Err(None) => Err(failure),
                Err(Some(why)) => {
                    let fit = PlacementFit::Unmoved(Box::new(UnmovedSlice { fit: failure.fit, why }));
                    Err(PlacementFailure { fit, ..failure })
                }
            },
        }
    }

    /// The places that were found, or others, at the ranks of the lost pods, and all places by rank. A place that has pods of the pod set would have ranks
    /// that are not in a row, so that another one is looked for. `None`: there is none.
    fn in_order(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        home: Option<&Home>,
        lost: (&Name, i64),
        rows: &[Row],
        found: &InLeaves,
    ) -> Option<(InLeaves, InLeaves)> {
        if let Some(leaves) = filled(rows, found) {
            return Some((found.clone(), leaves));
        }
        let taken: BTreeSet<usize> = rows.iter().filter_map(Row::leaf).collect();
        let taken: Vec<usize> = taken.into_iter().collect();
        let others = self.replace_alone(pod_set, home, lost, &taken).ok()?;
        let leaves = filled(rows, &others)?;
        Some((others, leaves))
    }

    /// Finds places for the pods of a lost node alone.
    fn replace_alone(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        home: Option<&Home>,
        (node, count): (&Name, i64),
        without: &[usize],
    ) -> Result<InLeaves, PlacementFailure> {
        let within = home.map(|home| home.leaves.clone());
        let request = home.and_then(|home| home.request.as_ref()).or(pod_set.request);
        let (found, _) = self.place(&Part { request, count, within, without, ..Part::all(pod_set) }, None)?;
        if found.is_empty() {
            let text = format!("cannot find replacement assignment for unhealthy node: {node}");
            return Err(self.failure(PlacementFit::Other(text)));
        }
        Ok(found)
    }

    /// The domain of the slice that the lost pods leave incomplete, if all slices are whole: the one that they complete.
    fn home_by_count(&self, request: Option<&TopologyRequest>, kept: &InLeaves, count: i64) -> Option<Home> {
        let request = request?;
        let layer = broken_layer(&request.slices, count)?;
        let level = self.tree.level(&layer.level)?;
        let mut pods: BTreeMap<usize, i64> = BTreeMap::new();
        for &(leaf, count) in kept {
            let pods = pods.entry(self.layout.ancestor(leaf, level)).or_default();
            *pods = pods.saturating_add(count);
        }
        let (at, _) = pods.into_iter().find(|(_, pods)| pods.saturating_add(count) % layer.size == 0)?;
        Some(Home { leaves: self.layout.leaves(level, at), request: loosened(request, count) })
    }

    /// The same if the last slice has fewer pods than the others, so that numbers are not enough: the domain of the pods whose ranks are in a slice
    /// with those of lost ones, of the innermost layer that has such a slice.
    fn home_by_rank(&self, request: Option<&TopologyRequest>, rows: &[Row]) -> Option<Home> {
        let request = request?;
        let layers = if self.gates.tas_multi_layer_topology { request.slices.len() } else { 1 };
        let layers = request.slices.iter().enumerate().take(layers).filter(|(_, layer)| layer.size > 0);
        layers.rev().find_map(|(at, layer)| {
            let level = self.tree.level(&layer.level)?;
            let leaf = leaf_of_broken(rows, layer.size)?;
            // Its whole parts stay whole.
            let slices = request.slices[at + 1..].to_vec();
            let request = Some(TopologyRequest { level: request.level.clone(), slices });
            Some(Home { leaves: self.layout.leaves(level, self.layout.ancestor(leaf, level)), request })
        })
    }

    /// The leaves of the required level's domain that a leaf is in; `None`: none is required.
    fn required_domain(&self, request: &TopologyRequest, leaf: usize) -> Option<Range<usize>> {
        let RequestedLevel::Required(level) = &request.level else { return None };
        let level = self.tree.level(level)?;
        Some(self.layout.leaves(level, self.layout.ancestor(leaf, level)))
    }

    /// A leaf of an assignment that is not lost.
    pub(crate) fn leaf_left(&self, assignment: &TopologyAssignment) -> Option<usize> {
        let mut left = assignment.domains.iter().filter(|domain| !is_on(domain, self.lost));
        left.find_map(|domain| self.leaf(domain))
    }

    /// What a slice of an elastic job takes over from the one before; `None`: nothing, everything has to be placed.
    pub(crate) fn reuse(&mut self, pod_set: &PodSetToPlace<'_>) -> Option<Reused> {
        let free = pod_set.request.is_none_or(|request| {
            request.level == RequestedLevel::Unconstrained && request.slices.is_empty()
        });
        let previous = pod_set.previous.filter(|_| free)?;
        let mut leaves = self.find(&previous.domains).ok()?;
        let more = pod_set.count.saturating_sub(total(leaves.iter().map(|&(_, count)| count)));
        if more > 0 {
            self.assume(&leaves, pod_set.per_pod);
            return Some(Reused::Some(leaves, more));
        }
        truncate(&mut leaves, pod_set.count);
        let mut placement = self.placement(&leaves, pod_set.per_pod);
        if more == 0 {
            placement.assignment = previous.clone();
        }
        Some(Reused::All(placement))
    }
}

/// Whether a domain belongs to one of these nodes.
fn is_on(domain: &AssignedDomain, nodes: &[Name]) -> bool {
    domain.values.last().is_some_and(|name| nodes.contains(name))
}

/// Whether the last slice of this number of pods has fewer than the others.
fn ends_short(request: Option<&TopologyRequest>, pods: i64) -> bool {
    let outermost = request.and_then(|request| request.slices.first());
    outermost.is_some_and(|layer| layer.size > 0 && pods % layer.size != 0)
}

/// The innermost layer whose slices the loss of this number of pods leaves incomplete, if it does so with the outermost.
pub(crate) fn broken_layer(slices: &[SliceLayer], count: i64) -> Option<&SliceLayer> {
    let broken = |layer: &&SliceLayer| layer.size > 0 && count % layer.size != 0;
    slices.first().filter(broken)?;
    slices.iter().rev().find(broken)
}

/// A request for the pods that complete a slice: grouped by the innermost layer that allows it, or not at all. `None`: the original request.
fn loosened(request: &TopologyRequest, count: i64) -> Option<TopologyRequest> {
    broken_layer(&request.slices, count)?;
    let whole = request.slices.iter().rev().find(|layer| layer.size > 0 && count % layer.size == 0);
    Some(TopologyRequest { level: request.level.clone(), slices: whole.cloned().into_iter().collect() })
}

/// How many pods these are together.
fn total(counts: impl Iterator<Item = i64>) -> i64 {
    counts.fold(0, i64::saturating_add)
}

/// Both in order, each leaf once.
pub(crate) fn merged(mut kept: InLeaves, found: InLeaves) -> InLeaves {
    kept.extend(found);
    kept.sort_by_key(|&(leaf, _)| leaf);
    let mut merged: InLeaves = Vec::with_capacity(kept.len());
    for (leaf, count) in kept {
        match merged.last_mut() {
            Some((last, total)) if *last == leaf => *total = total.saturating_add(count),
            _ => merged.push((leaf, count)),
        }
    }
    merged
}
