//! Which leaves pods may use, and why not the others (docs/reference/06-algorithm.md 6.12 "Leaf identity", "Failure texts").

use std::collections::BTreeMap;
use std::ops::Range;

use sluice_quantity::is_extended;

use crate::Name;
use crate::intern::HostId;
use crate::matching::{affinity_holds, puts_up_with, selects_node};
use crate::spec::{Taint, Toleration};
use crate::topology::hosts::Hosts;
use crate::topology::layout::Layout;
use crate::topology::needs::Needs;
use crate::topology::request::Exclusions;
use crate::topology::taints::{NO_TAINTS, TaintSets};
use crate::workload::PodSetSpec;

/// What decides about the leaves of one placement.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    /// All nodes.
    pub(crate) hosts: &'a Hosts,
    /// The taints of nodes.
    pub(crate) taints: &'a TaintSets,
    /// The pod set whose selectors, affinity and tolerations count.
    pub(crate) pod_set: &'a PodSetSpec,
    /// What its pods take.
    pub(crate) needs: &'a Needs,
    /// What the flavor tolerates for its pods.
    pub(crate) tolerations: &'a [Toleration],
    /// Nodes that may not be used.
    pub(crate) lost: &'a [Name],
    /// The leaves that may be used; `None` is all.
    pub(crate) within: Option<Range<usize>>,
    /// Nodes are the lowest domains: else neither taints nor labels count.
    pub(crate) by_host: bool,
}

/// What was found out about the taints of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Tolerated,
    Not,
}

/// Why leaves were left out, counted while they are looked through.
#[derive(Debug, Default)]
pub(crate) struct Excluded {
    affinity: u32,
    node_selector: u32,
    domain: u32,
    /// For each need, the leaves into which not one pod fits for its sake.
    needs: Vec<u32>,
    /// For each number of taints that are not tolerated, the leaves that have it.
    taints: BTreeMap<usize, u32>,
}

/// Looks leaves through one after the other.
#[derive(Debug)]
pub(crate) struct Sieve<'a> {
    filter: Filter<'a>,
    verdicts: Vec<Verdict>,
    labels_count: bool,
    excluded: Excluded,
}

impl<'a> Sieve<'a> {
    /// Nothing looked through yet.
    pub(crate) fn new(filter: Filter<'a>) -> Sieve<'a> {
        let pod_set = filter.pod_set;
        let labels_count =
            filter.by_host && !(pod_set.node_selector.is_empty() && pod_set.affinity.is_empty());
        let tainted = if filter.by_host { filter.taints.len() } else { 0 };
        let needs = vec![0; filter.needs.iter().count()];
        Sieve {
            filter,
            verdicts: vec![Verdict::Unknown; tainted],
            labels_count,
            excluded: Excluded { needs, ..Excluded::default() },
        }
    }

    /// Whether every leaf may be used, so that none need be asked about.
    pub(crate) fn passes_all(&self) -> bool {
        self.verdicts.len() <= 1
            && !self.labels_count
            && self.filter.within.is_none()
            && self.filter.lost.is_empty()
    }

    /// Whether a leaf may be used; counts why not.
    pub(crate) fn passes(&mut self, layout: &Layout, leaf: usize) -> bool {
        let host = layout.hosts[leaf];
        self.taints_pass(host)
            && (!self.labels_count || self.labels_pass(host))
            && self.domain_passes(layout, leaf, host)
    }

    fn taints_pass(&mut self, host: HostId) -> bool {
        let at = self.filter.hosts.taints(host);
        if !self.filter.by_host || at == NO_TAINTS {
            return true;
        }
        if self.verdicts[at] == Verdict::Unknown {
            let bad = self.filter.untolerated(at);
            self.verdicts[at] = if bad.is_some() { Verdict::Not } else { Verdict::Tolerated };
        }
        let passes = self.verdicts[at] == Verdict::Tolerated;
        if !passes {
            *self.excluded.taints.entry(at).or_default() += 1;
        }
        passes
    }

    fn labels_pass(&mut self, host: HostId) -> bool {
        let node = self.filter.hosts.get(host).spec.as_ref();
        let labels = node.map_or(&[][..], |node| &node.labels);
        if !selects_node(self.filter.pod_set, labels) {
            self.excluded.node_selector += 1;
            return false;
        }
        let name = node.map(|node| &*node.name);
        let passes = affinity_holds(self.filter.pod_set, name, labels);
        self.excluded.affinity += u32::from(!passes);
        passes
    }

    fn domain_passes(&mut self, layout: &Layout, leaf: usize, host: HostId) -> bool {
        let outside = self.filter.within.as_ref().is_some_and(|within| !within.contains(&leaf));
        let passes = !outside && !self.filter.is_lost(layout, leaf, host);
        self.excluded.domain += u32::from(!passes);
        passes
    }

    /// Not one pod fits into a leaf for the sake of a need. Kueue blames no resource if nothing at all is free.
    pub(crate) fn full(&mut self, need: usize, row: &[i64]) {
        if row.iter().any(|&free| free != 0) {
            self.excluded.needs[need] += 1;
        }
    }

    /// Why leaves were left out, of so many.
    pub(crate) fn exclusions(&self, leaves: usize) -> Exclusions {
        let excluded = &self.excluded;
        let needs = self.filter.needs.iter().zip(&excluded.needs);
        let mut taints: BTreeMap<String, u32> = BTreeMap::new();
        for (&at, &count) in &excluded.taints {
            let bad = self.filter.untolerated(at);
            if let Some(taint) = bad {
                *taints.entry(text(taint)).or_default() += count;
            }
        }
        Exclusions {
            nodes: u32::try_from(leaves).unwrap_or(u32::MAX),
            affinity: excluded.affinity,
            node_selector: excluded.node_selector,
            resources: needs.filter(|(_, n)| **n > 0).map(|(need, n)| (need.name.clone(), *n)).collect(),
            taints: taints.into_iter().collect(),
            domain: excluded.domain,
        }
    }
}

impl Filter<'_> {
    /// The first of the taints of a number that neither the pod set nor its flavor tolerates.
    fn untolerated(&self, at: usize) -> Option<&Taint> {
        let asked = |key: &str| is_extended(key) && self.needs.iter().any(|need| *need.name == *key);
        let tolerations = || self.pod_set.tolerations.iter().chain(self.tolerations);
        self.taints.get(at).iter().find(|taint| !puts_up_with(taint, tolerations(), asked))
    }

    fn is_lost(&self, layout: &Layout, leaf: usize, host: HostId) -> bool {
        if self.lost.is_empty() || !self.by_host {
            return false;
        }
        let name = self.hosts.get(host).spec.as_ref().map(|node| &node.name);
        let value = layout.paths[leaf].last();
        self.lost.iter().any(|lost| Some(lost) == name || Some(lost) == value)
    }
}

/// A taint as Kubernetes writes it.
fn text(taint: &Taint) -> String {
    let effect = taint.effect.as_str();
    if taint.value.is_empty() {
        format!("{}:{effect}", taint.key)
    } else {
        format!("{}={}:{effect}", taint.key, taint.value)
    }
}
