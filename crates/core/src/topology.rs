//! Topology: nodes, their domains, their usage, and the placement of pods (docs/reference/06-algorithm.md 6.11–6.15).
//!
//! Nodes have dense ids here, and so have places: the lowest domains of trees, which are nodes or groups of nodes. A place outlives its nodes, and
//! its usage by pods counts again when they come back. Each place has one row of free amounts. The tree of a flavor lists its leaves in the order of
//! their values; a placement lays them out as arrays, level by level, and keeps these; leaves that came or went since follow before the next one. A
//! change of a node affects the leaves of that node only.
//!
//! Files, from the bottom: `spec`, `request`, `message` (inputs and outputs); `columns`, `ledger`, `places`, `taints`, `hosts`, `positions`, `layout`,
//! `latest`, `laid`, `trees` (tables); `ask`, `needs`, `counts`, `filter`, `search`, `fewest`, `balanced`, `placer`, `replace`, `slice_moves` (one
//! placement); `world` (the state), `booking` (its usage), `events`, `place`, `largest_fit`, `domain_fits`, `trial`, `audit` (operations).

mod ask;
mod audit;
mod balanced;
mod booking;
mod columns;
mod counts;
mod domain_fits;
mod events;
mod fewest;
mod filter;
mod hosts;
mod kept;
mod laid;
mod largest_fit;
mod latest;
mod layout;
mod ledger;
mod message;
mod needs;
mod place;
mod placer;
mod places;
mod positions;
mod replace;
mod request;
mod search;
mod slice_moves;
mod spec;
mod taints;
#[cfg(test)]
mod tests;
mod tightest;
mod trees;
mod trial;
mod world;

pub(crate) use booking::NodeUsage;
pub use domain_fits::LevelFits;
pub use largest_fit::LargestFit;
pub(crate) use ledger::TopologyMark;
pub(crate) use places::Path;
pub use request::{Exclusions, PlacementFailure, PlacementFit, UnmovedSlice};
pub(crate) use request::{PlacedPods, Placement, PlacementRequest, PodSetToPlace};
pub use spec::{
    AssignedDomain, HOSTNAME, NodeSpec, RequestedLevel, SharedAssignment, SliceLayer, SliceMoves,
    TopologyAssignment, TopologyRequest, TopologySpec,
};
pub(crate) use trial::Trial;
pub(crate) use world::Topologies;
