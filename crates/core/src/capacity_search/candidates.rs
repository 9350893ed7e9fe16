//! Which workloads may be preempted so that displaced work finds nodes: lower priority; first what the cohort has lent, then the own ClusterQueue,
//! then the rest of its cohort, then others, of which borrowers come first; in each the order of docs/reference/06-algorithm.md 6.7.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::intern::NodeId;
use crate::spec::Time;
use crate::workload::WorkloadKey;

/// A workload on nodes that may have to go.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The number of the workload.
    pub at: usize,
    /// Its name.
    pub key: &'a WorkloadKey,
    /// Its effective priority: lower first.
    pub priority: i32,
    /// When it reserved its quota: the most recent first.
    pub reserved_at: Time,
    /// Its UID.
    pub uid: &'a str,
    /// Its ClusterQueue.
    pub queue: &'a str,
    /// The flavors that it holds.
    pub flavors: Vec<&'a str>,
}

/// A candidate in its tree.
#[derive(Debug)]
struct InTree<'a> {
    candidate: Candidate<'a>,
    /// The Cohort at the top.
    root: Option<NodeId>,
}

/// All workloads that may have to go, in their order. It is made once: most searches look at the first few only.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    all: Vec<InTree<'a>>,
    /// By position: whether it goes already.
    gone: Vec<bool>,
    /// By the number of a workload: its position.
    positions: BTreeMap<usize, usize>,
    everywhere: Lines,
    of_queue: BTreeMap<&'a str, Line>,
    of_root: BTreeMap<NodeId, Lines>,
}

/// Candidates that hold quota lent to their ClusterQueue, and the rest.
#[derive(Debug, Default)]
struct Lines {
    lent: Line,
    rest: Line,
}

impl Lines {
    fn push(&mut self, at: usize, lent: bool) {
        let line = if lent { &mut self.lent } else { &mut self.rest };
        line.at.push(at);
    }

    fn pass_over(&mut self, gone: &[bool]) {
        self.lent.pass_over(gone);
        self.rest.pass_over(gone);
    }
}

/// Some of the candidates in their order.
#[derive(Debug, Default)]
struct Line {
    at: Vec<usize>,
    /// All before this position are gone.
    first: usize,
}

impl Line {
    /// Those that are not known to be gone.
    fn rest(&self) -> &[usize] {
        self.at.get(self.first..).unwrap_or_default()
    }

    fn pass_over(&mut self, gone: &[bool]) {
        self.first += self.rest().iter().take_while(|at| gone[**at]).count();
    }
}

impl<'a> Candidates<'a> {
    /// These candidates. `root_of` returns the Cohort at the top of a ClusterQueue's tree. In their order `borrows` is called for each one in a Cohort:
    /// whether it holds what its ClusterQueue borrows.
    pub(crate) fn new(
        mut all: Vec<Candidate<'a>>,
        root_of: impl Fn(&str) -> Option<NodeId>,
        mut borrows: impl FnMut(&Candidate<'a>) -> bool,
    ) -> Self {
        all.sort_by_key(|one| (one.priority, Reverse(one.reserved_at), one.uid, one.key));
        let mut roots = BTreeMap::new();
        let all = all.into_iter().map(|candidate| {
            let root = *roots.entry(candidate.queue).or_insert_with(|| root_of(candidate.queue));
            InTree { candidate, root }
        });
        let all: Vec<_> = all.collect();
        let (mut of_queue, mut of_root) = (BTreeMap::<_, Line>::new(), BTreeMap::<_, Lines>::new());
        let mut everywhere = Lines::default();
        for (at, one) in all.iter().enumerate() {
            let lent = one.root.is_some() && borrows(&one.candidate);
            everywhere.push(at, lent);
            of_queue.entry(one.candidate.queue).or_default().at.push(at);
            if let Some(root) = one.root {
                of_root.entry(root).or_default().push(at, lent);
            }
        }
        Self {
            gone: vec![false; all.len()],
            positions: all.iter().enumerate().map(|(at, one)| (one.candidate.at, at)).collect(),
            everywhere,
            all,
            of_queue,
            of_root,
        }
    }

    /// A workload is released: if it was a candidate, it no longer is.
    pub(crate) fn remove(&mut self, workload: usize) {
        let Some(&at) = self.positions.get(&workload) else { return };
        self.gone[at] = true;
        let one = &self.all[at];
        self.everywhere.pass_over(&self.gone);
        if let Some(line) = self.of_queue.get_mut(one.candidate.queue) {
            line.pass_over(&self.gone);
        }
        if let Some(lines) = one.root.and_then(|root| self.of_root.get_mut(&root)) {
            lines.pass_over(&self.gone);
        }
    }

    /// The possible victims for work of this priority in this queue, below this root, in order: borrowed quota in the same cohort tree, the same
    /// ClusterQueue, the rest of the cohort tree, then the others. `beyond` returns whether other queues may be preempted as well.
    pub(crate) fn below<'s>(
        &'s self,
        priority: i32,
        queue: &'s str,
        root: Option<NodeId>,
        beyond: bool,
    ) -> impl Iterator<Item = &'s Candidate<'a>> {
        let these = move |line: Option<&'s Line>| {
            let rest = line.map(Line::rest).unwrap_or_default().iter();
            let there = rest.filter(|at| !self.gone[**at]).map(|at| &self.all[*at]);
            there.take_while(move |one| one.candidate.priority < priority)
        };
        let cohort = root.filter(|_| beyond).and_then(|root| self.of_root.get(&root));
        let near = move |line: Option<&'s Line>| these(line).filter(move |one| one.candidate.queue != queue);
        let everywhere = Some(&self.everywhere).filter(|_| beyond);
        let far =
            move |line: Option<&'s Line>| near(line).filter(move |one| root.is_none() || one.root != root);
        near(cohort.map(|lines| &lines.lent))
            .chain(these(self.of_queue.get(queue)))
            .chain(near(cohort.map(|lines| &lines.rest)))
            .chain(far(everywhere.map(|lines| &lines.lent)))
            .chain(far(everywhere.map(|lines| &lines.rest)))
            .map(|one| &one.candidate)
    }
}
