//! A flavor's domains as dense arrays, level by level, in the order of their values: the position of a domain is its rank, and the
//! children of a domain lie side by side.

use std::ops::Range;

use smallvec::SmallVec;

use crate::intern::{HostId, PlaceId};
use crate::topology::places::Path;
use crate::topology::positions::Positions;

/// One level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Level {
    /// For each domain the position of its parent in the level above.
    parents: Vec<usize>,
    /// For each domain the start of its children in the level below; one more entry has the last one's end. Empty at the lowest level.
    children: Vec<usize>,
    /// For each domain how many of its leaves take pods. Empty at the lowest level.
    open: Vec<usize>,
}

/// One leaf, as [`Layout::new`] takes it.
#[derive(Debug)]
pub(crate) struct LeafRow<'a> {
    /// The values of all levels.
    pub(crate) path: &'a Path,
    /// Its place.
    pub(crate) place: PlaceId,
    /// The node whose labels and taints count.
    pub(crate) host: HostId,
    /// It takes no pods, as if it were not there.
    pub(crate) closed: bool,
}

/// Domains that come or go with a leaf: the level and the position of each, from the highest.
pub(crate) type Around = SmallVec<[(usize, usize); 2]>;

/// A leaf that is gone.
#[derive(Debug, Clone)]
pub(crate) struct Removed {
    /// Where it was.
    pub(crate) at: usize,
    /// The domains around it that are gone, where they were.
    pub(crate) around: Around,
    /// A leaf of the lowest domain around it that is left, as the leaves are now.
    pub(crate) near: Option<usize>,
}

/// All domains of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    levels: Vec<Level>,
    /// For each leaf, its place.
    pub(crate) places: Vec<PlaceId>,
    /// For each leaf, the node whose labels and taints count.
    pub(crate) hosts: Vec<HostId>,
    /// For each leaf, the values of all levels.
    pub(crate) paths: Vec<Path>,
    /// For each leaf, whether it takes no pods, as if it were not there.
    closed: Vec<bool>,
    /// How many of them do not.
    open: usize,
    /// Where they are, by place.
    by_place: Positions,
}

impl Layout {
    /// Lays out leaves that come in the order of their paths.
    pub(crate) fn new<'a>(depth: usize, leaves: impl Iterator<Item = LeafRow<'a>>) -> Layout {
        let mut layout = Layout { levels: vec![Level::default(); depth], ..Layout::default() };
        for leaf in leaves {
            layout.push(depth, &leaf);
        }
        for at in 1..depth {
            let end = layout.levels[at].parents.len();
            layout.levels[at - 1].children.push(end);
        }
        for (at, &place) in layout.places.iter().enumerate() {
            layout.by_place.put(place, at);
        }
        layout
    }

    /// One more leaf comes, maybe with domains around it: its position, and those of these domains. `None`: there are no levels.
    pub(crate) fn insert(&mut self, leaf: &LeafRow<'_>) -> Option<(usize, Around)> {
        let at = self.paths.partition_point(|other| other < leaf.path);
        let lowest = self.depth().checked_sub(1)?;
        let shared = |other: &usize| {
            let same = self.paths[*other].iter().zip(leaf.path.iter()).take_while(|(a, b)| a == b);
            same.count().min(lowest)
        };
        let (before, after) = (at.checked_sub(1), Some(at).filter(|at| *at < self.paths.len()));
        let near = before.into_iter().chain(after).max_by_key(shared);
        // The domains of so many levels are there.
        let known = near.as_ref().map_or(0, shared);
        let mut parent = match (near, known.checked_sub(1)) {
            (Some(near), Some(level)) => self.ancestor(near, level),
            _ => 0,
        };
        let place = |level: usize| (level, before.map_or(0, |before| self.ancestor(before, level) + 1));
        let around: Around = (known..lowest).map(place).collect();
        for (level, place) in around.iter().copied().chain([(lowest, at)]) {
            self.insert_domain(level, place, parent);
            parent = place;
        }
        self.places.insert(at, leaf.place);
        self.hosts.insert(at, leaf.host);
        self.paths.insert(at, leaf.path.clone());
        self.closed.insert(at, leaf.closed);
        if !leaf.closed {
            self.count_open(at, |open| *open += 1);
        }
        self.by_place.make_room(at);
        self.by_place.put(leaf.place, at);
        Some((at, around))
    }

    /// A domain without children comes.
    fn insert_domain(&mut self, level: usize, at: usize, parent: usize) {
        self.levels[level].parents.insert(at, parent);
        if let Some(above) = level.checked_sub(1) {
            self.levels[above].children[parent + 1..].iter_mut().for_each(|begin| *begin += 1);
        }
        if level + 1 < self.levels.len() {
            let begin = self.levels[level].children[at];
            self.levels[level].children.insert(at, begin);
            self.levels[level].open.insert(at, 0);
            let below = &mut self.levels[level + 1].parents;
            below.iter_mut().filter(|parent| **parent >= at).for_each(|parent| *parent += 1);
        }
    }

    /// The leaf at a place goes, with the domains that have no other one.
    pub(crate) fn remove(&mut self, place: PlaceId) -> Option<Removed> {
        let at = self.leaf(place)?;
        let lowest = self.depth().checked_sub(1)?;
        let alone = |level: &usize| self.leaves(*level, self.ancestor(at, *level)).len() == 1;
        let left = (0..lowest).take_while(|level| !alone(level)).count();
        let around: Around = (left..lowest).map(|level| (level, self.ancestor(at, level))).collect();
        let near = left.checked_sub(1).map(|level| {
            let has_next = self.leaves(level, self.ancestor(at, level)).end > at + 1;
            if has_next { at } else { at - 1 }
        });
        if !self.closed[at] {
            self.count_open(at, |open| *open -= 1);
        }
        for &(level, gone) in around.iter().chain([&(lowest, at)]).rev() {
            self.remove_domain(level, gone);
        }
        self.places.remove(at);
        self.hosts.remove(at);
        self.paths.remove(at);
        self.closed.remove(at);
        self.by_place.take(place, at);
        Some(Removed { at, around, near })
    }

    /// A domain without children goes.
    fn remove_domain(&mut self, level: usize, at: usize) {
        let parent = self.levels[level].parents.remove(at);
        if let Some(above) = level.checked_sub(1) {
            self.levels[above].children[parent + 1..].iter_mut().for_each(|begin| *begin -= 1);
        }
        if level + 1 < self.levels.len() {
            self.levels[level].children.remove(at);
            self.levels[level].open.remove(at);
            let below = &mut self.levels[level + 1].parents;
            below.iter_mut().filter(|parent| **parent > at).for_each(|parent| *parent -= 1);
        }
    }

    /// The leaf at a place.
    pub(crate) fn leaf(&self, place: PlaceId) -> Option<usize> {
        self.by_place.get(place)
    }

    /// The labels and taints of another node count at a place.
    pub(crate) fn set_host(&mut self, place: PlaceId, host: HostId) {
        if let Some(leaf) = self.leaf(place) {
            self.hosts[leaf] = host;
        }
    }

    /// The leaf at a place takes no pods any more, or takes them again.
    pub(crate) fn set_closed(&mut self, place: PlaceId, closed: bool) {
        let Some(leaf) = self.leaf(place).filter(|&leaf| self.closed[leaf] != closed) else { return };
        self.closed[leaf] = closed;
        self.count_open(leaf, |open| *open = if closed { *open - 1 } else { *open + 1 });
    }

    /// One leaf more takes pods, or one less.
    fn count_open(&mut self, leaf: usize, count: impl Fn(&mut usize)) {
        count(&mut self.open);
        let mut at = leaf;
        for level in (1..self.levels.len()).rev() {
            at = self.levels[level].parents[at];
            count(&mut self.levels[level - 1].open[at]);
        }
    }

    /// Whether a leaf takes no pods.
    pub(crate) fn is_closed(&self, leaf: usize) -> bool {
        self.closed[leaf]
    }

    /// How many leaves take pods.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Whether all leaves do.
    pub(crate) fn is_all_open(&self) -> bool {
        self.open == self.places.len()
    }

    /// Whether a domain has a leaf that takes pods: one that has none counts for nothing.
    pub(crate) fn has_open(&self, level: usize, at: usize) -> bool {
        self.levels[level].open.get(at).map_or_else(|| !self.closed[at], |open| *open > 0)
    }

    fn push(&mut self, depth: usize, leaf: &LeafRow<'_>) {
        let same = |before: &Path| before.iter().zip(leaf.path.iter()).take_while(|(a, b)| a == b).count();
        let shared = self.paths.last().map_or(0, same).min(depth.saturating_sub(1));
        for at in shared..depth {
            let parent = at.checked_sub(1).map_or(0, |above| self.levels[above].parents.len() - 1);
            if let Some(below) = self.levels.get(at + 1) {
                let begin = below.parents.len();
                self.levels[at].children.push(begin);
                self.levels[at].open.push(0);
            }
            self.levels[at].parents.push(parent);
        }
        self.places.push(leaf.place);
        self.hosts.push(leaf.host);
        self.paths.push(leaf.path.clone());
        self.closed.push(leaf.closed);
        if !leaf.closed {
            self.count_open(self.closed.len() - 1, |open| *open += 1);
        }
    }

    /// How many levels there are.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// How many domains a level has.
    pub(crate) fn len(&self, level: usize) -> usize {
        self.levels[level].parents.len()
    }

    /// The children of a domain: positions in the level below, none at the lowest.
    pub(crate) fn children(&self, level: usize, at: usize) -> Range<usize> {
        let begins = &self.levels[level].children;
        match (begins.get(at), begins.get(at + 1)) {
            (Some(&begin), Some(&end)) => begin..end,
            _ => 0..0,
        }
    }

    /// The leaves of a domain.
    pub(crate) fn leaves(&self, level: usize, at: usize) -> Range<usize> {
        self.below(level, at, self.depth().saturating_sub(1))
    }

    /// The domains of a level, which is not above it, in a domain.
    pub(crate) fn below(&self, level: usize, at: usize, lower: usize) -> Range<usize> {
        let mut range = at..at + 1;
        for above in level..lower {
            let first = self.children(above, range.start);
            let last = self.children(above, range.end - 1);
            range = first.start..last.end;
        }
        range
    }

    /// For each level the domains that leaves which lie side by side are in.
    pub(crate) fn around(&self, leaves: Range<usize>) -> Vec<Range<usize>> {
        let mut ranges = vec![leaves];
        for level in (1..self.depth()).rev() {
            let (below, parents) = (&ranges[ranges.len() - 1], &self.levels[level].parents);
            let last = below.clone().next_back().map_or(0, |last| parents[last] + 1);
            let first = below.clone().next().map_or(last, |first| parents[first]);
            ranges.push(first..last);
        }
        ranges.reverse();
        ranges
    }

    /// The domain of a level that a leaf is in.
    pub(crate) fn ancestor(&self, leaf: usize, level: usize) -> usize {
        self.ancestor_from(self.depth().saturating_sub(1), leaf, level)
    }

    /// The domain of a level that a domain of the level `from`, which is not above it, is in.
    pub(crate) fn ancestor_from(&self, from: usize, mut at: usize, level: usize) -> usize {
        for below in (level + 1..=from).rev() {
            at = self.levels[below].parents[at];
        }
        at
    }
}
