//! One head during the cycle, and what the cycle has decided so far.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::flavor_assigner::Assignment;
use crate::intern::{ClassId, NodeId, SlotId, WorkloadId};
use crate::last_assignment::Scan;
use crate::plan::Plan;
use crate::queue::OrderKey;
use crate::reason::Unadmitted;
use crate::report::CycleReport;
use crate::second_pass::LentNodes;
use crate::topology::PlacedPods;
use crate::view::{Head, Target};

/// Why an entry goes back to its queue, which decides where it goes there (docs/reference/06-algorithm.md 6.4 "Requeue after a cycle").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    Generic,
    NoFit,
    NoCandidates,
    PendingPreemption,
    FailedAfterNomination,
    NamespaceMismatch,
}

/// When an entry is processed, compared with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Precedence {
    /// It had its turn in an earlier cycle, and waited until all pods are ready: before all others.
    Blocked,
    /// Before all others of its tree.
    First,
    /// In the order of the cycle.
    InOrder,
}

/// One head during the cycle.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) head: Head,
    /// Where in its queue it waits; of no meaning in a second pass.
    pub(super) class: ClassId,
    /// Its order among heads of equal priority, with its UID.
    pub(super) key: OrderKey,
    pub(super) plan: Option<Arc<Plan>>,
    pub(super) assignment: Assignment,
    pub(super) targets: Vec<Target>,
    /// The slice that it takes over from, which is no target: it continues until the entry is admitted.
    pub(super) replaced: Option<WorkloadId>,
    /// Its flavor search.
    pub(super) scan: Scan,
    /// The result of its last flavor search, if this search continues that one.
    pub(super) before: Option<Arc<Unadmitted>>,
    /// Heads that only reserved what it would have got, since its search began.
    pub(super) kept_out_by: Vec<WorkloadId>,
    /// The assignment and the targets were computed again while it was processed.
    pub(super) recomputed: bool,
    /// It issued preemptions before and waits for them (gate PrioritizePreemptorWorkloads, and capacity reservation).
    pub(super) preemptor: bool,
    /// When it is processed.
    pub(super) precedence: Precedence,
    /// Decided at nomination already.
    pub(super) early: Option<(Arc<Unadmitted>, Requeue)>,
    /// It holds quota, and this is its second pass; its number, from 1.
    pub(super) second_pass: Option<u32>,
    /// What its slice waits for since an earlier pass.
    pub(super) lent: Option<LentNodes>,
}

/// The decisions of a cycle so far, and the usage that only lasts for it.
#[derive(Default)]
pub(super) struct CycleState {
    pub(super) report: CycleReport,
    pub(super) victims: Vec<(WorkloadId, WorkloadId)>,
    /// Usage that only lasts for the cycle, by the root of its tree.
    pub(super) transient: BTreeMap<NodeId, Vec<(SlotId, i128)>>,
    /// The part of it that heads without victims reserved, by the root of their tree.
    pub(super) reserved: BTreeMap<NodeId, Vec<(WorkloadId, SlotId, i128)>>,
    /// Roots whose usage without the victims is kept.
    pub(super) overlaid: BTreeSet<NodeId>,
    /// Nodes that entries will use which are not admitted in this cycle.
    pub(super) transient_pods: Vec<PlacedPods>,
    /// Nodes that heads without victims reserved.
    pub(super) reserved_pods: Vec<(WorkloadId, PlacedPods)>,
    /// How many slices lent nodes were searched for.
    pub(super) lent_searches: usize,
}

impl Entry {
    /// Notes heads that only reserved what it would have got.
    pub(super) fn is_kept_out_by(&mut self, heads: impl IntoIterator<Item = WorkloadId>) {
        self.kept_out_by.extend(heads);
        self.kept_out_by.sort_unstable();
        self.kept_out_by.dedup();
    }

    /// An entry that already holds quota: its assignment is kept, and adds no usage (docs/reference/06-algorithm.md 6.15).
    pub(super) fn of_second_pass(head: Head, key: OrderKey, iteration: u32) -> Self {
        Self {
            head,
            class: ClassId::new(0),
            key,
            plan: None,
            assignment: Assignment::kept(),
            targets: Vec::new(),
            replaced: None,
            scan: Scan::NONE,
            before: None,
            kept_out_by: Vec::new(),
            recomputed: false,
            preemptor: false,
            precedence: Precedence::InOrder,
            early: None,
            second_pass: Some(iteration),
            lent: None,
        }
    }
}
