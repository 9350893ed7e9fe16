//! Hotswap's decision (not in Kueue): which displaced workloads get other nodes, and which workloads are preempted for them.
//!
//! Its inputs are plain: what is free on the nodes ([`crate::FreeCapacity`]), the [`DisplacedWorkload`]s in their order, and the [`HotswapFacts`],
//! which follow from objects that the core does not see. What quotas allow, the core asks of its own usage.
//!
//! How much of a flavor may be held at all, since not all of its nodes are healthy, is [`capacity_of_flavors`], whose
//! [`CapacitySums`] follow pods that come and go until the next one.

mod cut;
mod decisions;
mod displaced;
mod facts;
mod flavor_capacity;
mod found;
mod quota;
mod results;
mod search;

pub use decisions::{DisplacedOutcome, HotswapDecisions, NotMoved};
pub use displaced::{DisplacedWorkload, FlavorChoice};
pub use facts::HotswapFacts;
pub use flavor_capacity::{
    CapacityFacts, CapacitySums, FlavorCapacity, FlavorNodes, PodOnNode, capacity_of_flavors,
};
pub use results::SearchResults;
pub use search::{DisplacedSearch, SearchSteps};
