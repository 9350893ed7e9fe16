//! Where pods go (docs/reference/06-algorithm.md 6.12, 6.14).

use std::cmp::Reverse;

use smallvec::smallvec;

use crate::Name;
use crate::config::Config;
use crate::intern::{FlavorId, Names};
use crate::topology::booking::NodeUsage;
use crate::topology::ledger::{Assumed, Ledger};
use crate::topology::placer::{Part, Placer};
use crate::topology::replace::{Reused, merged};
use crate::topology::request::{
    Exclusions, Placement, PlacementFailure, PlacementFit, PlacementRequest, PodSetPlacement, PodSetToPlace,
};
use crate::topology::world::Topologies;

impl Topologies {
    /// Where pods go (docs/reference/06-algorithm.md 6.12). What is used is the same afterwards.
    pub(crate) fn place(
        &self,
        usage: &mut NodeUsage,
        flavor: FlavorId,
        request: &PlacementRequest<'_>,
        names: &Names,
        config: &Config,
    ) -> Result<Placement, PlacementFailure> {
        let NodeUsage { ledger, kept } = usage;
        ledger.grow(self.places.len());
        let Some(tree) = self.trees.get(&flavor) else { return Err(unknown(names.flavor_name(flavor))) };
        let assumed = assume(ledger, request);
        let mut placer = Placer {
            tree,
            layout: tree.layout(),
            hosts: &self.hosts,
            taints: &self.taints,
            places: &self.places,
            ledger,
            kept: &mut kept.0,
            names,
            gates: &config.gates,
            empty: request.empty,
            lost: request.lost,
            slice_moves: request.slice_moves,
            assumed,
        };
        let outcome = place_all(&mut placer, &request.pod_sets);
        let Placer { ledger, assumed, .. } = placer;
        ledger.release(assumed);
        outcome
    }
}

/// A flavor without a known topology.
fn unknown(flavor: &Name) -> PlacementFailure {
    let text = format!("Flavor {:?} information missing in TAS cache", &**flavor);
    PlacementFailure {
        topology: Name::from(""),
        fit: PlacementFit::Other(text),
        excluded: Exclusions::default(),
    }
}

/// Takes what earlier pod sets take off what is free.
fn assume(ledger: &mut Ledger, request: &PlacementRequest<'_>) -> Assumed {
    let several = request.pod_sets.len() > 1 || request.pod_sets.iter().any(|one| one.previous.is_some());
    let own = request.pod_sets.iter().filter(|_| several).map(|one| one.per_pod);
    let to_come: Vec<_> = request.assumed.iter().map(|pods| &pods.per_pod[..]).chain(own).collect();
    let mut assumed = ledger.nothing_assumed(&to_come);
    for pods in request.assumed {
        ledger.assume(pods, &mut assumed);
    }
    assumed
}

/// Places the pod sets of a request: a group of two as leader and workers, everything else one after the other.
fn place_all(placer: &mut Placer<'_>, pod_sets: &[PodSetToPlace<'_>]) -> Result<Placement, PlacementFailure> {
    let stays = pod_sets.iter().any(|one| one.previous.is_some());
    let replaces = stays && !placer.lost.is_empty();
    match pod_sets {
        [first, second] if !replaces && second.count > first.count => {
            let (workers, leader) = place_group(placer, second, Some(first))?;
            Ok(leader.into_iter().chain([workers]).collect())
        }
        [first, second] if !replaces => {
            let (workers, leader) = place_group(placer, first, Some(second))?;
            Ok([workers].into_iter().chain(leader).collect())
        }
        [only] if !replaces => Ok(smallvec![place_group(placer, only, None)?.0]),
        _ => place_beside(placer, pod_sets),
    }
}

/// Places pod sets one after the other. If no pod of a pod set stays, it is placed beside the other one of its group, or where that has been placed
/// before.
fn place_beside(
    placer: &mut Placer<'_>,
    pod_sets: &[PodSetToPlace<'_>],
) -> Result<Placement, PlacementFailure> {
    let mut order: Vec<usize> = (0..pod_sets.len()).collect();
    if pod_sets.iter().all(|one| one.beside.is_some_and(|beside| placer.leaf_left(beside).is_none())) {
        // Where most pods go, there has to be room for all of them.
        order.sort_by_key(|at| Reverse(pod_sets[*at].count));
    }
    let mut found: Vec<Option<PodSetPlacement>> = pod_sets.iter().map(|_| None).collect();
    let mut first = None;
    for at in order {
        let one = &pod_sets[at];
        let left = one.beside.and_then(|beside| placer.leaf_left(beside));
        let placement = place_alone(placer, one, left.or(first.filter(|_| one.beside.is_some())))?;
        first = first.or_else(|| placer.layout.leaf(placement.pods.places.first()?.0));
        found[at] = Some(placement);
    }
    Ok(found.into_iter().flatten().collect())
}

/// Places one pod set of several that are not a group, or replaces its lost nodes.
fn place_alone(
    placer: &mut Placer<'_>,
    pod_set: &PodSetToPlace<'_>,
    beside: Option<usize>,
) -> Result<PodSetPlacement, PlacementFailure> {
    if let Some(previous) = pod_set.previous.filter(|_| !placer.lost.is_empty()) {
        return placer.replace(pod_set, previous, beside);
    }
    let (leaves, _) = placer.place(&Part::all(pod_set), None)?;
    placer.assume(&leaves, pod_set.per_pod);
    Ok(placer.placement(&leaves, pod_set.per_pod))
}

/// Places workers and their leader, if there is one. Workers of an elastic job keep their places.
fn place_group(
    placer: &mut Placer<'_>,
    workers: &PodSetToPlace<'_>,
    leader: Option<&PodSetToPlace<'_>>,
) -> Result<(PodSetPlacement, Option<PodSetPlacement>), PlacementFailure> {
    let elastic = placer.gates.elastic_jobs_via_workload_slices_with_tas;
    let reused = if elastic { placer.reuse(workers) } else { None };
    let (kept, count) = match reused {
        Some(Reused::All(placement)) => return keep_group(placer, placement, leader),
        Some(Reused::Some(leaves, more)) => (leaves, more),
        None => (Vec::new(), workers.count),
    };
    let (found, led) = placer.place(&Part { count, ..Part::all(workers) }, leader)?;
    let workers = placer.placement(&merged(kept, found), workers.per_pod);
    Ok((workers, leader.map(|leader| placer.placement(&led, leader.per_pod))))
}

/// All workers stay; so does the leader if it can, otherwise it is placed alone.
fn keep_group(
    placer: &mut Placer<'_>,
    workers: PodSetPlacement,
    leader: Option<&PodSetToPlace<'_>>,
) -> Result<(PodSetPlacement, Option<PodSetPlacement>), PlacementFailure> {
    let Some(leader) = leader else { return Ok((workers, None)) };
    placer.assume_pods(&workers.pods);
    let leader = match placer.reuse(leader) {
        Some(Reused::All(placement)) => placement,
        _ => place_alone(placer, leader, None)?,
    };
    Ok((workers, Some(leader)))
}
