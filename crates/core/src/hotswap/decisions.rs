//! What a search decides.

use std::collections::BTreeSet;

use super::results::SearchResults;
use crate::capacity::Displaced;
use crate::workload::WorkloadKey;

/// What a search decided about displaced workloads.
#[derive(Debug, Default)]
pub struct HotswapDecisions {
    /// What happens to which of the displaced workloads, by their positions: those that leave their nodes, or stay on them.
    pub outcomes: Vec<(usize, DisplacedOutcome)>,
    /// The workloads for which capacity is kept, in their order, each with what it takes.
    pub displaced: Vec<Displaced>,
    /// The workloads that the search has not reached yet.
    pub postponed: BTreeSet<WorkloadKey>,
    /// The numbers of the workloads that leave their nodes: those that move, and their victims.
    pub gone: BTreeSet<usize>,
    /// Whether there was a search without an earlier result.
    pub searched: bool,
    /// The nodes and workloads that it has looked at, as [`FreeCapacity::steps`](crate::FreeCapacity::steps) counts them.
    pub steps: u64,
    /// What it keeps for the next search.
    pub results: SearchResults,
}

/// What happens to a displaced workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisplacedOutcome {
    /// It moves to other nodes after the workloads with these numbers were evicted.
    Moves(Vec<usize>),
    /// It stays where it is.
    Stays(NotMoved),
}

/// Why a displaced workload stays where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotMoved {
    /// Too many nodes look bad.
    Brake,
    /// No healthy nodes are free for it, not even without workloads of lower priority; and how much of it could be placed, if its nodes are assigned.
    NoNodes(Option<String>),
    /// The search for nodes was given up.
    TooLong,
    /// Its queue does not have the quota to admit it again.
    NoQuota,
    /// Its queue cannot admit it again, and why.
    Barred(String),
}

impl NotMoved {
    /// What keeps its queue from admitting it again, if that is the reason.
    pub fn barred(&self) -> Option<&str> {
        match self {
            Self::NoQuota => Some("its ClusterQueue no longer has quota for it"),
            Self::Barred(why) => Some(why),
            Self::Brake | Self::NoNodes(_) | Self::TooLong => None,
        }
    }

    /// Whether it is the same reason, however much would fit now: that changes with every pod that comes and goes.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NoNodes(_), Self::NoNodes(_)) => true,
            _ => self == other,
        }
    }
}
