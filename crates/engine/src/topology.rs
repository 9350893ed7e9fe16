//! Topology-aware scheduling (docs/reference/06-algorithm.md 6.11–6.15; gate TopologyAwareScheduling): what the core needs to know of nodes, and what
//! follows from its placements. The placement itself is in the core.
//!
//! * [`nodes`]: nodes, and what other pods use of them, kept in [`state`]; [`seats`]: which pods are where they were assigned, kept in [`seating`].
//! * [`health`]: nodes that fail under a Workload, found by [`assigned`].
//! * [`second_pass`]: nodes that are created after the reservation.
//!
//! The pods (6.13):
//!
//! The pods of a pod set with a topology assignment wait behind a gate until their domain is known. Then the gate is removed, and the domain's labels
//! are added to their node selector.
//!
//! * [`ungater_plan`]: assigns pods to domains.
//! * [`ungater_index`]: the pods, by their events; [`ungater_pods`]: the Workloads whose pods need a look, by their [`marks`].
//! * [`ungater_names`]: their texts, each kept once.
//! * [`ungater_domains`]: the domains of a pod set, from its Workload.
//! * [`ungater`]: the writes for the pods of a Workload.
//! * [`ungater_failed`]: pods that wait for a node that is no longer assigned.

pub(crate) mod assigned;
mod health;
pub(crate) mod marks;
mod moved_slices;
mod nodes;
mod seating;
mod seats;
mod second_pass;
pub(crate) mod state;
pub(crate) mod ungater;
mod ungater_domains;
mod ungater_failed;
pub(crate) mod ungater_index;
pub(crate) mod ungater_names;
mod ungater_plan;
mod ungater_pods;
