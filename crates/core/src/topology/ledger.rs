//! What every place offers and what is used of it, with a journal to try things and take them back
//! (docs/reference/06-algorithm.md 6.12 "free").

use crate::intern::{PlaceId, ResourceId};
use crate::topology::columns::{Columns, PODS_COLUMN};
use crate::topology::request::PlacedPods;

/// A point to roll back to.
#[must_use]
#[derive(Debug)]
pub(crate) struct TopologyMark(usize);

/// Amounts per (place, resource), row by row. Sums are exact (128 bits), so that what was added can be removed again; what placement
/// reads is held besides, saturated to 64 bits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    columns: Columns,
    /// How long a row is.
    stride: usize,
    /// What nodes offer, less the usage of pods outside of topologies.
    bare: Vec<i128>,
    /// The usage of placed pods.
    used: Vec<i128>,
    /// `bare - used`, saturated.
    free: Vec<i64>,
    /// `bare`, saturated.
    empty: Vec<i64>,
    /// (place, column, what was used before).
    journal: Vec<(PlaceId, usize, i128)>,
    trying: usize,
    changes: Changes,
}

/// Places whose free amounts have changed, in order. The oldest are forgotten.
#[derive(Clone, Default)]
struct Changes {
    places: Vec<PlaceId>,
    /// How many were forgotten.
    forgotten: usize,
    /// By place: where those begin that came after its last change; 0 if it never changed.
    last: Vec<usize>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is free is the same, whatever the history.
        f.write_str("Changes")
    }
}

/// At least this number of changed places is kept.
const LEAST_CHANGED: usize = 4_096;

/// Values that [`Ledger::assume`] replaced: (position, free, empty).
#[must_use]
#[derive(Debug)]
pub(crate) struct Assumed(Vec<(usize, i64, i64)>);

impl Assumed {
    /// Whether nothing was replaced.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Ledger {
    /// Whether it was said which resource is `pods`.
    pub(crate) fn knows_pods(&self) -> bool {
        self.columns.knows_pods()
    }

    /// Says which resource is `pods`. Must come before the resource is used.
    pub(crate) fn set_pods(&mut self, resource: ResourceId) {
        self.columns.set_pods(resource);
    }

    /// The column of a resource, if anything was ever offered or used of it.
    pub(crate) fn column(&self, resource: ResourceId) -> Option<usize> {
        self.columns.find(resource)
    }

    /// All resources that have a column.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.columns.resources()
    }

    /// Makes room for `places` places.
    pub(crate) fn grow(&mut self, places: usize) {
        self.widen();
        let length = places.saturating_mul(self.stride);
        if length > self.bare.len() {
            self.bare.resize(length, 0);
            self.used.resize(length, 0);
            self.free.resize(length, 0);
            self.empty.resize(length, 0);
        }
    }

    /// Extends the rows to the number of columns.
    fn widen(&mut self) {
        let (old, new) = (self.stride, self.columns.len());
        if old >= new {
            return;
        }
        let stride = new.next_multiple_of(4);
        self.bare = widened(&self.bare, old, stride);
        self.used = widened(&self.used, old, stride);
        self.free = widened(&self.free, old, stride);
        self.empty = widened(&self.empty, old, stride);
        self.stride = stride;
    }

    fn column_to_write(&mut self, resource: ResourceId) -> usize {
        let column = self.columns.column(resource);
        self.widen();
        column
    }

    /// A place offers more of some resources, or less if `amounts` are negative.
    pub(crate) fn offer(&mut self, place: PlaceId, amounts: &[(ResourceId, i64)], sign: i128) {
        for &(resource, amount) in amounts {
            let column = self.column_to_write(resource);
            let at = place.at() * self.stride + column;
            self.bare[at] += i128::from(amount) * sign;
            self.derive(at);
        }
        self.note(place);
    }

    /// A place has changed.
    fn note(&mut self, place: PlaceId) {
        let places = self.free.len().checked_div(self.stride).unwrap_or(0);
        let changes = &mut self.changes;
        if changes.places.len() >= LEAST_CHANGED.max(places) {
            changes.forgotten += changes.places.len();
            changes.places.clear();
        }
        changes.places.push(place);
        if changes.last.len() <= place.at() {
            changes.last.resize(place.at() + 1, 0);
        }
        changes.last[place.at()] = changes.forgotten + changes.places.len();
    }

    /// Where the places that change from now on begin: for [`Ledger::changed_since`].
    pub(crate) fn position(&self) -> usize {
        self.changes.forgotten + self.changes.places.len()
    }

    /// The places whose free amounts have changed since a position, some of them repeatedly; `None` if that is not kept any more.
    pub(crate) fn changed_since(&self, position: usize) -> Option<&[PlaceId]> {
        self.changes.places.get(position.checked_sub(self.changes.forgotten)?..)
    }

    /// Whether the free amounts of a place have changed since a position.
    pub(crate) fn has_changed(&self, place: PlaceId, position: usize) -> bool {
        self.changes.last.get(place.at()).is_some_and(|&last| last > position)
    }

    /// Whether a trial is in progress that will be rolled back.
    pub(crate) fn is_tried(&self) -> bool {
        self.trying > 0
    }

    /// Pods take what they need of their places.
    pub(crate) fn add(&mut self, pods: &PlacedPods) {
        self.apply(pods, 1);
    }

    /// The exact inverse of [`Ledger::add`].
    pub(crate) fn remove(&mut self, pods: &PlacedPods) {
        self.apply(pods, -1);
    }

    fn apply(&mut self, pods: &PlacedPods, sign: i128) {
        for &(resource, _) in &pods.per_pod {
            self.column_to_write(resource);
        }
        for &(place, count) in &pods.places {
            let count = i128::from(count) * sign;
            self.book(place, PODS_COLUMN, count);
            for &(resource, amount) in &pods.per_pod {
                if let Some(column) = self.columns.find(resource) {
                    self.book(place, column, count * i128::from(amount));
                }
            }
            self.note(place);
        }
    }

    fn book(&mut self, place: PlaceId, column: usize, amount: i128) {
        let at = place.at() * self.stride + column;
        let before = self.used[at];
        if self.trying > 0 {
            self.journal.push((place, column, before));
        }
        self.used[at] = before + amount;
        self.derive(at);
    }

    fn derive(&mut self, at: usize) {
        self.free[at] = saturated(self.bare[at] - self.used[at]);
        self.empty[at] = saturated(self.bare[at]);
    }

    /// Starts to try something. Marks nest; each ends with [`Ledger::rollback`].
    pub(crate) fn mark(&mut self) -> TopologyMark {
        self.trying += 1;
        TopologyMark(self.journal.len())
    }

    /// Takes back all usage since the mark.
    pub(crate) fn rollback(&mut self, mark: &TopologyMark) {
        while self.journal.len() > mark.0 {
            if let Some((place, column, used)) = self.journal.pop() {
                let at = place.at() * self.stride + column;
                self.used[at] = used;
                self.derive(at);
                self.note(place);
            }
        }
        self.ended();
    }

    fn ended(&mut self) {
        self.trying = self.trying.saturating_sub(1);
        if self.trying == 0 {
            self.journal.clear();
        }
    }

    /// The free amounts of all places, as if no workload used anything if `empty`: rows of [`Ledger::stride`] values.
    pub(crate) fn view(&self, empty: bool) -> &[i64] {
        if empty { &self.empty } else { &self.free }
    }

    /// How long a row of [`Ledger::view`] is.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Whether this amount of a column is free at a place.
    pub(crate) fn has(&self, place: PlaceId, column: usize, amount: i128) -> bool {
        let at = place.at() * self.stride + column;
        self.bare[at] - self.used[at] >= amount
    }

    /// Takes pods off both views until [`Ledger::release`].
    pub(crate) fn assume(&mut self, pods: &PlacedPods, undo: &mut Assumed) {
        for &(resource, _) in &pods.per_pod {
            self.column_to_write(resource);
        }
        for &(place, count) in &pods.places {
            self.assume_at(place, PODS_COLUMN, count, undo);
            for &(resource, amount) in &pods.per_pod {
                if let Some(column) = self.columns.find(resource) {
                    self.assume_at(place, column, amount.saturating_mul(count), undo);
                }
            }
            self.note(place);
        }
    }

    fn assume_at(&mut self, place: PlaceId, column: usize, amount: i64, undo: &mut Assumed) {
        let at = place.at() * self.stride + column;
        undo.0.push((at, self.free[at], self.empty[at]));
        self.free[at] = self.free[at].saturating_sub(amount);
        self.empty[at] = self.empty[at].saturating_sub(amount);
    }

    /// Nothing assumed yet. Creates columns for everything that will be assumed, so that positions stay.
    pub(crate) fn nothing_assumed(&mut self, to_come: &[&[(ResourceId, i64)]]) -> Assumed {
        for &(resource, _) in to_come.iter().copied().flatten() {
            self.column_to_write(resource);
        }
        Assumed(Vec::new())
    }

    /// The exact inverse of all [`Ledger::assume`] since `undo` was made.
    pub(crate) fn release(&mut self, undo: Assumed) {
        for (at, free, empty) in undo.0.into_iter().rev() {
            self.free[at] = free;
            self.empty[at] = empty;
            if let Some(place) = at.checked_div(self.stride) {
                self.note(PlaceId::new(place));
            }
        }
    }

    /// Whether pods use anything of a place.
    pub(crate) fn is_used(&self, place: PlaceId) -> bool {
        let start = place.at() * self.stride;
        self.used[start..start + self.stride].iter().any(|&used| used != 0)
    }

    /// The same without usage, for checks.
    pub(crate) fn emptied(&self) -> Ledger {
        let mut emptied = self.clone();
        emptied.used.fill(0);
        emptied
    }

    /// The usage of a place, for checks.
    pub(crate) fn used_row(&self, place: PlaceId) -> &[i128] {
        let start = place.at() * self.stride;
        &self.used[start..start + self.stride]
    }

    /// What a place has without the usage of workloads, for checks: (column, amount).
    pub(crate) fn bare_row(&self, place: PlaceId) -> &[i128] {
        let start = place.at() * self.stride;
        &self.bare[start..start + self.stride]
    }

    /// Compares what placement reads with its sources.
    pub(crate) fn audit(&self, found: &mut Vec<String>) {
        for at in 0..self.bare.len() {
            let (free, empty) = (saturated(self.bare[at] - self.used[at]), saturated(self.bare[at]));
            if self.free[at] != free || self.empty[at] != empty {
                found.push(format!("topology: derived amounts at {at} are not what they are derived from"));
            }
        }
        if self.trying == 0 && !self.journal.is_empty() {
            found.push("topology: a journal is left over".to_owned());
        }
    }
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Rows of `new` instead of `old` values.
fn widened<T: Copy + Default>(rows: &[T], old: usize, new: usize) -> Vec<T> {
    let places = rows.len().checked_div(old).unwrap_or(0);
    let mut wide = vec![T::default(); places * new];
    for (from, to) in rows.chunks_exact(old.max(1)).zip(wide.chunks_exact_mut(new)) {
        to[..old].copy_from_slice(from);
    }
    wide
}
