//! Slices that move whole because nodes of theirs were lost and have no replacement in their domain (ours: docs/concepts/hotswap.md).
//!
//! Pods have ranks by the order of the domains in their assignment, and a slice is a fixed number of ranks in a row. The slices that move get other
//! domains at the same ranks, so that all other pods keep their ranks and their nodes.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::topology::placer::{InLeaves, Part, Placer};
use crate::topology::replace::broken_layer;
use crate::topology::request::PodSetToPlace;
use crate::topology::spec::{RequestedLevel, SliceMoves, TopologyRequest};

/// Pods with consecutive ranks in one leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    /// Their leaf; none if it is lost.
    pub(crate) leaf: Option<usize>,
    /// How many.
    pub(crate) count: i64,
}

/// Rows, each of them within one slice, which is numbered by rank.
type Pieces = Vec<(i64, Row)>;

/// The slice that all lost pods are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceOfLost {
    /// Whether all its pods are lost.
    pub(crate) is_whole: bool,
}

impl SliceOfLost {
    /// The one of slices of a size; `None`: no pods are lost, or pods of several.
    pub(crate) fn of(rows: &[Row], size: i64) -> Option<SliceOfLost> {
        let mut rank = 0_i64;
        let span = |row: &Row| {
            let first = rank;
            rank = rank.saturating_add(row.count);
            (row.leaf, first / size, (rank - 1) / size)
        };
        let spans: Vec<_> = rows.iter().filter(|row| row.count > 0 && size > 0).map(span).collect();
        let lost = spans.iter().filter(|(leaf, ..)| leaf.is_none());
        let mut lost = lost.flat_map(|&(_, first, last)| [first, last]);
        let slice = lost.next()?;
        let has = |&(leaf, first, last): &(Option<usize>, i64, i64)| {
            leaf.is_some() && (first..=last).contains(&slice)
        };
        lost.all(|other| other == slice).then(|| SliceOfLost { is_whole: !spans.iter().any(has) })
    }
}

/// The rows with other leaves in place of the lost ones; `None` if one leaf would have ranks that are not consecutive: an assignment names each
/// domain once.
pub(crate) fn filled(rows: &[Row], found: &InLeaves) -> Option<InLeaves> {
    let pieces: Pieces = rows.iter().map(|&row| (0, row)).collect();
    put(&pieces, |_, row| row.leaf.is_none(), found)
}

/// The pieces with other leaves in place of those that `go`; `None` as with [`filled`].
fn put(pieces: &Pieces, go: impl Fn(i64, &Row) -> bool, found: &InLeaves) -> Option<InLeaves> {
    let mut found = found.iter().copied();
    let mut next = (0, 0);
    let mut leaves: InLeaves = Vec::new();
    let mut push = |leaf: usize, count: i64| match leaves.last_mut() {
        Some((last, total)) if *last == leaf => *total = total.saturating_add(count),
        _ => leaves.push((leaf, count)),
    };
    for (slice, row) in pieces.iter().filter(|(_, row)| row.count > 0) {
        if !go(*slice, row) {
            push(row.leaf?, row.count);
            continue;
        }
        let mut left = row.count;
        while left > 0 {
            if next.1 == 0 {
                next = found.next().filter(|(_, count)| *count > 0)?;
            }
            let taken = left.min(next.1);
            push(next.0, taken);
            next.1 -= taken;
            left -= taken;
        }
    }
    let distinct: BTreeSet<usize> = leaves.iter().map(|&(leaf, _)| leaf).collect();
    (distinct.len() == leaves.len()).then_some(leaves)
}

/// Rows cut where slices of a size end.
fn cut(rows: &[Row], size: i64) -> Pieces {
    let mut pieces = Vec::new();
    let mut rank = 0_i64;
    for row in rows {
        let mut left = row.count;
        while left > 0 {
            let taken = left.min(size - rank % size);
            pieces.push((rank / size, Row { count: taken, ..*row }));
            rank = rank.saturating_add(taken);
            left -= taken;
        }
    }
    pieces
}

/// A leaf with pods of a slice that has lost some of the others.
pub(crate) fn leaf_of_broken(rows: &[Row], size: i64) -> Option<usize> {
    let pieces = cut(rows, size);
    let broken: BTreeSet<i64> =
        pieces.iter().filter(|(_, row)| row.leaf.is_none()).map(|(slice, _)| *slice).collect();
    pieces.iter().filter(|(slice, _)| broken.contains(slice)).find_map(|(_, row)| row.leaf)
}

impl Placer<'_> {
    /// What prevents that slices of a pod set go elsewhere, where slices move.
    pub(crate) fn objection(
        &self,
        pod_set: &PodSetToPlace<'_>,
        request: &TopologyRequest,
    ) -> Option<Box<str>> {
        if let SliceMoves::Refused(why) = self.slice_moves {
            return Some((&**why).into());
        }
        // The leader is with one of the slices.
        let leaves_it = pod_set.spec.group.is_some() && !matches!(request.level, RequestedLevel::Required(_));
        leaves_it.then(|| "its pod set is placed together with another one".into())
    }

    /// Finds another domain for each slice that lost pods: returns the places of all pods of the pod set, by rank, and of those that move. Of several
    /// layers of slices the innermost for which there is room moves, within the domain of the layer around it. Fails with the reason if none moves.
    pub(crate) fn move_slices(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        lost: i64,
        rows: &[Row],
    ) -> Result<(InLeaves, InLeaves), Option<Box<str>>> {
        let Some(request) = pod_set.request.filter(|_| *self.slice_moves != SliceMoves::Off) else {
            return Err(None);
        };
        let innermost = broken_layer(&request.slices, lost)
            .and_then(|broken| request.slices.iter().position(|layer| layer == broken));
        let Some(innermost) = innermost else { return Err(None) };
        if let Some(why) = self.objection(pod_set, request) {
            return Err(Some(why));
        }
        let mut why = String::new();
        for layer in (0..=innermost).rev() {
            match self.move_layer(pod_set, request, layer, rows) {
                Ok(found) => return Ok(found),
                Err(text) => why = text,
            }
        }
        Err(Some(why.into()))
    }

    /// The same for the slices of one layer.
    fn move_layer(
        &mut self,
        pod_set: &PodSetToPlace<'_>,
        request: &TopologyRequest,
        at: usize,
        rows: &[Row],
    ) -> Result<(InLeaves, InLeaves), String> {
        let layer = &request.slices[at];
        let Some(level) = self.tree.level(&layer.level).filter(|_| layer.size > 0) else {
            return Err(format!("the topology has no level {}", layer.level));
        };
        let pieces = cut(rows, layer.size);
        let lost = pieces.iter().filter(|(_, row)| row.leaf.is_none());
        let broken: BTreeSet<i64> = lost.map(|(slice, _)| *slice).collect();
        let (of_broken, others): (Pieces, Pieces) =
            pieces.iter().partition(|(slice, _)| broken.contains(slice));
        let count = of_broken.iter().fold(0_i64, |sum, (_, row)| sum.saturating_add(row.count));
        let domain = |row: &Row| row.leaf.map(|leaf| self.layout.ancestor(leaf, level));
        let homes: BTreeSet<usize> = of_broken.iter().filter_map(|(_, row)| domain(row)).collect();
        let is_whole =
            |pair: &[(i64, Row)]| pair[0].0 != pair[1].0 || domain(&pair[0].1) == domain(&pair[1].1);
        let (Some(&home), 1, true) = (homes.first(), homes.len(), others.windows(2).all(is_whole)) else {
            return Err(format!("its pods are not in whole slices of the level {}", layer.level));
        };
        let pods = pieces.iter().fold(0_i64, |sum, (_, row)| sum.saturating_add(row.count));
        // The last slice need not be whole.
        let has = |slice: &i64| layer.size.min(pods.saturating_sub(slice.saturating_mul(layer.size)));
        if broken.iter().map(has).fold(0, i64::saturating_add) != count {
            return Err(format!("its pods are not in whole slices of {}", layer.size));
        }
        let own = self.layout.leaves(level, home);
        let taken: BTreeSet<usize> = others.iter().filter_map(|(_, row)| row.leaf).chain(own).collect();
        let without: Vec<usize> = taken.into_iter().collect();
        let above = match (at.checked_sub(1).and_then(|above| request.slices.get(above)), &request.level) {
            (Some(around), _) => Some(&around.level),
            (None, RequestedLevel::Required(required)) => Some(required),
            (None, _) => None,
        };
        let mut why = None;
        for within in self.nearest_first((level, home), above.and_then(|above| self.tree.level(above))) {
            let request =
                TopologyRequest { level: request.level.clone(), slices: request.slices[at..].to_vec() };
            let part = Part { pod_set, request: Some(&request), count, within, without: &without };
            match self.place(&part, None) {
                Ok((found, _)) => {
                    if let Some(leaves) = put(&pieces, |slice, _| broken.contains(&slice), &found) {
                        self.assume(&found, pod_set.per_pod);
                        return Ok((leaves, found));
                    }
                }
                Err(failure) => why = Some(failure.message()),
            }
        }
        Err(why.unwrap_or_else(|| {
            let level = above.unwrap_or(&layer.level);
            format!("it has to stay in its domain of the level {level}")
        }))
    }

    /// The leaves of the domains around one, the nearest first, up to the level `top`, or all.
    fn nearest_first(&self, (level, home): (usize, usize), top: Option<usize>) -> Vec<Option<Range<usize>>> {
        let around = |above| self.layout.leaves(above, self.layout.ancestor_from(level, home, above));
        let mut ranges: Vec<_> = (top.unwrap_or(0)..level).rev().map(|above| Some(around(above))).collect();
        if top.is_none() {
            ranges.push(None);
        }
        ranges
    }
}
