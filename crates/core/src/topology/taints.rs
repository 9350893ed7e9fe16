//! The taints of nodes, each distinct list of them once: what tolerates it is found out once for a placement.

use crate::index_map::IndexMap;
use crate::spec::{Taint, TaintEffect};
use crate::tables::put;

/// The list without taints.
pub(crate) const NO_TAINTS: usize = 0;

/// Distinct lists of taints that keep pods away, by dense number.
#[derive(Debug, Clone)]
pub(crate) struct TaintSets {
    /// The taints, and how many nodes have exactly these.
    rows: Vec<(Vec<Taint>, usize)>,
    index: IndexMap<Vec<Taint>, usize>,
    free: Vec<usize>,
}

impl Default for TaintSets {
    fn default() -> Self {
        Self { rows: vec![(Vec::new(), 0)], index: IndexMap::default(), free: Vec::new() }
    }
}

impl TaintSets {
    /// The number of a node's taints. Ends with [`TaintSets::give_back`].
    pub(crate) fn take(&mut self, taints: &[Taint]) -> usize {
        let keeps_away = |taint: &&Taint| taint.effect != TaintEffect::PreferNoSchedule;
        let taints: Vec<Taint> = taints.iter().filter(keeps_away).cloned().collect();
        if taints.is_empty() {
            return NO_TAINTS;
        }
        let at = self.index.get(&taints).copied().unwrap_or_else(|| self.insert(taints));
        self.rows[at].1 += 1;
        at
    }

    fn insert(&mut self, taints: Vec<Taint>) -> usize {
        let at = self.free.pop().unwrap_or(self.rows.len());
        put(&mut self.rows, at, (taints.clone(), 0));
        self.index.insert(taints, at);
        at
    }

    /// A node no longer has these taints.
    pub(crate) fn give_back(&mut self, at: usize) {
        if at == NO_TAINTS {
            return;
        }
        let (taints, nodes) = &mut self.rows[at];
        *nodes = nodes.saturating_sub(1);
        if *nodes == 0 {
            self.index.swap_remove(taints);
            taints.clear();
            self.free.push(at);
        }
    }

    /// The taints of a number.
    pub(crate) fn get(&self, at: usize) -> &[Taint] {
        &self.rows[at].0
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}
