//! How many pods fit into each domain: phase 1 of a placement (docs/reference/06-algorithm.md 6.12).

use std::ops::Range;

use crate::cache::Cache;
use crate::topology::ask::Ask;
use crate::topology::layout::{Around, Layout};
use crate::topology::tightest::Tightest;

/// How many fit into a domain; later, how many are placed there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pods.
    pub(crate) pods: i64,
    /// Pods besides a leader.
    pub(crate) pods_led: i64,
    /// Slices; 0 below the level of slices.
    pub(crate) slices: i64,
    /// Slices besides a leader.
    pub(crate) slices_led: i64,
    /// Leaders: 0 or 1.
    pub(crate) leaders: i64,
}

/// The counts of all domains, level by level, each level in the order of the layout. What a search changes can be reverted.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllCounts {
    levels: Vec<Vec<Counts>>,
    /// The scores of domains by preferred node affinity, as `levels`; empty if all are equal.
    scores: Vec<Vec<i64>>,
    /// (level, position, counts before a search changed them).
    undo: Vec<(usize, usize, Counts)>,
    /// The same before some leaves were left out.
    narrowed: Vec<(usize, usize, Counts)>,
    tightest: Cache<Tightest>,
}

impl AllCounts {
    /// Prepares the memory for a layout, all zero except the leaves, which the caller fills.
    pub(crate) fn reset(&mut self, layout: &Layout) -> &mut Vec<Counts> {
        let depth = layout.depth();
        self.undo.clear();
        self.narrowed.clear();
        self.scores.clear();
        self.tightest.0.reset(depth);
        self.levels.resize_with(depth, Vec::new);
        for (level, counts) in self.levels.iter_mut().enumerate() {
            counts.clear();
            counts.reserve(layout.len(level));
        }
        &mut self.levels[depth - 1]
    }

    /// The counts of a level.
    pub(crate) fn level(&self, level: usize) -> &[Counts] {
        &self.levels[level]
    }

    /// The score of a domain by preferred node affinity.
    pub(crate) fn score(&self, level: usize, at: usize) -> i64 {
        self.scores.get(level).and_then(|scores| scores.get(at)).copied().unwrap_or(0)
    }

    /// Whether some domains are worth more than others.
    pub(crate) fn are_scored(&self) -> bool {
        !self.scores.is_empty()
    }

    /// Takes what leaves are worth; a domain is worth what its leaves are together.
    pub(crate) fn set_scores(&mut self, layout: &Layout, leaves: Vec<i64>) {
        self.scores.clear();
        if leaves.iter().all(|score| *score == 0) {
            return;
        }
        let mut levels = vec![leaves];
        for level in (0..layout.depth() - 1).rev() {
            let below = &levels[levels.len() - 1];
            let of = |at| {
                below[layout.children(level, at)].iter().fold(0, |sum: i64, one| sum.saturating_add(*one))
            };
            levels.push((0..layout.len(level)).map(of).collect());
        }
        levels.reverse();
        self.scores = levels;
    }

    /// Whether [`AllCounts::tightest`] gives the domain that is the best in either order: no leader fits anywhere, all are worth the same, and
    /// no search has changed anything, which the orders would not follow.
    pub(crate) fn are_in_order(&self) -> bool {
        !self.are_scored() && self.undo.is_empty() && self.levels[0].iter().all(|counts| counts.leaders == 0)
    }

    /// The domain of a level with the fewest slices that holds this number, then the one with the fewest pods, then the first.
    pub(crate) fn tightest(&mut self, level: usize, slices: i64) -> Option<usize> {
        self.tightest.0.at_least(level, &self.levels[level], slices)
    }

    /// How many domains were visited to order levels since this was asked for last.
    pub(crate) fn take_ordered(&mut self) -> u64 {
        std::mem::take(&mut self.tightest.0.visited)
    }

    /// How many slices fit into the domain of a level with most. `None`: the domains are not in order.
    pub(crate) fn largest_room(&self, level: usize) -> Option<i64> {
        self.tightest.0.largest_room(level).filter(|_| self.are_in_order())
    }

    /// The domains of a level that hold so many slices together, in either order, and how many slices have no room: see [`Tightest::together`]. `None`:
    /// they are not in order.
    pub(crate) fn together(&self, level: usize, slices: i64, smallest: bool) -> Option<(Vec<usize>, i64)> {
        self.tightest.0.together(level, slices, smallest).filter(|_| self.are_in_order())
    }

    /// The counts of a domain, for a search to change them.
    pub(crate) fn at_mut(&mut self, level: usize, at: usize) -> &mut Counts {
        let counts = &mut self.levels[level][at];
        self.undo.push((level, at, *counts));
        counts
    }

    /// How many changes searches have made that are not taken back.
    pub(crate) fn mark(&self) -> usize {
        self.undo.len()
    }

    /// Takes back what searches changed since a mark.
    pub(crate) fn revert_to(&mut self, mark: usize) {
        for (level, at, counts) in self.undo.drain(mark..).rev() {
            self.levels[level][at] = counts;
        }
    }

    /// Takes back what searches changed.
    pub(crate) fn revert(&mut self) {
        self.revert_to(0);
    }

    /// The counts of a leaf have changed; [`AllCounts::sum_up_above`] has to follow. Returns its counts before and after.
    pub(crate) fn set_leaf(&mut self, leaf: usize, mut counts: Counts, ask: &Ask) -> (Counts, Counts) {
        let lowest = self.levels.len() - 1;
        if ask.slice_level == lowest {
            count_slices(&mut counts, ask.size);
        }
        (self.set(lowest, leaf, counts), counts)
    }

    /// A leaf comes with domains around it, into which nothing fits yet; [`AllCounts::set_leaf`] follows.
    pub(crate) fn insert_leaf(&mut self, leaf: usize, around: &Around) {
        for &(level, at) in around.iter().chain([&(self.levels.len() - 1, leaf)]) {
            self.levels[level].insert(at, Counts::default());
            self.tightest.0.insert(level, at);
        }
    }

    /// A leaf is gone, and domains around it are; [`AllCounts::sum_up_above`] a leaf near it follows.
    pub(crate) fn remove_leaf(&mut self, leaf: usize, around: &Around) {
        for &(level, at) in around.iter().chain([&(self.levels.len() - 1, leaf)]) {
            let counts = self.levels[level].remove(at);
            self.tightest.0.remove(level, at, &counts);
        }
    }

    fn set(&mut self, level: usize, at: usize, counts: Counts) -> Counts {
        let before = std::mem::replace(&mut self.levels[level][at], counts);
        self.tightest.0.changed(level, at, &before, &counts);
        before
    }

    /// Leaves out leaves, which are in order, until [`AllCounts::widen`]: nothing fits there.
    pub(crate) fn leave_out(&mut self, layout: &Layout, ask: &Ask, mut leaves: Vec<usize>) {
        let lowest = layout.depth() - 1;
        let mut narrowed = std::mem::take(&mut self.narrowed);
        for &leaf in &leaves {
            narrowed.push((lowest, leaf, self.set(lowest, leaf, Counts::default())));
        }
        self.sum_above(layout, ask, &mut leaves, |level, at, before| narrowed.push((level, at, before)));
        self.narrowed = narrowed;
    }

    /// Leaves out what is not in one domain, which has these leaves, from the counts of the domains around it, until [`AllCounts::widen`]. Returns for each
    /// level the domains that are left: of others the counts are as they were.
    pub(crate) fn keep_only(
        &mut self,
        layout: &Layout,
        ask: &Ask,
        leaves: Range<usize>,
    ) -> Vec<Range<usize>> {
        let ranges = layout.around(leaves);
        let mut differs = false;
        for level in (0..layout.depth() - 1).rev() {
            let (at, below) = (ranges[level].start, ranges[level + 1].clone());
            differs |= ranges[level].len() == 1 && layout.children(level, at) != below;
            if differs {
                let counts = sum(&self.levels[level + 1][below], ask, level, ask.portions[level + 1]);
                let before = self.set(level, at, counts);
                self.narrowed.push((level, at, before));
            }
        }
        ranges
    }

    /// No leaves are left out any more.
    pub(crate) fn widen(&mut self) {
        while let Some((level, at, counts)) = self.narrowed.pop() {
            self.set(level, at, counts);
        }
    }

    /// Computes the sums above some leaves anew; the leaves are in order.
    pub(crate) fn sum_up_above(&mut self, layout: &Layout, ask: &Ask, leaves: &mut Vec<usize>) {
        self.sum_above(layout, ask, leaves, |_, _, _| {});
    }

    /// The same; tells level, position and counts before of each domain that is computed.
    fn sum_above(
        &mut self,
        layout: &Layout,
        ask: &Ask,
        leaves: &mut Vec<usize>,
        mut changed: impl FnMut(usize, usize, Counts),
    ) {
        for level in (0..layout.depth() - 1).rev() {
            for at in leaves.iter_mut() {
                *at = layout.ancestor_from(level + 1, *at, level);
            }
            leaves.dedup();
            for &at in &*leaves {
                let children = &self.levels[level + 1][layout.children(level, at)];
                let counts = sum(children, ask, level, ask.portions[level + 1]);
                changed(level, at, self.set(level, at, counts));
            }
        }
    }

    /// Sums up from the leaves to the highest level.
    pub(crate) fn sum_up(&mut self, layout: &Layout, ask: &Ask) {
        let lowest = layout.depth() - 1;
        if ask.slice_level == lowest {
            for counts in &mut self.levels[lowest] {
                count_slices(counts, ask.size);
            }
        }
        for level in (0..lowest).rev() {
            let (above, below) = self.levels.split_at_mut(level + 1);
            let of = |at| sum(&below[0][layout.children(level, at)], ask, level, ask.portions[level + 1]);
            above[level].extend((0..layout.len(level)).map(of));
        }
    }

    /// Computes the sums of one subtree again from its leaves, without inner layers of slices, as balanced placement does.
    pub(crate) fn sum_up_below(&mut self, layout: &Layout, ask: &Ask, level: usize, at: usize) {
        for child in layout.children(level, at) {
            self.sum_up_below(layout, ask, level + 1, child);
        }
        if level + 1 < layout.depth() {
            let children = layout.children(level, at);
            let summed = sum(&self.levels[level + 1][children], ask, level, 1);
            *self.at_mut(level, at) = summed;
        } else if ask.slice_level == level {
            count_slices(self.at_mut(level, at), ask.size);
        }
    }

    /// Applies a change to a domain and to all below it.
    pub(crate) fn change(&mut self, layout: &Layout, level: usize, at: usize, change: fn(&mut Counts)) {
        change(self.at_mut(level, at));
        for child in layout.children(level, at) {
            self.change(layout, level + 1, child, change);
        }
    }
}

fn count_slices(counts: &mut Counts, size: i64) {
    if size == 1 {
        counts.slices = counts.pods;
        counts.slices_led = counts.pods_led;
    } else {
        counts.slices = counts.pods / size;
        counts.slices_led = counts.pods_led / size;
    }
}

/// How much fits into a domain, from how much fits into its children. Children take pods in portions. A leader is placed in the child that loses
/// least by it.
fn sum(children: &[Counts], ask: &Ask, level: usize, portion: i64) -> Counts {
    let mut total = Counts::default();
    let (mut pods_lost, mut slices_lost) = (None::<i64>, None::<i64>);
    for child in children {
        let (pods, pods_led) = (whole(child.pods, portion), whole(child.pods_led, portion));
        total.pods += pods;
        total.slices += child.slices;
        total.leaders = total.leaders.max(child.leaders);
        if ask.leaders == 0 || child.leaders > 0 {
            let (pods, slices) = (pods - pods_led, child.slices - child.slices_led);
            pods_lost = Some(pods_lost.map_or(pods, |lost| lost.min(pods)));
            slices_lost = Some(slices_lost.map_or(slices, |lost| lost.min(slices)));
        }
    }
    total.pods_led = pods_lost.map_or(0, |lost| total.pods - lost);
    total.slices_led = slices_lost.map_or(0, |lost| total.slices - lost);
    if level == ask.slice_level {
        count_slices(&mut total, ask.size);
    }
    total
}

fn whole(pods: i64, portion: i64) -> i64 {
    if portion == 1 { pods } else { pods / portion * portion }
}
