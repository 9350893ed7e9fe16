//! Topology-aware scheduling (docs/reference/06-algorithm.md 6.11–6.15; gate TopologyAwareScheduling): what the core needs of nodes, and what
//! follows from its placements. The placement itself is in the core.
//!
//! * [`nodes`]: nodes, and what other pods take of them, kept in [`state`]; [`seats`]: which pods are where they were assigned, kept in [`seating`].
//! * [`health`]: nodes that fail under a Workload, found by [`assigned`].
//! * [`second_pass`]: nodes that come after the reservation.
//!
//! The side of the pods (6.13):
//!
//! The pods of a pod set with a topology assignment wait behind a gate until their domain is known. Then the gate is taken off, and the
//! domain's labels become part of their node selector.
//!
//! * [`ungater_plan`]: which pod gets into which domain.
//! * [`ungater_index`]: the pods, as they come and go; [`ungater_pods`]: those of which Workloads are to be looked at.
//! * [`ungater_names`]: their texts, each kept once.
//! * [`ungater_domains`]: the domains of a pod set, as its Workload has them.
//! * [`ungater`]: what is written for the pods of a Workload.
//! * [`ungater_failed`]: pods that wait for a node that is no longer assigned.

pub(crate) mod assigned;
mod health;
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
