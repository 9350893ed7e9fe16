//! A flavor's domains as dense arrays, level by level, in the order of their values: the position of a domain is its rank, and the
//! children of a domain lie side by side.

use std::ops::Range;

use crate::intern::{HostId, PlaceId};
use crate::topology::places::Path;

/// One level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Level {
    /// For each domain the position of its parent in the level above.
    parents: Vec<usize>,
    /// For each domain the start of its children in the level below; one more entry has the last one's end. Empty at the lowest level.
    children: Vec<usize>,
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
    /// The leaves in the order of their places.
    by_place: Vec<(PlaceId, usize)>,
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
        layout.by_place = layout.places.iter().copied().zip(0..).collect();
        layout.by_place.sort_unstable();
        layout
    }

    /// One more leaf comes into a domain that is there: its position. `None`: a domain comes with it, and all are to be laid out again.
    pub(crate) fn insert(&mut self, leaf: &LeafRow<'_>) -> Option<usize> {
        let at = self.paths.partition_point(|other| other < leaf.path);
        let lowest = self.depth().checked_sub(1)?;
        let is_sibling = |at: &usize| {
            let other = self.paths.get(*at);
            other.is_some_and(|other| other[..lowest] == leaf.path[..lowest])
        };
        let sibling = at.checked_sub(1).filter(is_sibling).or(Some(at).filter(is_sibling))?;
        let parent = self.levels[lowest].parents[sibling];
        self.levels[lowest].parents.insert(at, parent);
        if let Some(above) = lowest.checked_sub(1) {
            self.levels[above].children[parent + 1..].iter_mut().for_each(|begin| *begin += 1);
        }
        self.places.insert(at, leaf.place);
        self.hosts.insert(at, leaf.host);
        self.paths.insert(at, leaf.path.clone());
        self.closed.insert(at, leaf.closed);
        self.open += usize::from(!leaf.closed);
        self.by_place.iter_mut().filter(|(_, other)| *other >= at).for_each(|(_, other)| *other += 1);
        let by_place = self.by_place.partition_point(|(place, _)| *place < leaf.place);
        self.by_place.insert(by_place, (leaf.place, at));
        Some(at)
    }

    /// The leaf at a place goes: its position, and that of a sibling once it is gone. `None`: a domain goes with it, and all are to be laid out
    /// again.
    pub(crate) fn remove(&mut self, place: PlaceId) -> Option<(usize, usize)> {
        let at = self.leaf(place)?;
        let lowest = self.depth().checked_sub(1)?;
        let parents = &self.levels[lowest].parents;
        let parent = parents[at];
        let next = parents.get(at + 1).is_some_and(|other| *other == parent).then_some(at);
        let sibling = next.or_else(|| at.checked_sub(1).filter(|before| parents[*before] == parent))?;
        self.levels[lowest].parents.remove(at);
        if let Some(above) = lowest.checked_sub(1) {
            self.levels[above].children[parent + 1..].iter_mut().for_each(|begin| *begin -= 1);
        }
        self.places.remove(at);
        self.hosts.remove(at);
        self.paths.remove(at);
        self.open -= usize::from(!self.closed.remove(at));
        self.by_place.retain(|(other, _)| *other != place);
        self.by_place.iter_mut().filter(|(_, other)| *other > at).for_each(|(_, other)| *other -= 1);
        Some((at, sibling))
    }

    /// The leaf at a place.
    pub(crate) fn leaf(&self, place: PlaceId) -> Option<usize> {
        let at = self.by_place.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(self.by_place[at].1)
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
        self.open = if closed { self.open - 1 } else { self.open + 1 };
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
        self.is_all_open() || self.leaves(level, at).any(|leaf| !self.closed[leaf])
    }

    fn push(&mut self, depth: usize, leaf: &LeafRow<'_>) {
        let same = |before: &Path| before.iter().zip(leaf.path.iter()).take_while(|(a, b)| a == b).count();
        let shared = self.paths.last().map_or(0, same).min(depth.saturating_sub(1));
        for at in shared..depth {
            let parent = at.checked_sub(1).map_or(0, |above| self.levels[above].parents.len() - 1);
            if let Some(below) = self.levels.get(at + 1) {
                let begin = below.parents.len();
                self.levels[at].children.push(begin);
            }
            self.levels[at].parents.push(parent);
        }
        self.places.push(leaf.place);
        self.hosts.push(leaf.host);
        self.paths.push(leaf.path.clone());
        self.closed.push(leaf.closed);
        self.open += usize::from(!leaf.closed);
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
        let mut range = at..at + 1;
        for above in level..self.depth().saturating_sub(1) {
            let first = self.children(above, range.start);
            let last = self.children(above, range.end - 1);
            range = first.start..last.end;
        }
        range
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
