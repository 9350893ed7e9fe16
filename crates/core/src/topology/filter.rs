//! Which leaves pods may use, and why not the others (docs/reference/06-algorithm.md 6.12 "Leaf identity", "Failure texts").

use std::collections::BTreeMap;
use std::ops::Range;

use sluice_quantity::is_extended;

use crate::intern::HostId;
use crate::matching::{affinity_holds, affinity_score, is_tolerated, selects_node};
use crate::spec::{Taint, Toleration};
use crate::topology::hosts::Hosts;
use crate::topology::layout::Layout;
use crate::topology::needs::Needs;
use crate::topology::request::Exclusions;
use crate::topology::taints::{NO_TAINTS, TaintSets};
use crate::workload::{PodSetSpec, PreferredTerm};

/// The inputs for judging the leaves of one placement.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    /// All nodes.
    pub(crate) hosts: &'a Hosts,
    /// The taints of nodes.
    pub(crate) taints: &'a TaintSets,
    /// The pod set whose selectors, affinity and tolerations count.
    pub(crate) pod_set: &'a PodSetSpec,
    /// The preferred node affinity that counts.
    pub(crate) preferred: &'a [PreferredTerm],
    /// The usage of its pods.
    pub(crate) needs: &'a Needs,
    /// The flavor's tolerations for its pods.
    pub(crate) tolerations: &'a [Toleration],
    /// Nodes are the lowest domains: else neither taints nor labels count.
    pub(crate) by_host: bool,
}

/// Which leaves one placement may use, whatever its pods are like.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    /// The leaves that it may use; `None` is all.
    pub(crate) within: Option<Range<usize>>,
    /// Leaves that it may not use, in order.
    pub(crate) without: Vec<usize>,
}

impl Bounds {
    /// Whether it may use all.
    pub(crate) fn is_all(&self) -> bool {
        self.within.is_none() && self.without.is_empty()
    }

    /// Whether it may use a leaf.
    pub(crate) fn has(&self, leaf: usize) -> bool {
        self.within.as_ref().is_none_or(|within| within.contains(&leaf))
            && self.without.binary_search(&leaf).is_err()
    }
}

/// What was found out about the taints of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Tolerated,
    Not,
}

/// Why a leaf is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// Its node takes no pods: it counts as absent, and no message names it.
    Closed,
    /// The taints of this number are not tolerated.
    Taints(usize),
    /// The node selector.
    NodeSelector,
    /// The node affinity.
    Affinity,
    /// The leaf may not be used.
    Domain,
    /// Not even one pod fits, because of this need.
    Need(usize),
    /// Nothing at all is free, so that no resource is named as the cause.
    Nothing,
}

impl Why {
    /// Not even one pod fits into a leaf, because of a need. Kueue names no resource if nothing at all is free.
    pub(crate) fn full(need: usize, row: &[i64]) -> Why {
        if row.iter().any(|&free| free != 0) { Why::Need(need) } else { Why::Nothing }
    }
}

/// For how many leaves each reason holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Excluded(BTreeMap<Why, u32>);

impl Excluded {
    /// A leaf is left out.
    pub(crate) fn add(&mut self, why: Why) {
        self.add_many(why, 1);
    }

    /// So many leaves are left out.
    pub(crate) fn add_many(&mut self, why: Why, leaves: u32) {
        *self.0.entry(why).or_default() += leaves;
    }

    /// Those that are left out whatever is free there.
    pub(crate) fn but_by_fit(&self) -> Excluded {
        let stays = |(why, _): &(&Why, &u32)| !matches!(why, Why::Need(_) | Why::Nothing);
        Excluded(self.0.iter().filter(stays).map(|(why, count)| (*why, *count)).collect())
    }

    /// How many these are.
    pub(crate) fn total(&self) -> u32 {
        self.0.values().sum()
    }

    /// A leaf is no longer excluded.
    pub(crate) fn remove(&mut self, why: Why) {
        if let Some(count) = self.0.get_mut(&why) {
            *count = count.saturating_sub(1);
        }
    }

    fn of(&self, why: Why) -> u32 {
        self.0.get(&why).copied().unwrap_or(0)
    }
}

/// Judges leaves one after the other.
#[derive(Debug)]
pub(crate) struct Sieve<'a> {
    filter: Filter<'a>,
    verdicts: Vec<Verdict>,
    labels_count: bool,
}

impl<'a> Sieve<'a> {
    /// No leaf was judged yet.
    pub(crate) fn new(filter: Filter<'a>) -> Sieve<'a> {
        let pod_set = filter.pod_set;
        let labels_count =
            filter.by_host && !(pod_set.node_selector.is_empty() && pod_set.affinity.is_empty());
        let tainted = if filter.by_host { filter.taints.len() } else { 0 };
        Sieve { filter, verdicts: vec![Verdict::Unknown; tainted], labels_count }
    }

    /// Whether every leaf that is not closed may be used.
    pub(crate) fn passes_all(&self) -> bool {
        self.verdicts.len() <= 1 && !self.labels_count
    }

    /// Why a leaf may not be used, whatever is free.
    pub(crate) fn keeps_out(&mut self, layout: &Layout, leaf: usize) -> Option<Why> {
        if layout.is_closed(leaf) {
            return Some(Why::Closed);
        }
        let host = layout.hosts[leaf];
        let by_taints = self.by_taints(host);
        by_taints.or_else(|| if self.labels_count { self.by_labels(host) } else { None })
    }

    fn by_taints(&mut self, host: HostId) -> Option<Why> {
        let at = self.filter.hosts.taints(host);
        if !self.filter.by_host || at == NO_TAINTS {
            return None;
        }
        if self.verdicts[at] == Verdict::Unknown {
            let bad = self.filter.untolerated(at);
            self.verdicts[at] = if bad.is_some() { Verdict::Not } else { Verdict::Tolerated };
        }
        (self.verdicts[at] == Verdict::Not).then_some(Why::Taints(at))
    }

    fn by_labels(&self, host: HostId) -> Option<Why> {
        let node = self.filter.hosts.get(host).spec.as_ref();
        let labels = node.map_or(&[][..], |node| &node.labels);
        if !selects_node(self.filter.pod_set, labels) {
            return Some(Why::NodeSelector);
        }
        let name = node.map(|node| &*node.name);
        (!affinity_holds(self.filter.pod_set, name, labels)).then_some(Why::Affinity)
    }

    /// Whether some nodes are worth more than others.
    pub(crate) fn scores(&self) -> bool {
        self.filter.by_host && !self.filter.preferred.is_empty()
    }

    /// What a leaf is worth by the preferred node affinity. One that is closed, or that taints or labels keep out, is worth nothing; what is
    /// free, and which domain is asked for, makes no difference.
    pub(crate) fn score(&self, layout: &Layout, leaf: usize, kept_out: Option<Why>) -> i64 {
        if matches!(kept_out, Some(Why::Closed | Why::Taints(_) | Why::NodeSelector | Why::Affinity)) {
            return 0;
        }
        let node = self.filter.hosts.get(layout.hosts[leaf]).spec.as_ref();
        node.map_or(0, |node| affinity_score(self.filter.preferred, Some(&node.name), &node.labels))
    }

    /// Why leaves were left out, of `leaves`.
    pub(crate) fn exclusions(&self, excluded: &Excluded, leaves: usize) -> Exclusions {
        let needs = self.filter.needs.iter().enumerate().map(|(at, need)| (need, excluded.of(Why::Need(at))));
        let mut taints: BTreeMap<String, u32> = BTreeMap::new();
        for (&why, &count) in excluded.0.iter().filter(|(_, count)| **count > 0) {
            let Why::Taints(at) = why else { continue };
            let bad = self.filter.untolerated(at);
            if let Some(taint) = bad {
                *taints.entry(text(taint)).or_default() += count;
            }
        }
        Exclusions {
            nodes: u32::try_from(leaves).unwrap_or(u32::MAX),
            affinity: excluded.of(Why::Affinity),
            node_selector: excluded.of(Why::NodeSelector),
            resources: needs.filter(|(_, n)| *n > 0).map(|(need, n)| (need.name.clone(), n)).collect(),
            taints: taints.into_iter().collect(),
            domain: excluded.of(Why::Domain),
        }
    }
}

impl Filter<'_> {
    /// The first of the taints of a number that neither the pod set nor its flavor tolerates.
    fn untolerated(&self, at: usize) -> Option<&Taint> {
        let asked = |key: &str| is_extended(key) && self.needs.iter().any(|need| *need.name == *key);
        let tolerations = || self.pod_set.tolerations.iter().chain(self.tolerations);
        self.taints.get(at).iter().find(|taint| !is_tolerated(taint, tolerations(), asked))
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
