//! Pods that stay where they are while others are placed: node replacement and slices of elastic jobs
//! (docs/reference/06-algorithm.md 6.12 "Elastic", 6.14).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::Name;
use crate::topology::placer::{InLeaves, Part, Placer, truncate};
use crate::topology::request::{
    PlacementFailure, PlacementFit, PodSetPlacement, PodSetToPlace, UnmovedSlice,
};
use crate::topology::slice_moves::{Row, SliceOfLost, filled, leaf_of_broken};
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

    /// The leaves of an assignment's domains, if all of them have a node.
    fn find(&self, domains: &[AssignedDomain]) -> Option<InLeaves> {
        domains.iter().map(|domain| Some((self.leaf(domain)?, domain.count))).collect()
    }

    /// The rows of an assignment: those of lost nodes have no leaf. Fails if another domain has none, either, unless all these pods are of one slice, which
    /// may move: nodes that fail one after the other are closed before they count as lost.
    fn rows(
        &self,
        pod_set: &PodSetToPlace<'_>,
        previous: &TopologyAssignment,
    ) -> Result<Vec<Row>, PlacementFailure> {
        let is_lost = |domain: &AssignedDomain| is_on(domain, self.lost);
        let leaf = |domain: &AssignedDomain| if is_lost(domain) { None } else { self.leaf(domain) };
        let row = |domain: &AssignedDomain| Row { leaf: leaf(domain), count: domain.count };
        let rows: Vec<Row> = previous.domains.iter().map(row).collect();
        let is_stale = |(domain, row): &(&AssignedDomain, &Row)| row.leaf.is_none() && !is_lost(domain);
        let Some((stale, _)) = previous.domains.iter().zip(&rows).find(is_stale) else { return Ok(rows) };
        let stale = stale.values.first().map_or("", |first| &**first);
        let failure = self.failure(PlacementFit::Other(format!(
            "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain \
             {stale}"
        )));
        let innermost = pod_set.request.and_then(|request| request.slices.last());
        let slice = innermost.filter(|_| previous.domains.iter().any(is_lost));
        match (slice.and_then(|layer| SliceOfLost::of(&rows, layer.size)), self.slice_moves) {
            (Some(_), SliceMoves::Allowed) => Ok(rows),
            (Some(_), SliceMoves::Refused(why)) => Err(unmoved(failure, (&**why).into())),
            _ => Err(failure),
        }
    }

    /// Finds places for the pods of a pod set that were on lost nodes. The others stay; if there is no such place and slices may move, the other pods
    /// of an affected slice move, too. `beside`: a leaf of the pod set that it is in a group with.
    pub(crate) fn replace(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        previous: &TopologyAssignment,
        beside: Option<usize>,
    ) -> Result<PodSetPlacement, PlacementFailure> {
        let rows = self.rows(pod_set, previous)?;
        let kept: InLeaves = rows.iter().filter_map(|row| Some((row.leaf?, row.count))).collect();
        let lost = previous.domains.iter().find(|domain| is_on(domain, self.lost));
        let Some(node) = lost.and_then(|domain| domain.values.last()) else {
            return Ok(self.replacement(&kept, &InLeaves::new(), pod_set.per_pod));
        };
        if let Some(why) = self.keeps_whole_slice(pod_set, &rows) {
            return Err(unmoved(self.not_replaced(node), why));
        }
        let count = total(rows.iter().filter(|row| row.leaf.is_none()).map(|row| row.count));
        let ends_short = ends_short(pod_set.request, total(previous.domains.iter().map(|one| one.count)));
        let home = if ends_short {
            self.home_by_rank(pod_set.request, &rows)
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
                    by_rank.then(|| self.in_order(pod_set, home.as_ref(), (node, count), &rows, &found));
                let (found, leaves) = ordered.flatten().unwrap_or_else(|| {
                    let leaves = merged(kept, found.clone());
                    (found, leaves)
                });
                self.assume(&found, pod_set.per_pod);
                Ok(self.replacement(&leaves, &found, pod_set.per_pod))
            }
            Err(failure) => match self.move_slices(pod_set, count, &rows) {
                Ok((leaves, moved)) => Ok(self.replacement(&leaves, &moved, pod_set.per_pod)),
                Err(None) => Err(failure),
                Err(Some(why)) => Err(unmoved(failure, why)),
            },
        }
    }

    /// What prevents that a slice which lost several nodes, and has no pods on others, goes elsewhere.
    fn keeps_whole_slice(&self, pod_set: &PodSetToPlace<'_>, rows: &[Row]) -> Option<Box<str>> {
        let request = pod_set.request.filter(|_| *self.slice_moves != SliceMoves::Off)?;
        rows.iter().filter(|row| row.leaf.is_none()).nth(1)?;
        let innermost = request.slices.last()?;
        let goes = SliceOfLost::of(rows, innermost.size).is_some_and(|slice| slice.is_whole);
        if goes { self.objection(pod_set, request) } else { None }
    }

    /// There is no other node for pods of this one.
    fn not_replaced(&self, node: &Name) -> PlacementFailure {
        self.failure(PlacementFit::Other(format!(
            "cannot find replacement assignment for unhealthy node: {node}"
        )))
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
        let taken: BTreeSet<usize> = rows.iter().filter_map(|row| row.leaf).collect();
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
            return Err(self.not_replaced(node));
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
        let mut leaves = self.find(&previous.domains)?;
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

/// The same failure: its slice cannot move either.
fn unmoved(failure: PlacementFailure, why: Box<str>) -> PlacementFailure {
    let fit = PlacementFit::Unmoved(Box::new(UnmovedSlice { fit: failure.fit, why }));
    PlacementFailure { fit, ..failure }
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
