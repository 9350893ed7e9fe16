//! One placement on the tree of one flavor: counts, then chooses (docs/reference/06-algorithm.md 6.12).

use std::ops::Range;

use crate::Name;
use crate::config::Gates;
use crate::intern::{Names, ResourceId};
use crate::topology::ask::Ask;
use crate::topology::balanced::balanced;
use crate::topology::counts::{AllCounts, Counts};
use crate::topology::filter::{Bounds, Filter, Sieve};
use crate::topology::hosts::Hosts;
use crate::topology::kept::{Counting, KeptCounts, ShapeRef};
use crate::topology::layout::Layout;
use crate::topology::ledger::{Assumed, Ledger};
use crate::topology::needs::Needs;
use crate::topology::places::Places;
use crate::topology::request::{
    Exclusions, PlacedPods, PlacementFailure, PlacementFit, PodSetPlacement, PodSetToPlace,
};
use crate::topology::search::Search;
use crate::topology::spec::{AssignedDomain, SliceMoves, TopologyAssignment, TopologyRequest};
use crate::topology::taints::TaintSets;
use crate::topology::trees::Tree;

/// Pods in leaves: (position in the layout, how many), in order.
pub(crate) type InLeaves = Vec<(usize, i64)>;

/// Keeps the first `count` pods.
pub(crate) fn truncate(leaves: &mut InLeaves, count: i64) {
    let mut left = count.max(0);
    for (_, pods) in leaves.iter_mut() {
        *pods = (*pods).min(left);
        left -= *pods;
    }
    leaves.retain(|(_, pods)| *pods > 0);
}

/// The result of a search: the places of pods, and of their leader.
pub(crate) type Found = Result<(InLeaves, InLeaves), PlacementFailure>;

/// Everything that a placement reads, and the tables that it works in.
#[derive(Debug)]
pub(crate) struct Placer<'a> {
    /// The flavor's tree.
    pub(crate) tree: &'a Tree,
    /// Its domains.
    pub(crate) layout: &'a Layout,
    /// All nodes.
    pub(crate) hosts: &'a Hosts,
    /// Their taints.
    pub(crate) taints: &'a TaintSets,
    /// All places.
    pub(crate) places: &'a Places,
    /// The free amounts.
    pub(crate) ledger: &'a mut Ledger,
    /// How many pods fit.
    pub(crate) kept: &'a mut KeptCounts,
    /// The names of resources.
    pub(crate) names: &'a Names,
    /// The gates.
    pub(crate) gates: &'a Gates,
    /// As if no workload used anything.
    pub(crate) empty: bool,
    /// Nodes that may not be used.
    pub(crate) lost: &'a [Name],
    /// Whether slices may move.
    pub(crate) slice_moves: &'a SliceMoves,
    /// What was assumed, to be released at the end.
    pub(crate) assumed: Assumed,
}

/// Pods to be placed, maybe not all of their pod set.
#[derive(Debug, Clone)]
pub(crate) struct Part<'a> {
    /// The pod set.
    pub(crate) pod_set: &'a PodSetToPlace<'a>,
    /// The request.
    pub(crate) request: Option<&'a TopologyRequest>,
    /// How many pods.
    pub(crate) count: i64,
    /// The leaves that may be used; `None` is all.
    pub(crate) within: Option<Range<usize>>,
    /// Leaves that may not be used, in order.
    pub(crate) without: &'a [usize],
}

impl<'a> Part<'a> {
    /// All pods of a pod set.
    pub(crate) fn all(pod_set: &'a PodSetToPlace<'a>) -> Part<'a> {
        Part { pod_set, request: pod_set.request, count: pod_set.count, within: None, without: &[] }
    }
}

impl Placer<'_> {
    /// Places pods and the leader that comes with them, if any: where the pods go, and where the leader goes.
    pub(crate) fn place(&mut self, part: &Part<'_>, leader: Option<&PodSetToPlace<'_>>) -> Found {
        let leaders = leader.map_or(0, |leader| leader.count.clamp(0, 1));
        let levels = &self.tree.levels;
        let ask = Ask::new(levels, part.request, part.count, leaders, self.gates)
            .map_err(|text| self.failure(PlacementFit::Other(text)))?;
        let needs = Needs::new(self.ledger, self.names, part.pod_set.per_pod);
        let leader_needs = leader.map(|leader| Needs::new(self.ledger, self.names, leader.per_pod));
        let respected = self.gates.tas_respect_node_affinity_preferred;
        let preferred = if respected { &part.pod_set.spec.preferred_affinity[..] } else { &[] };
        let bounds = self.bounds(part);
        let mut sieve = Sieve::new(Filter {
            hosts: self.hosts,
            taints: self.taints,
            pod_set: part.pod_set.spec,
            preferred,
            needs: &needs,
            tolerations: &self.tree.tolerations,
            by_host: self.tree.has_hosts(),
        });
        let mut counting = Counting {
            layout: self.layout,
            ledger: self.ledger,
            generation: self.tree.generation,
            relabeled: self.tree.relabeled(),
            spliced: self.tree.spliced(),
            sieve: &mut sieve,
            shape: ShapeRef {
                flavor: self.tree.flavor(),
                empty: self.empty,
                pod_set: part.pod_set.spec,
                preferred,
                needs: &needs,
                leader: leader_needs.as_ref(),
                ask: &ask,
            },
        };
        let shared = bounds.is_all();
        let kept = self.kept.shared(&mut counting);
        if let Some(found) = kept.known(&ask).filter(|_| shared) {
            return found.clone();
        }
        let within = if shared { None } else { kept.narrow(self.layout, &ask, &bounds) };
        let counts = &mut kept.counts;
        let mut search = Search { layout: self.layout, levels, ask: &ask, counts, within, compared: 0 };
        let chosen = if ask.evenly { balanced(&mut search) } else { None };
        let chosen = chosen.map_or_else(|| search.run(), Ok);
        let compared = search.compared;
        let placed = chosen.map(|leaves| {
            let (mut pods, leaders) = in_leaves(self.layout, &kept.counts, leaves);
            // The last slice may be incomplete: ranks follow the order of leaves.
            if ask.pods() > ask.count {
                truncate(&mut pods, ask.count);
            }
            (pods, leaders)
        });
        kept.counts.revert();
        kept.counts.widen();
        let ordered = kept.counts.take_ordered();
        let found = placed.map_err(|fit| {
            let excluded = sieve.exclusions(&kept.excluded_by(&bounds), self.layout.open());
            PlacementFailure { topology: self.tree.topology.clone(), fit, excluded }
        });
        let lasts = self.assumed.is_empty() && !self.ledger.is_tried();
        if shared && lasts && (found.is_err() || self.empty) {
            kept.remember(&ask, &found);
        }
        self.kept.count_search(compared, ordered);
        found
    }

    /// The leaves that pods may use: where nodes are the lowest domains, not those of lost nodes.
    fn bounds(&self, part: &Part<'_>) -> Bounds {
        let mut without = part.without.to_vec();
        let lost = if self.tree.has_hosts() { self.lost } else { &[] };
        let shared = self.gates.tas_handle_overlapping_flavors;
        for name in lost {
            // By the hostname, or by the name of the node that has another one.
            let named = self.places.find(&self.tree.place_key(&[name.clone()].into(), shared));
            let homes = self.hosts.find(name).into_iter().flat_map(|host| &self.hosts.get(host).homes);
            let own = homes.filter(|home| home.flavor == self.tree.flavor()).map(|home| home.place);
            without.extend(named.into_iter().chain(own).filter_map(|place| self.layout.leaf(place)));
        }
        without.sort_unstable();
        without.dedup();
        Bounds { within: part.within.clone(), without }
    }

    /// Takes pods off what is free, for what is placed after them.
    pub(crate) fn assume(&mut self, leaves: &InLeaves, per_pod: &[(ResourceId, i64)]) {
        let pods = self.pods(leaves, per_pod);
        self.assume_pods(&pods);
    }

    /// Takes pods off what is free, for what is placed after them.
    pub(crate) fn assume_pods(&mut self, pods: &PlacedPods) {
        self.ledger.assume(pods, &mut self.assumed);
    }

    fn pods(&self, leaves: &InLeaves, per_pod: &[(ResourceId, i64)]) -> PlacedPods {
        PlacedPods {
            places: leaves.iter().map(|&(leaf, count)| (self.layout.places[leaf], count)).collect(),
            per_pod: per_pod.iter().copied().collect(),
        }
    }

    /// Leaves in the order given, in the form of the API: named by the hostname alone if that is the lowest level.
    pub(crate) fn placement(&self, leaves: &InLeaves, per_pod: &[(ResourceId, i64)]) -> PodSetPlacement {
        let levels = &self.tree.levels;
        let from = if self.tree.has_hosts() { levels.len() - 1 } else { 0 };
        let domain = |&(leaf, count): &(usize, i64)| AssignedDomain {
            values: self.layout.paths[leaf][from..].to_vec(),
            count,
        };
        let domains = leaves.iter().map(domain).collect();
        PodSetPlacement {
            assignment: TopologyAssignment { levels: levels[from..].to_vec(), domains }.into(),
            pods: self.pods(leaves, per_pod),
            moved: None,
        }
    }

    /// The same if only those in the leaves `moved` were not there before.
    pub(crate) fn replacement(
        &self,
        leaves: &InLeaves,
        moved: &InLeaves,
        per_pod: &[(ResourceId, i64)],
    ) -> PodSetPlacement {
        PodSetPlacement { moved: Some(self.pods(moved, per_pod)), ..self.placement(leaves, per_pod) }
    }

    /// A failure in which no nodes are counted.
    pub(crate) fn failure(&self, fit: PlacementFit) -> PlacementFailure {
        let excluded = Exclusions::default();
        PlacementFailure { topology: self.tree.topology.clone(), fit, excluded }
    }
}

/// The numbers of pods and leaders in the chosen leaves.
fn in_leaves(layout: &Layout, counts: &AllCounts, mut leaves: Vec<usize>) -> (InLeaves, InLeaves) {
    leaves.sort_unstable();
    let counts = counts.level(layout.depth() - 1);
    let with = |count: fn(&Counts) -> i64| -> InLeaves {
        leaves.iter().map(|&leaf| (leaf, count(&counts[leaf]))).filter(|(_, count)| *count > 0).collect()
    };
    (with(|counts| counts.pods), with(|counts| counts.leaders))
}
