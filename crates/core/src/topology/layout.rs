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

    /// The leaf at a place.
    pub(crate) fn leaf(&self, place: PlaceId) -> Option<usize> {
        let at = self.by_place.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(self.by_place[at].1)
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
