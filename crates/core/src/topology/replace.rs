//! Pods that stay where they are while others are placed: node replacement and slices of elastic jobs
//! (docs/reference/06-algorithm.md 6.12 "Elastic", 6.14).

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Name;
use crate::intern::PlaceId;
use crate::topology::placer::{InLeaves, Part, Placer};
use crate::topology::request::{
    PlacementFailure, PlacementFit, PodSetPlacement, PodSetToPlace, UnmovedSlice,
};
use crate::topology::slice_moves::{Row, filled};
use crate::topology::spec::{
    AssignedDomain, RequestedLevel, SliceLayer, SliceMoves, TopologyAssignment, TopologyRequest,
};

/// The leaf at each place of a tree.
pub(crate) type LeafOf = BTreeMap<PlaceId, usize>;

/// The pods of an elastic slice that keep their places.
#[derive(Debug)]
pub(crate) enum Reused {
    /// All that are asked for: nothing is left to be placed.
    All(PodSetPlacement),
    /// These, and so many more are to be placed.
    Some(InLeaves, i64),
}

impl Placer<'_> {
    /// The leaf at each place.
    pub(crate) fn leaf_of(&self) -> LeafOf {
        self.layout.places.iter().enumerate().map(|(leaf, &place)| (place, leaf)).collect()
    }

    /// The leaves of an assignment's domains; the first value of the first domain without a node if there is one.
    fn find(&self, domains: &[AssignedDomain], leaf_of: &LeafOf) -> Result<InLeaves, Name> {
        let shared = self.gates.tas_handle_overlapping_flavors;
        let leaf = |domain: &AssignedDomain| {
            let key = self.tree.place_key(&domain.values.clone().into(), shared);
            let leaf = self.places.find(&key).and_then(|place| leaf_of.get(&place));
            let first = || domain.values.first().cloned().unwrap_or_else(|| Name::from(""));
            leaf.map(|&leaf| (leaf, domain.count)).ok_or_else(first)
        };
        domains.iter().map(leaf).collect()
    }

    /// Finds places for the pods of a pod set that were on lost nodes. The others stay; if there is no such place and slices may move, the
    /// others of a slice that lost some move with them.
    pub(crate) fn replace(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        previous: &TopologyAssignment,
        leaf_of: &LeafOf,
    ) -> Result<PodSetPlacement, PlacementFailure> {
        let is_lost =
            |domain: &AssignedDomain| domain.values.last().is_some_and(|name| self.lost.contains(name));
        let (lost, kept): (Vec<_>, Vec<_>) = previous.domains.iter().cloned().partition(is_lost);
        let kept = self.find(&kept, leaf_of).map_err(|stale| {
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
        match self.replace_alone(pod_set, &kept, (node, count)) {
            Ok(found) => {
                self.assume(&found, pod_set.per_pod);
                // With ranks in order, it is known which pods a slice has.
                let ordered =
                    if *self.slice_moves == SliceMoves::Off { None } else { filled(&rows(), &found) };
                let leaves = ordered.unwrap_or_else(|| merged(kept, found));
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

    /// Finds places for the pods of a lost node alone.
    fn replace_alone(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        kept: &InLeaves,
        (node, count): (&Name, i64),
    ) -> Result<InLeaves, PlacementFailure> {
        let within = self.replacement_domain(pod_set.request, kept, count);
        let loose = within.as_ref().and_then(|_| loosened(pod_set.request?, count));
        let request = loose.as_ref().or(pod_set.request);
        let (found, _) = self.place(&Part { request, count, within, ..Part::all(pod_set) }, None)?;
        if found.is_empty() {
            let text = format!("cannot find replacement assignment for unhealthy node: {node}");
            return Err(self.failure(PlacementFit::Other(text)));
        }
        Ok(found)
    }

    /// The leaves of the domain that the pods of a lost node have to stay in: that of the slice which they leave incomplete, or that of
    /// the required level. `None`: any.
    fn replacement_domain(
        &self,
        request: Option<&TopologyRequest>,
        kept: &InLeaves,
        count: i64,
    ) -> Option<Range<usize>> {
        let request = request?;
        let &(first, _) = kept.first()?;
        if let Some(layer) = broken_layer(&request.slices, count) {
            let level = self.tree.level(&layer.level)?;
            let mut pods: BTreeMap<usize, i64> = BTreeMap::new();
            for &(leaf, count) in kept {
                let pods = pods.entry(self.layout.ancestor(leaf, level)).or_default();
                *pods = pods.saturating_add(count);
            }
            let incomplete = pods.into_iter().find(|(_, pods)| pods.saturating_add(count) % layer.size == 0);
            return incomplete.map(|(at, _)| self.layout.leaves(level, at));
        }
        let RequestedLevel::Required(level) = &request.level else { return None };
        let level = self.tree.level(level)?;
        Some(self.layout.leaves(level, self.layout.ancestor(first, level)))
    }

    /// What a slice of an elastic job takes over from the one before; `None`: nothing, everything is to be placed.
    pub(crate) fn reuse(&mut self, pod_set: &PodSetToPlace<'_>, leaf_of: &LeafOf) -> Option<Reused> {
        let free = pod_set.request.is_none_or(|request| {
            request.level == RequestedLevel::Unconstrained && request.slices.is_empty()
        });
        let previous = pod_set.previous.filter(|_| free)?;
        let mut leaves = self.find(&previous.domains, leaf_of).ok()?;
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

/// The innermost layer whose slices the loss of so many pods leaves incomplete, if it does so with the outermost.
pub(crate) fn broken_layer(slices: &[SliceLayer], count: i64) -> Option<&SliceLayer> {
    let broken = |layer: &&SliceLayer| layer.size > 0 && count % layer.size != 0;
    slices.first().filter(broken)?;
    slices.iter().rev().find(broken)
}

/// A request for the pods that complete a slice: grouped as the innermost layer that allows it, or not at all. `None`: as it is.
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

/// Keeps the first `count` pods.
fn truncate(leaves: &mut InLeaves, count: i64) {
    let mut left = count.max(0);
    for (_, pods) in leaves.iter_mut() {
        *pods = (*pods).min(left);
        left -= *pods;
    }
    leaves.retain(|(_, pods)| *pods > 0);
}
