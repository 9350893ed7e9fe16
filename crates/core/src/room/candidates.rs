//! Which workloads may have to go so that displaced work finds nodes: lower priority; the own ClusterQueue first, then its cohort, then others; in each
//! the order of docs/reference/06-algorithm.md 6.7.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::Name;
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
    pub reserved_at: Reverse<Time>,
    /// Its UID.
    pub uid: &'a str,
    /// Its ClusterQueue.
    pub queue: Name,
    /// The Cohort at the top of its tree.
    pub root: Option<Name>,
    /// The flavors that it holds.
    pub flavors: Vec<&'a str>,
}

/// All workloads that may have to go, in their order. It is made once: most searches look at the first few only.
#[derive(Debug)]
pub struct Candidates<'a> {
    all: Vec<Candidate<'a>>,
    /// By position: whether it goes already.
    gone: Vec<bool>,
    /// By the number of a workload: its position.
    positions: BTreeMap<usize, usize>,
    everywhere: Line,
    of_queue: BTreeMap<Name, Line>,
    of_root: BTreeMap<Name, Line>,
}

/// Some of the candidates in their order.
#[derive(Debug, Default)]
struct Line {
    at: Vec<usize>,
    /// All before this one are gone.
    first: usize,
}

impl Line {
    /// Those that may not be gone.
    fn rest(&self) -> &[usize] {
        self.at.get(self.first..).unwrap_or_default()
    }

    fn pass_over(&mut self, gone: &[bool]) {
        self.first += self.rest().iter().take_while(|at| gone[**at]).count();
    }
}

impl<'a> Candidates<'a> {
    /// These.
    pub fn new(mut all: Vec<Candidate<'a>>) -> Self {
        all.sort_by_key(|one| (one.priority, one.reserved_at, one.uid, one.key));
        let (mut of_queue, mut of_root) = (BTreeMap::<_, Line>::new(), BTreeMap::<_, Line>::new());
        for (at, one) in all.iter().enumerate() {
            of_queue.entry(Name::clone(&one.queue)).or_default().at.push(at);
            if let Some(root) = &one.root {
                of_root.entry(Name::clone(root)).or_default().at.push(at);
            }
        }
        Self {
            gone: vec![false; all.len()],
            positions: all.iter().enumerate().map(|(at, one)| (one.at, at)).collect(),
            everywhere: Line { at: (0..all.len()).collect(), first: 0 },
            all,
            of_queue,
            of_root,
        }
    }

    /// One goes, if it is a candidate: it is no candidate any more.
    pub fn remove(&mut self, workload: usize) {
        let Some(&at) = self.positions.get(&workload) else { return };
        self.gone[at] = true;
        let one = &self.all[at];
        self.everywhere.pass_over(&self.gone);
        if let Some(line) = self.of_queue.get_mut(&one.queue) {
            line.pass_over(&self.gone);
        }
        if let Some(line) = one.root.as_ref().and_then(|root| self.of_root.get_mut(root)) {
            line.pass_over(&self.gone);
        }
    }

    /// Those that go for work of this priority in this queue, below this root, in the order in which they do: the same ClusterQueue, then the
    /// same cohort tree, then the others. `beyond` says whether other queues make room as well.
    pub fn below<'s>(
        &'s self,
        priority: i32,
        queue: &'s Name,
        root: Option<&'s Name>,
        beyond: bool,
    ) -> impl Iterator<Item = &'s Candidate<'a>> {
        let lower = move |one: &&Candidate<'a>| one.priority < priority;
        let these = move |line: Option<&'s Line>| {
            let rest = line.map(Line::rest).unwrap_or_default().iter();
            rest.filter(|at| !self.gone[**at]).map(|at| &self.all[*at])
        };
        let root = root.filter(|_| beyond);
        let own = these(self.of_queue.get(queue)).take_while(lower);
        let cohort = these(root.and_then(|root| self.of_root.get(root))).take_while(lower);
        let others = these(Some(&self.everywhere).filter(|_| beyond)).take_while(lower);
        own.chain(cohort.filter(move |one| one.queue != *queue)).chain(
            others.filter(move |one| one.queue != *queue && (root.is_none() || one.root.as_ref() != root)),
        )
    }
}
