//! How many pods of a shape fit into each domain, kept from one placement to the next: only what has changed since is counted again.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::Name;
use crate::intern::{FlavorId, PlaceId};
use crate::matching::label_keys;
use crate::spec::Toleration;
use crate::topology::ask::Ask;
use crate::topology::counts::{AllCounts, Counts};
use crate::topology::filter::{Bounds, Excluded, Sieve, Why};
use crate::topology::laid::Splice;
use crate::topology::latest::Latest;
use crate::topology::layout::{Layout, Removed};
use crate::topology::ledger::Ledger;
use crate::topology::needs::Needs;
use crate::topology::placer::Found;
use crate::workload::{AffinityTerm, PodSetSpec, PreferredTerm};

/// The most shapes whose counts are kept: those that were asked for last.
const MOST: usize = 64;
/// The number of shapes whose counts are kept, however many leaves they have.
const LEAST: usize = 8;
/// The most leaves that are kept in all with more shapes than that, of 90 bytes or less each.
const MOST_LEAVES: usize = 1 << 19;
/// The most searches with the same counts that are remembered.
const MOST_KNOWN: usize = 16;
/// What searches found is forgotten once this number of leaves is not as it was.
const MOST_AWAY: usize = 256;

/// What the counts depend on, besides the nodes and what is free.
#[derive(Debug)]
pub(crate) struct ShapeRef<'a> {
    /// The flavor whose tree it is.
    pub(crate) flavor: FlavorId,
    /// As if no workload used anything.
    pub(crate) empty: bool,
    /// Selectors, affinity and tolerations.
    pub(crate) pod_set: &'a PodSetSpec,
    /// The preferred node affinity that counts.
    pub(crate) preferred: &'a [PreferredTerm],
    /// The usage of each pod.
    pub(crate) needs: &'a Needs,
    /// The usage of the leader, if there is one.
    pub(crate) leader: Option<&'a Needs>,
    /// Slices.
    pub(crate) ask: &'a Ask,
}

/// The same, owned.
#[derive(Debug)]
struct Shape {
    flavor: FlavorId,
    empty: bool,
    node_selector: Vec<(Name, Name)>,
    affinity: Vec<AffinityTerm>,
    preferred: Vec<PreferredTerm>,
    tolerations: Vec<Toleration>,
    needs: Needs,
    leader: Option<Needs>,
    slice_level: usize,
    size: i64,
    portions: SmallVec<[i64; 4]>,
}

impl Shape {
    fn of(shape: &ShapeRef<'_>) -> Shape {
        Shape {
            flavor: shape.flavor,
            empty: shape.empty,
            node_selector: shape.pod_set.node_selector.clone(),
            affinity: shape.pod_set.affinity.clone(),
            preferred: shape.preferred.to_vec(),
            tolerations: shape.pod_set.tolerations.clone(),
            needs: shape.needs.clone(),
            leader: shape.leader.cloned(),
            slice_level: shape.ask.slice_level,
            size: shape.ask.size,
            portions: shape.ask.portions.clone(),
        }
    }

    fn is(&self, shape: &ShapeRef<'_>) -> bool {
        self.flavor == shape.flavor
            && self.empty == shape.empty
            && self.needs == *shape.needs
            && self.leader.as_ref() == shape.leader
            && (self.slice_level, self.size) == (shape.ask.slice_level, shape.ask.size)
            && self.portions == shape.ask.portions
            && self.node_selector == shape.pod_set.node_selector
            && self.affinity == shape.pod_set.affinity
            && self.preferred == shape.preferred
            && self.tolerations == shape.pod_set.tolerations
    }
}

/// The counts of one shape.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of all domains.
    pub(crate) counts: AllCounts,
    /// Why leaves are left out, by number.
    pub(crate) excluded: Excluded,
    /// For each leaf, why it is left out.
    why: Vec<Option<Why>>,
    shape: Option<Shape>,
    /// The generation of nodes and flavors that they are of.
    generation: u64,
    /// Up to which change of labels and taints.
    relabeled: usize,
    /// Up to which leaf that came or went.
    spliced: usize,
    /// Up to which change of what is free they are of: see [`Ledger::position`].
    position: usize,
    /// When they were asked for last.
    used: u64,
    /// Searches and their results: those without a result, and those on empty nodes.
    known: Vec<(Ask, Found)>,
    /// The leaves whose counts differ from those at that time, with the counts at that time.
    away: BTreeMap<usize, (Counts, Option<Why>)>,
}

/// The counts of several shapes, all of one ledger.
#[derive(Debug, Default)]
pub(crate) struct KeptCounts {
    kept: Vec<Kept>,
    /// How often counts were asked for.
    asked: u64,
    /// How many leaves were counted.
    counted: u64,
    /// How many searches were made.
    searched: u64,
    /// How many domains these compared.
    compared: u64,
    /// How many domains were visited to order a level, or because it has no order yet.
    ordered: u64,
}

/// The inputs of counting.
#[derive(Debug)]
pub(crate) struct Counting<'a, 'b> {
    /// The domains.
    pub(crate) layout: &'a Layout,
    /// The free amounts.
    pub(crate) ledger: &'a Ledger,
    /// Changes with everything but what is free, and but for some leaves: nodes and flavors.
    pub(crate) generation: u64,
    /// The leaves whose labels or taints have changed, or that were closed or opened, one after the other.
    pub(crate) relabeled: &'a Latest<PlaceId>,
    /// The leaves that came or went, one after the other.
    pub(crate) spliced: &'a Latest<Splice>,
    /// Which leaves may be used.
    pub(crate) sieve: &'a mut Sieve<'b>,
    /// The requests of the pods.
    pub(crate) shape: ShapeRef<'a>,
}

impl KeptCounts {
    /// How many leaves were counted so far.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// How many searches were made so far.
    pub(crate) fn searched(&self) -> u64 {
        self.searched
    }

    /// How many domains the searches compared so far, besides those that an order gave.
    pub(crate) fn compared(&self) -> u64 {
        self.compared
    }

    /// How many domains were visited to order levels.
    pub(crate) fn ordered(&self) -> u64 {
        self.ordered
    }

    /// Whether a label of nodes counts for pods of a shape whose counts are kept.
    pub(crate) fn read_label(&self, label: &str) -> bool {
        let mut shapes = self.kept.iter().filter_map(|kept| kept.shape.as_ref());
        shapes.any(|of| label_keys(&of.node_selector, &of.affinity, &of.preferred).any(|key| key == label))
    }

    /// Counts one more search, which compared so many domains, and visited so many to order levels.
    pub(crate) fn count_search(&mut self, compared: u64, ordered: u64) {
        self.searched += 1;
        self.compared = self.compared.saturating_add(compared);
        self.ordered = self.ordered.saturating_add(ordered);
    }

    /// The counts of a shape, from the kept ones if possible.
    pub(crate) fn shared(&mut self, counting: &mut Counting<'_, '_>) -> &mut Kept {
        let at = self.count(counting);
        &mut self.kept[at]
    }

    /// Where the counts of a shape are, up to date.
    fn count(&mut self, counting: &mut Counting<'_, '_>) -> usize {
        self.asked += 1;
        let is = |kept: &Kept| kept.shape.as_ref().is_some_and(|shape| shape.is(&counting.shape));
        let at = self.kept.iter().position(is).unwrap_or_else(|| self.room(counting.layout.places.len()));
        let kept = &mut self.kept[at];
        let counted = if kept.may_follow(counting) && !kept.is_worth_else(counting) {
            kept.recount(counting)
        } else {
            kept.shape = Some(Shape::of(&counting.shape));
            kept.count(counting)
        };
        self.counted += counted;
        kept.used = self.asked;
        at
    }

    /// Where the counts of one more shape go, with `leaves` leaves: those that were not asked for the longest time make room.
    fn room(&mut self, leaves: usize) -> usize {
        let mut all = self.kept.iter().map(|kept| kept.why.len()).sum::<usize>().saturating_add(leaves);
        let mut room = None;
        while self.kept.len() >= MOST || self.kept.len() >= LEAST && all > MOST_LEAVES {
            let Some(oldest) = (0..self.kept.len()).min_by_key(|&at| self.kept[at].used) else { break };
            let gone = self.kept.swap_remove(oldest);
            all -= gone.why.len();
            room = Some(gone);
        }
        let mut room: Kept = room.unwrap_or_default();
        room.shape = None;
        self.kept.push(room);
        self.kept.len() - 1
    }
}

impl Kept {
    /// The result of an earlier search with these counts.
    pub(crate) fn known(&self, ask: &Ask) -> Option<&Found> {
        let same = |known: &&(Ask, Found)| known.0 == *ask;
        self.known.iter().find(same).map(|known| &known.1).filter(|_| self.away.is_empty())
    }

    /// Remembers what a search found with these counts.
    pub(crate) fn remember(&mut self, ask: &Ask, found: &Found) {
        if !self.away.is_empty() {
            self.forget();
        }
        if self.known.len() >= MOST_KNOWN {
            drop(self.known.remove(0));
        }
        self.known.push((ask.clone(), found.clone()));
    }

    fn forget(&mut self) {
        self.known.clear();
        self.away.clear();
    }

    /// A leaf has other counts than before.
    fn note(&mut self, leaf: usize, before: (Counts, Option<Why>), after: (Counts, Option<Why>)) {
        if self.known.is_empty() || before == after {
            return;
        }
        if self.away.get(&leaf) == Some(&after) {
            self.away.remove(&leaf);
        } else if self.away.len() < MOST_AWAY {
            self.away.entry(leaf).or_insert(before);
        } else {
            self.forget();
        }
    }

    /// The leaves whose free amounts have changed, in order.
    fn changed(&self, counting: &Counting<'_, '_>) -> Vec<usize> {
        let (ledger, layout) = (counting.ledger, counting.layout);
        let places = ledger.changed_since(self.position);
        let Some(places) = places.filter(|places| places.len() <= layout.places.len()) else {
            // Most of them may be of other trees.
            let has_changed = |leaf: &usize| ledger.has_changed(layout.places[*leaf], self.position);
            return (0..layout.places.len()).filter(has_changed).collect();
        };
        let mut leaves: Vec<usize> = places.iter().filter_map(|&place| layout.leaf(place)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Whether what has changed since is known, and is little.
    fn may_follow(&self, counting: &Counting<'_, '_>) -> bool {
        self.shape.is_some()
            && self.generation == counting.generation
            && counting.relabeled.since(self.relabeled).is_some()
            && counting.spliced.since(self.spliced).is_some()
    }

    /// Whether the scores of leaves may have changed, which requires all leaves.
    fn is_worth_else(&self, counting: &Counting<'_, '_>) -> bool {
        let differs = self.relabeled < counting.relabeled.end() || self.spliced < counting.spliced.end();
        counting.sieve.scores() && differs
    }

    /// Makes room for leaves that came, and forgets those that went. Gives those that came and leaves near the others.
    fn follow(&mut self, splices: &[Splice]) -> Vec<usize> {
        let mut leaves: Vec<usize> = Vec::new();
        if !splices.is_empty() {
            self.forget();
        }
        for splice in splices {
            match splice {
                Splice::Came(at, around) => {
                    let at = *at;
                    self.why.insert(at, None);
                    self.counts.insert_leaf(at, around);
                    leaves.iter_mut().filter(|leaf| **leaf >= at).for_each(|leaf| *leaf += 1);
                    leaves.push(at);
                }
                Splice::Went(Removed { at, around, near }) => {
                    let (at, near) = (*at, *near);
                    if let Some(why) = self.why.remove(at) {
                        self.excluded.remove(why);
                    }
                    self.counts.remove_leaf(at, around);
                    leaves.retain(|leaf| *leaf != at);
                    leaves.iter_mut().filter(|leaf| **leaf > at).for_each(|leaf| *leaf -= 1);
                    leaves.extend(near);
                }
            }
        }
        leaves
    }

    /// The leaves whose labels or taints have changed, that were closed or opened, or that came, in order; and leaves near those that went.
    fn relabeled(&mut self, counting: &Counting<'_, '_>) -> Vec<usize> {
        let mut leaves = self.follow(counting.spliced.since(self.spliced).unwrap_or_default());
        let places = counting.relabeled.since(self.relabeled).unwrap_or_default();
        leaves.extend(places.iter().filter_map(|&place| counting.layout.leaf(place)));
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Computes the counts of changed leaves again. Returns how many.
    fn recount(&mut self, counting: &mut Counting<'_, '_>) -> u64 {
        let relabeled = self.relabeled(counting);
        let mut leaves = self.changed(counting);
        if !relabeled.is_empty() {
            leaves.extend(&relabeled);
            leaves.sort_unstable();
            leaves.dedup();
        }
        let counted = leaves.len();
        let mut scratch = vec![0; counting.ledger.stride()];
        for &leaf in &leaves {
            let before = self.why[leaf];
            let is_sieved = relabeled.binary_search(&leaf).is_ok();
            if !is_sieved && !matches!(before, None | Some(Why::Need(_) | Why::Nothing)) {
                continue;
            }
            let kept_out = if is_sieved { counting.sieve.keeps_out(counting.layout, leaf) } else { None };
            let (counts, why) = match kept_out {
                Some(why) => (Counts::default(), Some(why)),
                None => counting.leaf(leaf, &mut scratch),
            };
            if let Some(before) = before {
                self.excluded.remove(before);
            }
            if let Some(why) = why {
                self.excluded.add(why);
            }
            self.why[leaf] = why;
            let were = self.counts.set_leaf(leaf, counts, counting.shape.ask);
            if [before, why].iter().any(|why| is_sieved && matches!(why, Some(Why::Taints(_)))) {
                // Other taints may have got the number by now.
                self.forget();
            } else {
                self.note(leaf, (were.0, before), (were.1, why));
            }
        }
        self.counts.sum_up_above(counting.layout, counting.shape.ask, &mut leaves);
        self.position = counting.ledger.position();
        (self.relabeled, self.spliced) = (counting.relabeled.end(), counting.spliced.end());
        wide(counted)
    }

    /// Leaves out what is out of bounds, until the counts are widened. Returns for each level the domains that may be used, if that says more.
    pub(crate) fn narrow(
        &mut self,
        layout: &Layout,
        ask: &Ask,
        bounds: &Bounds,
    ) -> Option<Vec<Range<usize>>> {
        if ask.evenly && bounds.within.is_some() {
            // All domains are summed up anew for that.
            let outside = (0..self.why.len()).filter(|leaf| !bounds.has(*leaf));
            self.counts.leave_out(layout, ask, outside.collect());
            return None;
        }
        self.counts.leave_out(layout, ask, bounds.without.clone());
        bounds.within.clone().map(|within| self.counts.keep_only(layout, ask, within))
    }

    /// Why leaves are left out, by number, those that are out of bounds among them. What is left out for its labels or taints is so still.
    pub(crate) fn excluded_by(&self, bounds: &Bounds) -> Excluded {
        let by_fit = |leaf: &usize| matches!(self.why[*leaf], None | Some(Why::Need(_) | Why::Nothing));
        if let Some(within) = &bounds.within {
            let mut excluded = self.excluded.but_by_fit();
            let all = u32::try_from(self.why.len()).unwrap_or(u32::MAX).saturating_sub(excluded.total());
            let usable = within.clone().filter(by_fit).filter(|leaf| bounds.has(*leaf));
            let mut inside = 0;
            for leaf in usable {
                inside += 1;
                if let Some(why) = self.why[leaf] {
                    excluded.add(why);
                }
            }
            excluded.add_many(Why::Domain, all.saturating_sub(inside));
            return excluded;
        }
        let mut excluded = self.excluded.clone();
        for leaf in bounds.without.iter().copied().filter(by_fit) {
            if let Some(why) = self.why[leaf] {
                excluded.remove(why);
            }
            excluded.add(Why::Domain);
        }
        excluded
    }

    /// Counts all leaves. Returns how many.
    fn count(&mut self, counting: &mut Counting<'_, '_>) -> u64 {
        let (layout, passes_all) =
            (counting.layout, counting.sieve.passes_all() && counting.layout.is_all_open());
        let leaves = layout.places.len();
        let mut scratch = vec![0; counting.ledger.stride()];
        (self.excluded, self.generation) = (Excluded::default(), counting.generation);
        self.position = counting.ledger.position();
        (self.relabeled, self.spliced) = (counting.relabeled.end(), counting.spliced.end());
        self.forget();
        self.why.clear();
        self.why.reserve(leaves);
        let preferred = counting.sieve.scores();
        let mut scores = Vec::with_capacity(if preferred { leaves } else { 0 });
        let all = self.counts.reset(layout);
        for leaf in 0..leaves {
            let kept_out = if passes_all { None } else { counting.sieve.keeps_out(layout, leaf) };
            if preferred {
                scores.push(counting.sieve.score(layout, leaf, kept_out));
            }
            let (counts, why) = match kept_out {
                Some(why) => (Counts::default(), Some(why)),
                None => counting.leaf(leaf, &mut scratch),
            };
            if let Some(why) = why {
                self.excluded.add(why);
            }
            self.why.push(why);
            all.push(counts);
        }
        self.counts.sum_up(layout, counting.shape.ask);
        self.counts.set_scores(layout, scores);
        wide(leaves)
    }
}

impl Counting<'_, '_> {
    /// Counts all leaves, to be looked at once.
    pub(crate) fn all(&mut self) -> AllCounts {
        let mut kept = Kept::default();
        kept.count(self);
        kept.counts
    }

    /// How many pods fit into a usable leaf, or why none does.
    fn leaf(&self, leaf: usize, scratch: &mut [i64]) -> (Counts, Option<Why>) {
        let (stride, needs) = (self.ledger.stride(), self.shape.needs);
        let row = &self.ledger.view(self.shape.empty)[self.layout.places[leaf].at() * stride..][..stride];
        let (pods, why) = match needs.count(row) {
            Ok(pods) => (pods, None),
            Err(need) => (0, Some(Why::full(need, row))),
        };
        let mut counts = Counts { pods, pods_led: pods, ..Counts::default() };
        if let Some(leader) = self.shape.leader
            && leader.count(row).is_ok()
        {
            scratch.copy_from_slice(row);
            leader.subtract(scratch);
            counts.leaders = 1;
            counts.pods_led = needs.count(scratch).unwrap_or(0);
        }
        (counts, why)
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
