//! A short notation for nodes and topology requests in tests.

use std::sync::Arc;

use sluice_selector::Operator;
use smallvec::SmallVec;

use crate::config::Config;
use crate::fixtures::{flavor, n, pairs};
use crate::intern::{FlavorId, Names, ResourceId};
use crate::spec::{Expression, FlavorSpec, Taint, TaintEffect};
use crate::topology::request::Placement;
use crate::topology::{
    HOSTNAME, LevelFits, NodeSpec, NodeUsage, PlacedPods, PlacementFailure, PlacementRequest, PodSetToPlace,
    RequestedLevel, SharedAssignment, SliceLayer, SliceMoves, Topologies, TopologyAssignment,
    TopologyRequest, TopologySpec,
};
use crate::workload::{AffinityTerm, PodSetSpec, PreferredTerm};
use crate::{Amount, Name};

/// The levels of most tests.
pub(super) const LEVELS: [&str; 3] = ["block", "rack", HOSTNAME];

/// A world with one flavor, `tas`, of the topology `default`.
pub(super) struct World {
    pub(super) names: Names,
    pub(super) topologies: Topologies,
    pub(super) usage: NodeUsage,
    pub(super) config: Config,
    pub(super) tas: FlavorId,
    pub(super) slice_moves: SliceMoves,
}

/// What is asked for one pod set.
#[derive(Clone)]
pub(super) struct Pods {
    pub(super) spec: PodSetSpec,
    pub(super) request: Option<TopologyRequest>,
    pub(super) per_pod: Vec<(String, i64)>,
    pub(super) previous: Option<SharedAssignment>,
    pub(super) beside: Option<SharedAssignment>,
}

/// `count` pods of one cpu each.
pub(super) fn pods(count: i64) -> Pods {
    let spec = PodSetSpec { count, ..crate::fixtures::pods("main") };
    Pods { spec, request: None, per_pod: vec![("cpu".to_owned(), 1)], previous: None, beside: None }
}

impl Pods {
    fn level(mut self, level: RequestedLevel) -> Pods {
        let slices = self.request.map_or_else(Vec::new, |request| request.slices);
        self.request = Some(TopologyRequest { level, slices });
        self
    }

    pub(super) fn required(self, level: &str) -> Pods {
        self.level(RequestedLevel::Required(n(level)))
    }

    pub(super) fn preferred(self, level: &str) -> Pods {
        self.level(RequestedLevel::Preferred(n(level)))
    }

    pub(super) fn unconstrained(self) -> Pods {
        self.level(RequestedLevel::Unconstrained)
    }

    /// One more layer of slices.
    pub(super) fn slice(mut self, level: &str, size: i64) -> Pods {
        let mut request = self
            .request
            .take()
            .unwrap_or(TopologyRequest { level: RequestedLevel::Unconstrained, slices: Vec::new() });
        request.slices.push(SliceLayer { level: n(level), size });
        self.request = Some(request);
        self
    }

    pub(super) fn each(mut self, per_pod: &[(&str, i64)]) -> Pods {
        self.per_pod = per_pod.iter().map(|&(name, amount)| (name.to_owned(), amount)).collect();
        self
    }

    pub(super) fn selector(mut self, labels: &[(&str, &str)]) -> Pods {
        self.spec.node_selector = pairs(labels);
        self
    }

    /// Prefers nodes with a label of one of these values, each by so much.
    pub(super) fn prefers(mut self, label: &str, weights: &[(&str, i32)]) -> Pods {
        let one = |&(value, weight): &(&str, i32)| {
            let expression = Expression::new(n(label), Operator::In, vec![n(value)]);
            let term = AffinityTerm { expressions: vec![expression], ..AffinityTerm::default() };
            PreferredTerm { weight, term }
        };
        self.spec.preferred_affinity.extend(weights.iter().map(one));
        self
    }

    pub(super) fn previous(mut self, hosts: &[(&str, i64)]) -> Pods {
        self.previous = Some(Arc::new(assignment(hosts)));
        self
    }

    /// Where the other pod set of its group is.
    pub(super) fn beside(mut self, hosts: &[(&str, i64)]) -> Pods {
        self.beside = Some(Arc::new(assignment(hosts)));
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut PodSetSpec)) -> Pods {
        change(&mut self.spec);
        self
    }
}

/// An assignment to nodes.
pub(super) fn assignment(hosts: &[(&str, i64)]) -> TopologyAssignment {
    let domain =
        |&(host, count): &(&str, i64)| crate::topology::AssignedDomain { values: vec![n(host)], count };
    TopologyAssignment { levels: vec![n(HOSTNAME)], domains: hosts.iter().map(domain).collect() }
}

/// A usable node with ten `pods`.
pub(super) fn node(block: &str, rack: &str, name: &str, offers: &[(&str, i64)]) -> NodeSpec {
    let allocatable = offers.iter().chain(&[("pods", 10)]);
    NodeSpec {
        name: n(name),
        labels: pairs(&[("block", block), ("rack", rack), (HOSTNAME, name), ("pool", "tas")]),
        taints: Vec::new(),
        allocatable: allocatable.map(|&(resource, amount)| (n(resource), Amount(amount))).collect(),
        usable: true,
    }
}

pub(super) fn taint(key: &str, value: &str, effect: TaintEffect) -> Taint {
    Taint { key: n(key), value: n(value), effect }
}

pub(super) fn tas_flavor(name: &str) -> FlavorSpec {
    FlavorSpec { node_labels: pairs(&[("pool", "tas")]), topology: Some(n("default")), ..flavor(name) }
}

/// A world with these levels and no nodes.
pub(super) fn world_of(levels: &[&str]) -> World {
    world_with(levels, Config::default())
}

fn world_with(levels: &[&str], config: Config) -> World {
    let mut names = Names::default();
    let tas = names.flavor(&n("tas"));
    let (mut topologies, mut usage) =
        (Topologies::new(config.gates.tas_handle_overlapping_flavors), NodeUsage::default());
    let spec = TopologySpec { name: n("default"), levels: levels.iter().map(|level| n(level)).collect() };
    topologies.set_topology(&mut usage, &n("default"), Some(&spec));
    topologies.set_flavor(&mut usage, tas, Some(&tas_flavor("tas")));
    World { names, topologies, usage, config, tas, slice_moves: SliceMoves::Off }
}

/// A world of blocks, racks and nodes: (block, rack, node, cpu).
pub(super) fn world(nodes: &[(&str, &str, &str, i64)]) -> World {
    filled(world_of(&LEVELS), nodes)
}

/// The same where every flavor counts for itself what is used of a node.
pub(super) fn unshared_world(nodes: &[(&str, &str, &str, i64)]) -> World {
    let mut config = Config::default();
    config.gates.tas_handle_overlapping_flavors = false;
    filled(world_with(&LEVELS, config), nodes)
}

fn filled(mut world: World, nodes: &[(&str, &str, &str, i64)]) -> World {
    for &(block, rack, name, cpu) in nodes {
        world.node(&node(block, rack, name, &[("cpu", cpu)]));
    }
    world
}

impl World {
    pub(super) fn node(&mut self, node: &NodeSpec) -> Vec<FlavorId> {
        self.topologies.set_node(&mut self.usage, &mut self.names, node)
    }

    /// A node is usable from now on, or no longer is.
    pub(super) fn turn(&mut self, name: &str, usable: bool) -> Vec<FlavorId> {
        self.topologies.set_usable(&mut self.usage, name, usable)
    }

    /// A label of a node has this value from now on, or is gone; no pods wait.
    pub(super) fn label(&mut self, name: &str, key: &str, value: Option<&str>) -> Option<Vec<FlavorId>> {
        let changed = [(n(key), value.map(n))];
        self.topologies.set_labels(&mut self.usage, &mut self.names, name, &changed, |_| false)
    }

    pub(super) fn amounts(&mut self, amounts: &[(String, i64)]) -> Vec<(ResourceId, i64)> {
        amounts.iter().map(|(name, amount)| (self.names.resource(&n(name)), *amount)).collect()
    }

    pub(super) fn other(&mut self, node: &str, cpu: i64, pods: i64) -> Vec<FlavorId> {
        let usage = self.amounts(&[("cpu".to_owned(), cpu), ("pods".to_owned(), pods)]);
        self.topologies.set_other_usage(&mut self.usage, &n(node), &usage)
    }

    /// Places pod sets, with what else of a request is not the default.
    pub(super) fn place_with(
        &mut self,
        sets: &[Pods],
        empty: bool,
        assumed: &[PlacedPods],
        lost: &[&str],
    ) -> Result<Placement, PlacementFailure> {
        let lost: Vec<Name> = lost.iter().map(|name| n(name)).collect();
        let per_pod: Vec<_> = sets.iter().map(|one| self.amounts(&one.per_pod)).collect();
        let pod_sets: SmallVec<[PodSetToPlace<'_>; 2]> = sets
            .iter()
            .zip(&per_pod)
            .map(|(one, per_pod)| PodSetToPlace {
                spec: &one.spec,
                request: one.request.as_ref(),
                per_pod,
                count: one.spec.count,
                previous: one.previous.as_ref(),
                beside: one.beside.as_ref(),
            })
            .collect();
        let slice_moves = &self.slice_moves;
        let request = PlacementRequest { pod_sets, empty, assumed, lost: &lost, slice_moves };
        let placed = self.topologies.place(&mut self.usage, self.tas, &request, &self.names, &self.config);
        self.check();
        placed
    }

    pub(super) fn place(&mut self, pods: &Pods) -> Result<Placement, PlacementFailure> {
        self.place_with(std::slice::from_ref(pods), false, &[], &[])
    }

    /// Where pods go, as `a=1 b=2`, or why not.
    pub(super) fn put(&mut self, pods: &Pods) -> String {
        show(&self.place(pods))
    }

    /// Places pods and adds them.
    pub(super) fn add(&mut self, pods: &Pods) -> PlacedPods {
        let placed = self.place(pods).expect("the pods fit")[0].pods.clone();
        self.usage.add(&placed);
        placed
    }

    /// Pods at nodes, of one cpu each.
    pub(super) fn resolve(&mut self, hosts: &[(&str, i64)]) -> PlacedPods {
        let per_pod = self.amounts(&[("cpu".to_owned(), 1)]);
        self.topologies.resolve(&mut self.usage, self.tas, &assignment(hosts), &per_pod)
    }

    /// Whether pods at nodes, of one cpu each, fit there.
    pub(super) fn fits(&mut self, hosts: &[(&str, i64)]) -> bool {
        let pods = self.resolve(hosts);
        self.usage.fits([&pods])
    }

    /// Where pods would fit, by level; at most so many domains of each are named.
    pub(super) fn domain_fits(&self, pods: &Pods, most: usize) -> Vec<LevelFits> {
        let mut names = self.names.clone();
        let each = pods.per_pod.iter();
        let per_pod: Vec<_> = each.map(|(name, amount)| (names.resource(&n(name)), *amount)).collect();
        let set = PodSetToPlace::alone(&pods.spec, pods.request.as_ref(), &per_pod, pods.spec.count);
        self.topologies.domain_fits(&self.usage, self.tas, (&set, None), (&names, &self.config.gates), most)
    }

    /// Derived values are what they are derived from.
    pub(super) fn check(&self) {
        let mut found = Vec::new();
        self.topologies.audit(&self.usage, &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// The assignments of a placement, or the message of a failure.
pub(super) fn show(placed: &Result<Placement, PlacementFailure>) -> String {
    match placed {
        Ok(placed) => {
            let sets: Vec<String> = placed.iter().map(|one| show_assignment(&one.assignment)).collect();
            sets.join(" | ")
        }
        Err(failure) => failure.message(),
    }
}

pub(super) fn show_assignment(assignment: &TopologyAssignment) -> String {
    let domains: Vec<String> =
        assignment.domains.iter().map(|one| format!("{}={}", one.values.join("/"), one.count)).collect();
    domains.join(" ")
}
