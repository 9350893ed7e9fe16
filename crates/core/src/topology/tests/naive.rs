//! Placements on random topologies, compared node by node with a naive implementation that computes all capacities again each time. Nodes have
//! taints, labels and foreign pods.

use std::ops::Range;

use sluice_selector::{Operator, TolerationOperator};

use super::fixture::{LEVELS, Pods, World, node, pods, show, taint, world_of};
use super::random::Random;
use crate::fixtures::n;
use crate::spec::{Expression, TaintEffect, Toleration};
use crate::topology::PlacementFailure;
use crate::topology::request::Placement;
use crate::workload::AffinityTerm;

/// The nodes of a domain lie side by side.
type Domain = Range<usize>;

/// One node, as a naive placement knows it.
struct Machine {
    path: [String; 3],
    free: i64,
    tainted: bool,
    fast: bool,
}

/// A world and its nodes, in the order of their paths.
fn any_world(random: &mut Random) -> (World, Vec<Machine>) {
    let mut world = world_of(&LEVELS);
    let mut machines = Vec::new();
    for at in 0..2 + random.below(8) {
        let path = [format!("b{}", random.below(2)), format!("r{}", random.below(3)), format!("n{at}")];
        let [block, rack, name] = &path;
        let cpus = random.below(5);
        let mut spec = node(block, rack, name, &[("cpu", cpus)]);
        let (tainted, fast) = (random.one_in(4), random.one_in(2));
        let effect = if tainted { TaintEffect::NoSchedule } else { TaintEffect::PreferNoSchedule };
        if tainted || random.one_in(8) {
            spec.taints.push(taint("t", "", effect));
        }
        spec.labels.push((n("disk"), n(if fast { "fast" } else { "slow" })));
        world.node(&spec);
        let mut free = cpus;
        if random.one_in(3) {
            let (taken, others) = (random.below(3), 6 + random.below(5));
            world.other(name, taken, others);
            free = (cpus - taken).min(10 - others).max(0);
        }
        machines.push(Machine { path, free, tainted, fast });
    }
    machines.sort_by(|a, b| a.path.cmp(&b.path));
    (world, machines)
}

/// What keeps pods off nodes, besides what is free there.
#[derive(Clone, Copy)]
struct Picky {
    tolerates: bool,
    /// Only nodes with the label `disk: fast` will do.
    fast: bool,
    /// It says so by an affinity.
    by_affinity: bool,
}

impl Picky {
    fn any(random: &mut Random) -> Self {
        Self { tolerates: random.one_in(2), fast: random.one_in(3), by_affinity: random.one_in(2) }
    }

    fn of(self, set: Pods) -> Pods {
        let set = set.with(|spec| {
            if self.tolerates {
                let operator = TolerationOperator::Exists;
                spec.tolerations.push(Toleration { key: Some(n("t")), operator, value: n(""), effect: None });
            }
            if self.fast && self.by_affinity {
                let expression = Expression::new(n("disk"), Operator::In, vec![n("fast")]);
                spec.affinity.push(AffinityTerm { expressions: vec![expression], ..AffinityTerm::default() });
            }
        });
        if self.fast && !self.by_affinity { set.selector(&[("disk", "fast")]) } else { set }
    }

    /// How many pods a node has room for.
    fn room(self, machine: &Machine) -> i64 {
        let kept_out = machine.tainted && !self.tolerates || self.fast && !machine.fast;
        if kept_out { 0 } else { machine.free }
    }
}

/// The naive placement of some pods, without leaders and inner layers.
#[derive(Clone)]
struct Naive<'m> {
    machines: &'m [Machine],
    /// By node: how many pods it has room for.
    room: Vec<i64>,
    count: i64,
    /// Of a slice.
    size: i64,
    slice_level: usize,
    least_free: bool,
}

impl<'m> Naive<'m> {
    fn new(machines: &'m [Machine], picky: Picky, count: i64) -> Self {
        let room = machines.iter().map(|machine| picky.room(machine)).collect();
        Self { machines, room, count, size: 1, slice_level: 2, least_free: false }
    }

    /// With room for a whole last slice.
    fn whole(self) -> Self {
        Self { count: (self.count + self.size - 1) / self.size * self.size, ..self }
    }

    fn all(&self) -> Domain {
        0..self.machines.len()
    }

    /// The domains of a level in one above.
    fn domains(&self, level: usize, within: &Domain) -> Vec<Domain> {
        let mut all: Vec<Domain> = Vec::new();
        for at in within.clone() {
            let path = |at: usize| &self.machines[at].path[..=level];
            match all.last_mut() {
                Some(last) if path(last.start) == path(at) => last.end = at + 1,
                _ => all.push(at..at + 1),
            }
        }
        all
    }

    fn pods(&self, domain: &Domain) -> i64 {
        self.room[domain.clone()].iter().sum()
    }

    /// How many slices fit into a domain; none into one that is smaller than a slice may be.
    fn slices(&self, level: usize, domain: &Domain) -> i64 {
        if level > self.slice_level {
            return 0;
        }
        self.domains(self.slice_level, domain).iter().map(|one| self.pods(one) / self.size).sum()
    }

    /// How many pods a domain takes, in whole slices.
    fn takes(&self, level: usize, domain: &Domain) -> i64 {
        if level > self.slice_level { self.pods(domain) } else { self.slices(level, domain) * self.size }
    }

    /// The order of domains.
    fn key(&self, level: usize, domain: &Domain) -> (i64, i64, usize) {
        let slices = self.slices(level, domain);
        (if self.least_free { slices } else { -slices }, self.pods(domain), domain.start)
    }

    /// Fills domains in order until `rest` pods have a place; the last one is the tightest that will do. Nothing if they do not fit.
    fn fill(&self, level: usize, mut list: Vec<Domain>, mut rest: i64) -> Option<Vec<(Domain, i64)>> {
        list.retain(|domain| self.takes(level, domain) > 0);
        let mut filled = Vec::new();
        while rest > 0 {
            let first = list.iter().min_by_key(|one| self.key(level, one))?;
            let enough = |one: &&Domain| self.takes(level, one) >= rest;
            let tightest = list.iter().filter(enough);
            let tightest = tightest.min_by_key(|one| (self.takes(level, one), self.key(level, one)));
            let ends = !self.least_free && self.takes(level, first) >= rest;
            let next = tightest.filter(|_| ends).unwrap_or(first).clone();
            list.retain(|one| *one != next);
            let taken = self.takes(level, &next).min(rest);
            rest -= taken;
            filled.push((next, taken));
        }
        Some(filled)
    }

    /// From domains of a level down to nodes: the pods of each. Down to the level of slices the domains inside of all that were chosen are
    /// one list, unless each is to keep what it was given.
    fn down(&self, level: usize, mut chosen: Vec<(Domain, i64)>, together: bool) -> Option<Vec<i64>> {
        for below in level + 1..LEVELS.len() {
            let inside = |(domain, _): &(Domain, i64)| self.domains(below, domain);
            chosen = if together && below <= self.slice_level {
                self.fill(below, chosen.iter().flat_map(inside).collect(), self.count)?
            } else {
                let each = chosen.iter().map(|one| self.fill(below, inside(one), one.1));
                each.collect::<Option<Vec<_>>>()?.concat()
            };
        }
        let mut placed = vec![0; self.machines.len()];
        for (domain, pods) in chosen {
            placed[domain.start] += pods;
        }
        Some(placed)
    }

    /// In one domain of the level if that is possible, else of a higher one or in several, unless one is required.
    fn place(&self, mut level: usize, wish: Wish) -> Option<Vec<i64>> {
        loop {
            let all = self.domains(level, &self.all());
            let holds = all.iter().filter(|one| self.takes(level, one) >= self.count);
            if let Some(one) = holds.min_by_key(|one| (self.slices(level, one), self.pods(one), one.start)) {
                return self.down(level, vec![(one.clone(), self.count)], true);
            }
            match wish {
                Wish::Required => return None,
                Wish::Preferred if level > 0 => level -= 1,
                Wish::Preferred | Wish::Unconstrained => {
                    return self.down(level, self.fill(level, all, self.count)?, true);
                }
            }
        }
    }

    /// How many of these domains it takes if the largest come first, and what fits into the last of them.
    fn largest_first(&self, level: usize, domains: &[Domain]) -> Option<(usize, i64)> {
        let mut room: Vec<i64> = domains.iter().map(|one| self.slices(level, one)).collect();
        room.sort_unstable_by_key(|room| -room);
        let mut rest = self.count;
        for (at, room) in room.into_iter().enumerate() {
            rest -= room;
            if rest <= 0 {
                return Some((at + 1, room));
            }
        }
        None
    }

    /// Of all sets of as few domains as possible that hold everything the one with least to spare; of those that are alike the one whose
    /// domains come first, seen from its last one.
    fn fewest(&self, level: usize, domains: &[Domain]) -> Option<Vec<Domain>> {
        let (number, _) = self.largest_first(level, domains)?;
        let sets = (0_u32..1 << domains.len()).filter(|set| set.count_ones() as usize == number);
        let of = |set: u32| (0..domains.len()).filter(move |at| set & (1 << at) != 0);
        let room = |set: u32| of(set).map(|at| self.pods(&domains[at])).sum::<i64>();
        let fit = sets.filter(|set| room(*set) >= self.count);
        // The number of a set is the larger, the later its last domain is.
        let best = fit.min_by_key(|set| (room(*set), *set))?;
        Some(of(best).map(|at| domains[at].clone()).collect())
    }

    /// Domains below a threshold are left out.
    fn leave_out(&mut self, level: usize, within: &Domain, threshold: i64) {
        for domain in self.domains(level, within) {
            if self.slices(level, &domain) < threshold {
                self.room[domain].fill(0);
            }
        }
    }

    /// How evenly the room of a domain is spread over those inside of it.
    fn entropy(&self, level: usize, domain: &Domain) -> f64 {
        let number = |pods: i64| f64::from(i32::try_from(pods).expect("small"));
        let inside: Vec<f64> =
            self.domains(level + 1, domain).iter().map(|one| number(self.pods(one))).collect();
        let all: f64 = inside.iter().sum();
        inside.iter().filter(|pods| **pods > 0.0).map(|pods| -(pods / all) * libm::log2(pods / all)).sum()
    }

    /// Balanced placement of single pods: spread evenly over as few domains as possible that lie side by side.
    fn balanced(mut self, level: usize) -> Option<Vec<i64>> {
        let lower = (level + 1).min(self.slice_level);
        let above = level.checked_sub(1).map_or(vec![self.all()], |above| self.domains(above, &self.all()));
        // The highest threshold, then the fewest domains, then the first.
        let mut best: Option<(i64, usize, Domain)> = None;
        for around in above {
            let Some((number, last)) = self.largest_first(lower, &self.domains(lower, &around)) else {
                continue;
            };
            let threshold = (self.count / i64::try_from(number).expect("few")).min(last);
            if best.as_ref().is_some_and(|best| threshold < best.0) {
                continue;
            }
            self.leave_out(lower, &around, threshold);
            self.leave_out(level, &around, threshold);
            let Some((number, _)) = self.largest_first(level, &self.domains(level, &around)) else {
                continue;
            };
            if best.as_ref().is_none_or(|best| threshold > best.0 || number < best.1) {
                best = Some((threshold, number, around));
            }
        }
        let (threshold, _, around) = best?;
        let mut domains = self.domains(level, &around);
        if level < lower {
            domains.sort_by(|a, b| {
                let room = self.slices(level, b).cmp(&self.slices(level, a));
                let entropy = || self.entropy(level, b).total_cmp(&self.entropy(level, a));
                room.then_with(entropy).then(a.start.cmp(&b.start))
            });
            let chosen = self.fewest(level, &domains)?;
            domains = chosen.iter().flat_map(|one| self.domains(lower, one)).collect();
            domains.sort_by_key(|one| one.start);
        }
        let mut chosen = self.fewest(lower, &domains)?;
        chosen.sort_by_key(|one| self.key(lower, one));
        let mut more = self.count - threshold * i64::try_from(chosen.len()).expect("few");
        let mut spread = Vec::new();
        for domain in chosen {
            let extra = (self.takes(lower, &domain) - threshold).min(more);
            more -= extra;
            spread.push((domain, threshold + extra));
        }
        if more == 0 { self.down(lower, spread, false) } else { None }
    }

    /// A placement is exactly this one, or there is none.
    fn agrees(&self, expected: Option<&[i64]>, placed: &Result<Placement, PlacementFailure>, at: &str) {
        let Some(expected) = expected else {
            return assert!(placed.is_err(), "{at}: {} but there is no placement", show(placed));
        };
        let all = self.machines.iter().zip(expected).filter(|(_, pods)| **pods > 0);
        let all: Vec<String> = all.map(|(machine, pods)| format!("{}={pods}", machine.path[2])).collect();
        assert_eq!(show(placed), all.join(" "), "{at}");
    }
}

/// The first pods of a placement, in the order of nodes.
fn first(mut placed: Vec<i64>, mut count: i64) -> Vec<i64> {
    for pods in &mut placed {
        *pods = (*pods).min(count);
        count -= *pods;
    }
    placed
}

/// What is asked of a level.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Required,
    Preferred,
    Unconstrained,
}

impl Wish {
    fn of(self, set: Pods, level: usize) -> Pods {
        match self {
            Wish::Required => set.required(LEVELS[level]),
            Wish::Preferred => set.preferred(LEVELS[level]),
            Wish::Unconstrained => set.unconstrained(),
        }
    }
}

/// Says of every world whether there is a placement; there is one in many of them, and none in many.
fn each_world(mut check: impl FnMut(&mut Random, &mut World, &[Machine], &str) -> bool) {
    let mut found = [0, 0];
    for seed in 0..1_500 {
        let mut random = Random::new(seed);
        let (mut world, machines) = any_world(&mut random);
        let placed = check(&mut random, &mut world, &machines, &format!("seed {seed}"));
        found[usize::from(placed)] += 1;
    }
    assert!(found.iter().all(|worlds| *worlds > 100), "{found:?}");
}

fn any_level(random: &mut Random, levels: i64) -> usize {
    usize::try_from(random.below(levels)).expect("small")
}

#[test]
fn pods_go_where_taints_selectors_and_affinity_let_them() {
    each_world(|random, world, machines, at| {
        let (picky, count) = (Picky::any(random), 1 + random.below(8));
        let naive = Naive::new(machines, picky, count);
        let mut any = false;
        for wish in [Wish::Required, Wish::Preferred, Wish::Unconstrained] {
            let level = if matches!(wish, Wish::Unconstrained) { 2 } else { any_level(random, 3) };
            world.config.gates.tas_profile_mixed = false;
            let placed = world.place(&wish.of(picky.of(pods(count)), level));
            let expected = naive.place(level, wish);
            naive.agrees(expected.as_deref(), &placed, &format!("{at}, {wish:?} {level}"));
            any |= expected.is_some();
        }
        any
    });
}

#[test]
fn slices_go_where_a_naive_placement_puts_them() {
    each_world(|random, world, machines, at| {
        let (picky, asked, slice_level) = (Picky::any(random), 1 + random.below(3), any_level(random, 3));
        let count = 1 + random.below(4 * asked);
        let size = asked.min(count);
        let naive = Naive { size, slice_level, ..Naive::new(machines, picky, count) }.whole();
        let mut any = false;
        for wish in [Wish::Required, Wish::Preferred, Wish::Unconstrained] {
            // Slices alone are placed as from the highest level.
            let level = match wish {
                Wish::Unconstrained => 0,
                _ => any_level(random, i64::try_from(slice_level).expect("small") + 1),
            };
            world.config.gates.tas_profile_mixed = false;
            let set = wish.of(picky.of(pods(count)), level).slice(LEVELS[slice_level], asked);
            let expected = naive.place(level, wish).map(|placed| first(placed, count));
            naive.agrees(expected.as_deref(), &world.place(&set), &format!("{at}, {wish:?} {level}"));
            any |= expected.is_some();
        }
        any
    });
}

#[test]
fn least_free_capacity_fills_the_smallest_domains_first() {
    each_world(|random, world, machines, at| {
        world.config.gates.tas_profile_mixed = true;
        let (picky, count) = (Picky::any(random), 1 + random.below(8));
        let naive = Naive { least_free: true, ..Naive::new(machines, picky, count) };
        let expected = naive.place(2, Wish::Unconstrained);
        naive.agrees(expected.as_deref(), &world.place(&picky.of(pods(count)).unconstrained()), at);
        let slice_level = any_level(random, 3);
        let pods_of_slices = count * 2 - random.below(2);
        let size = pods_of_slices.min(2);
        let sliced = Naive { size, slice_level, count: pods_of_slices, ..naive }.whole();
        let set = picky.of(pods(pods_of_slices)).unconstrained().slice(LEVELS[slice_level], 2);
        let in_slices = sliced.place(0, Wish::Unconstrained).map(|placed| first(placed, pods_of_slices));
        sliced.agrees(in_slices.as_deref(), &world.place(&set), at);
        expected.is_some()
    });
}

#[test]
fn balanced_placement_spreads_as_a_naive_one_does() {
    let mut evenly = 0;
    each_world(|random, world, machines, at| {
        world.config.gates.tas_balanced_placement = true;
        let (picky, count, level) = (Picky::any(random), 1 + random.below(10), any_level(random, 3));
        let naive = Naive::new(machines, picky, count);
        let balanced = naive.clone().balanced(level);
        let plain = naive.place(level, Wish::Preferred);
        evenly += i32::from(balanced.is_some() && balanced != plain);
        let expected = balanced.or(plain);
        let placed = world.place(&picky.of(pods(count)).preferred(LEVELS[level]));
        naive.agrees(expected.as_deref(), &placed, &format!("{at}, level {level}"));
        expected.is_some()
    });
    assert!(evenly > 50, "{evenly} placements are other than those of best fit");
}
