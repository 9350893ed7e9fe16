//! Which domains pods go to: phase 2 of a placement (docs/reference/06-algorithm.md 6.12).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::Name;
use crate::topology::ask::{Ask, slices_of};
use crate::topology::counts::{AllCounts, Counts};
use crate::topology::layout::Layout;
use crate::topology::request::PlacementFit;

/// The unit of distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Slices of this number of pods.
    Slices(i64),
    /// Single pods.
    Pods,
}

impl Unit {
    fn of(self, counts: &Counts) -> i64 {
        if matches!(self, Unit::Slices(_)) { counts.slices } else { counts.pods }
    }

    fn led_of(self, counts: &Counts) -> i64 {
        if matches!(self, Unit::Slices(_)) { counts.slices_led } else { counts.pods_led }
    }

    fn size(self) -> i64 {
        if let Unit::Slices(size) = self { size } else { 1 }
    }
}

/// The place of a domain in an order: what it is worth, slices, pods, what fits around it, rank.
type Key = (Reverse<i64>, i64, i64, Around, usize);
/// What fits into the domains around one, from the nearest to the highest: nothing unless larger domains are to be kept whole.
type Around = Box<[i64]>;

/// Phase 2 of one placement. A domain is a position in its level of the layout, which is its rank.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    /// The domains.
    pub(crate) layout: &'a Layout,
    /// The labels of their levels.
    pub(crate) levels: &'a [Name],
    /// The request.
    pub(crate) ask: &'a Ask,
    /// How much fits; later, how much was chosen.
    pub(crate) counts: &'a mut AllCounts,
    /// For each level the domains that may be used; all if there are none.
    pub(crate) within: Option<Vec<Range<usize>>>,
    /// How many domains were compared so far.
    pub(crate) compared: u64,
}

/// The counts of a domain that may not be used.
const NOTHING: Counts = Counts { pods: 0, pods_led: 0, slices: 0, slices_led: 0, leaders: 0 };

impl Search<'_> {
    /// The counts of a domain.
    pub(crate) fn at(&self, level: usize, at: usize) -> &Counts {
        let may_be_used = self.within.as_ref().is_none_or(|within| within[level].contains(&at));
        if may_be_used { &self.counts.level(level)[at] } else { &NOTHING }
    }

    /// The domains of a level that may be used.
    fn domains(&self, level: usize) -> Range<usize> {
        self.within.as_ref().map_or_else(|| 0..self.layout.len(level), |within| within[level].clone())
    }

    /// The counts of a domain, to change them.
    pub(crate) fn at_mut(&mut self, level: usize, at: usize) -> &mut Counts {
        self.counts.at_mut(level, at)
    }

    /// The score of a domain by preferred node affinity.
    fn score(&self, level: usize, at: usize) -> i64 {
        self.counts.score(level, at)
    }

    /// The order without regard to leaders: what is worth most first, then most slices (least for LeastFreeCapacity), then fewest pods, then
    /// those in the smallest domains where larger ones are to be kept whole, then by values.
    pub(crate) fn key(&self, level: usize, at: usize) -> Key {
        let counts = self.at(level, at);
        (
            Reverse(self.score(level, at)),
            self.directed(counts.slices),
            counts.pods,
            self.around(level, at),
            at,
        )
    }

    /// The order of domains for a leader: domains that can have it first, then as [`Search::key`] with what fits besides it.
    pub(crate) fn led_key(&self, level: usize, at: usize) -> (i64, Key) {
        let counts = self.at(level, at);
        let score = Reverse(self.score(level, at));
        let around = self.around(level, at);
        (-counts.leaders, (score, self.directed(counts.slices_led), counts.pods_led, around, at))
    }

    /// Puts domains in an order.
    pub(crate) fn sort<K: Ord>(&self, list: &mut [usize], key: impl Fn(usize) -> K) {
        if self.ask.keep_whole {
            list.sort_by_cached_key(|&at| key(at));
        } else {
            list.sort_unstable_by_key(|&at| key(at));
        }
    }

    fn directed(&self, slices: i64) -> i64 {
        if self.ask.least_free { slices } else { -slices }
    }

    /// Finds the domains and distributes the pods: the leaves that got any, with their counts.
    pub(crate) fn run(&mut self) -> Result<Vec<usize>, PlacementFit> {
        let (level, chosen) = self.find()?;
        self.descend(level, chosen, false)
    }

    /// The level and its domains that hold everything: one domain if possible.
    fn find(&mut self) -> Result<(usize, Vec<usize>), PlacementFit> {
        let mut level = self.ask.level;
        loop {
            if self.layout.open() == 0 {
                let text = format!("no topology domains at level: {}", self.levels[level]);
                return Err(PlacementFit::Other(text));
            }
            if let Some(at) = self.single(level) {
                return Ok((level, vec![at]));
            }
            if self.ask.required {
                let most = self.largest_room(level);
                return Err(self.misfit(level, most));
            }
            if level == 0 || self.ask.unconstrained {
                return Ok((level, self.greedy(level)?));
            }
            level -= 1;
        }
    }

    /// How many slices fit into the first domain of a level, of which one is required.
    fn largest_room(&mut self, level: usize) -> i64 {
        let known = if self.is_in_order() { self.counts.largest_room(level) } else { None };
        known.unwrap_or_else(|| {
            self.compared += wide(self.layout.len(level));
            let top = self.open(level).min_by_key(|&at| self.led_key(level, at));
            top.map_or(0, |at| self.at(level, at).slices)
        })
    }

    /// Whether the orders of the counts are those of the domains, if the counts are in order: see [`AllCounts::are_in_order`].
    fn is_in_order(&self) -> bool {
        self.ask.leaders == 0 && !self.ask.keep_whole && self.within.is_none()
    }

    /// The domains of a level that have any node which takes pods.
    fn open(&self, level: usize) -> impl Iterator<Item = usize> {
        (0..self.layout.len(level)).filter(move |&at| self.layout.has_open(level, at))
    }

    /// The domain that holds everything alone: the first in order for LeastFreeCapacity, else the one with the fewest slices of those that
    /// are worth most. Unless one is required, it is among the domains that are worth most of all, or there is none.
    fn single(&mut self, level: usize) -> Option<usize> {
        let (leaders, slices) = (self.ask.leaders, self.ask.slices());
        if self.is_in_order() && self.counts.are_in_order() {
            return self.counts.tightest(level, slices);
        }
        let domains = self.domains(level);
        self.compared += wide(domains.len());
        let counts = domains.clone().zip(&self.counts.level(level)[domains]);
        let least_free = self.ask.least_free;
        let order = |at: usize, counts: &Counts| {
            let score = Reverse(self.score(level, at));
            let slices = if least_free { counts.slices_led } else { -counts.slices_led };
            // The tightest first; the smallest of all is the tightest as well.
            let tightest = if least_free { 0 } else { counts.slices_led };
            (score, tightest, -counts.leaders, slices, counts.pods_led, self.around(level, at))
        };
        let fits = |(_, counts): &(usize, &Counts)| counts.leaders >= leaders && counts.slices_led >= slices;
        // Of domains that are alike, the first.
        let best = counts.filter(fits).min_by_key(|&(at, counts)| order(at, counts));
        best.map(|(at, _)| at).filter(|&at| self.ask.required || least_free || self.is_worth_most(level, at))
    }

    fn around(&self, level: usize, at: usize) -> Around {
        let above = if self.ask.keep_whole { level } else { 0 };
        let pods = |above| self.at(above, self.layout.ancestor_from(level, at, above)).pods;
        (0..above).rev().map(pods).collect()
    }

    /// Whether no domain that can also have the leader scores higher than this one, whatever it holds.
    fn is_worth_most(&self, level: usize, at: usize) -> bool {
        let leaders = self.at(level, at).leaders;
        !self.counts.are_scored()
            || !(0..self.layout.len(level)).any(|other| {
                self.at(level, other).leaders >= leaders && self.score(level, other) > self.score(level, at)
            })
    }

    /// Domains that hold everything together, the largest (or smallest) first, the last one as tight as possible.
    fn greedy(&mut self, level: usize) -> Result<Vec<usize>, PlacementFit> {
        let wanted = self.ask.slices();
        if self.is_in_order()
            && let Some((chosen, left)) = self.counts.together(level, wanted, self.ask.least_free)
        {
            self.compared += wide(chosen.len());
            return if left > 0 { Err(self.misfit(level, wanted - left)) } else { Ok(chosen) };
        }
        let mut rest: Vec<usize> = self.domains(level).collect();
        let (mut chosen, mut remaining) = (Vec::new(), wanted);
        if self.ask.leaders > 0 {
            let unit = Unit::Slices(self.ask.size);
            self.sort(&mut rest, |at| self.led_key(level, at));
            self.prioritize(level, &mut rest, self.ask.leaders, wanted, unit);
            if self.at(level, rest[0]).leaders < self.ask.leaders {
                return Err(self.misfit(level, 0));
            }
            // It does not hold everything, or it would be enough alone; but one with a lower score may.
            let first = rest[0];
            remaining = (remaining - self.at(level, first).slices_led).max(0);
            chosen.push(first);
            rest.remove(0);
        }
        let room: i64 = rest.iter().map(|&at| self.at(level, at).slices).sum();
        if room < remaining {
            return Err(self.misfit(level, wanted - remaining + room));
        }
        let (filled, _) = self.fill(level, &rest, remaining, Unit::Slices(self.ask.size));
        chosen.extend(filled.into_iter().map(|(at, _)| at));
        Ok(chosen)
    }

    /// Puts first the domain that can have the leader without making the others too small together. That keeps what the level above
    /// was said to hold.
    fn prioritize(&self, level: usize, list: &mut [usize], leaders: i64, wanted: i64, unit: Unit) {
        let available: i64 = list.iter().map(|&at| unit.of(self.at(level, at))).sum();
        let keeps = |&at: &usize| {
            let counts = self.at(level, at);
            counts.leaders >= leaders && available - (unit.of(counts) - unit.led_of(counts)) >= wanted
        };
        if let Some(first) = list.iter().position(keeps) {
            list[..=first].rotate_right(1);
        }
    }

    /// Among the first domains with equal scores, the first one with the least room that still holds the rest; the first of all if there is none.
    fn tightest(&self, level: usize, list: &[usize], rest: i64, leaders: i64, unit: Unit) -> usize {
        let room = |at: usize| {
            let counts = self.at(level, at);
            if leaders > 0 { unit.led_of(counts) } else { unit.of(counts) }
        };
        let fits = |at: &&usize| self.at(level, **at).leaders >= leaders && room(**at) >= rest;
        let alike = |at: &&usize| self.score(level, **at) == self.score(level, list[0]);
        list.iter().take_while(alike).filter(fits).min_by_key(|&&at| room(at)).map_or(list[0], |&at| at)
    }

    /// Fills domains of a list one after the other: (domain, amount). Also returns the amount that does not fit.
    fn fill(&mut self, level: usize, list: &[usize], mut rest: i64, unit: Unit) -> (Vec<(usize, i64)>, i64) {
        self.compared += wide(list.len());
        let mut filled = Vec::new();
        let room = |at: usize| unit.of(self.at(level, at));
        let nonempty = list.iter().filter(|&&at| room(at) > 0);
        let mut heap: BinaryHeap<Reverse<Key>> =
            nonempty.map(|&at| Reverse(self.key(level, at))).collect::<Vec<_>>().into();
        while rest > 0 {
            let Some(Reverse(key)) = heap.pop() else { break };
            let mut at = key.4;
            if !self.ask.least_free && room(at) >= rest {
                let holds = |other: &&Key| other.0 == key.0 && room(other.4) >= rest;
                let others = heap.iter().map(|other| &other.0).filter(holds);
                let tightest = others.chain([&key]).min_by_key(|&one| (room(one.4), one));
                at = tightest.map_or(at, |one| one.4);
            }
            let taken = room(at).min(rest);
            filled.push((at, taken));
            rest -= taken;
        }
        (filled, rest)
    }

    /// Distributes over a list of domains, in its order if there is a leader; what they get becomes their counts.
    fn take(
        &mut self,
        level: usize,
        mut list: Vec<usize>,
        (count, leaders): (i64, i64),
        unit: Unit,
    ) -> Result<Vec<usize>, PlacementFit> {
        let wanted = count / unit.size();
        let (mut chosen, mut rest) = (Vec::new(), wanted);
        if leaders > 0 {
            self.prioritize(level, &mut list, leaders, wanted, unit);
            let taken = self.take_leaders(level, &list, (rest, leaders), unit);
            let (used, left) = taken.ok_or_else(|| self.misfit(level, 0))?;
            rest = left;
            if rest == 0 {
                return Ok(used);
            }
            list.drain(..used.len());
            chosen = used;
        }
        // With a leader before them, the others keep their order, which is that of the heap.
        let (filled, left) = self.fill(level, &list, rest, unit);
        if left > 0 {
            return Err(self.misfit(level, wanted - left));
        }
        for (at, taken) in filled {
            self.give(level, at, taken, 0, unit);
            chosen.push(at);
        }
        Ok(chosen)
    }

    /// Takes domains from the beginning of a list until the leader has one. Returns those and what is left to distribute; `None` if no domain can
    /// have the leader. If nothing is left, the last one need not be the next of the list.
    fn take_leaders(
        &mut self,
        level: usize,
        list: &[usize],
        (mut rest, leaders): (i64, i64),
        unit: Unit,
    ) -> Option<(Vec<usize>, i64)> {
        let mut used = Vec::new();
        for (from, &next) in list.iter().enumerate() {
            let counts = *self.at(level, next);
            let completes = unit.led_of(&counts) >= rest && counts.leaders >= leaders;
            let at = if completes && !self.ask.least_free {
                self.tightest(level, &list[from..], rest, leaders, unit)
            } else {
                next
            };
            let leads = self.at(level, at).leaders.min(leaders);
            let taken = unit.led_of(self.at(level, at)).min(rest);
            self.give(level, at, taken, leads, unit);
            used.push(at);
            rest -= taken;
            if leads == leaders {
                return Some((used, rest));
            }
        }
        None
    }

    fn give(&mut self, level: usize, at: usize, taken: i64, leaders: i64, unit: Unit) {
        let counts = self.at_mut(level, at);
        counts.leaders = leaders;
        counts.pods = taken * unit.size();
        if matches!(unit, Unit::Slices(_)) {
            counts.slices = taken;
        }
    }

    /// Goes down to the leaves. Above the level of slices the children of all chosen domains are one pool (not if `siblings`); below it each domain
    /// distributes its part to its own children.
    pub(crate) fn descend(
        &mut self,
        mut level: usize,
        chosen: Vec<usize>,
        siblings: bool,
    ) -> Result<Vec<usize>, PlacementFit> {
        let all = (self.ask.pods(), self.ask.leaders);
        let mut chosen = self.take(level, chosen, all, Unit::Slices(self.ask.size))?;
        let lowest = self.layout.depth() - 1;
        while !siblings && level < lowest.min(self.ask.slice_level) {
            let pool = self.pool(level, &chosen, self.ask.leaders > 0);
            chosen = self.take(level + 1, pool, all, Unit::Slices(self.ask.size))?;
            level += 1;
        }
        while level < lowest {
            chosen = self.hand_down(level, &chosen)?;
            level += 1;
        }
        Ok(chosen)
    }

    /// Every domain distributes what it got to its own children.
    fn hand_down(&mut self, level: usize, chosen: &[usize]) -> Result<Vec<usize>, PlacementFit> {
        let above_slices = level < self.ask.slice_level;
        let size = if above_slices { self.ask.size } else { self.ask.portions[level + 1] };
        let unit = if size > 1 { Unit::Slices(size) } else { Unit::Pods };
        let mut below = Vec::new();
        for &at in chosen {
            let counts = *self.at(level, at);
            if size > 1 {
                self.count_slices(level + 1, self.layout.children(level, at), size);
            }
            let pool = self.pool(level, &[at], counts.leaders > 0);
            below.extend(self.take(level + 1, pool, (counts.pods, counts.leaders), unit)?);
        }
        Ok(below)
    }

    fn count_slices(&mut self, level: usize, range: Range<usize>, size: i64) {
        for at in range {
            let counts = self.counts.at_mut(level, at);
            counts.slices = counts.pods / size;
            counts.slices_led = counts.pods_led / size;
        }
    }

    /// The children of domains, in order if that matters.
    fn pool(&self, level: usize, chosen: &[usize], in_order: bool) -> Vec<usize> {
        let mut pool: Vec<usize> = chosen.iter().flat_map(|&at| self.layout.children(level, at)).collect();
        if in_order {
            self.sort(&mut pool, |at| self.key(level + 1, at));
        }
        pool
    }

    /// Why it does not fit, if only this much fits.
    fn misfit(&self, level: usize, fit: i64) -> PlacementFit {
        let wanted = self.ask.slices();
        if !self.ask.layers.is_empty() {
            return self.layers_misfit(level);
        }
        if self.ask.size == 1 {
            PlacementFit::Pods { fit, wanted }
        } else {
            PlacementFit::Slices { fit, wanted }
        }
    }

    /// How many slices of each layer fit into the domain with the most slices.
    fn layers_misfit(&self, level: usize) -> PlacementFit {
        let best = self.open(level).min_by_key(|&at| (-self.at(level, at).slices, at));
        let fitting = |target: usize, size: i64| -> i64 {
            let domains = best.map_or(0..0, |best| self.layout.below(level, best, target));
            domains.map(|at| self.at(target, at).pods / size).sum()
        };
        let layers = self.ask.layers.iter().filter(|layer| layer.level >= level);
        PlacementFit::Layers(
            layers
                .map(|layer| {
                    let wanted = slices_of(self.ask.count, layer.size);
                    (layer.name.clone(), fitting(layer.level, layer.size), wanted)
                })
                .collect(),
        )
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
